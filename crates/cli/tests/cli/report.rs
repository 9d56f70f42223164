//! What a backup reports: what was new, changed, unmodified, removed, unreadable and excluded, and what deduplication
//! and compression each saved.

use crate::home::Home;
use drumlin_testkit::Rng;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

#[test]
fn each_count_is_told() {
    let home = Home::new();
    home.sources();
    // What changed just now might change again within the same tick of the clock, and is read again.
    std::thread::sleep(Duration::from_millis(100));
    home.run(&["backup", "src", "missing"]).expect(3);
    home.write("src/a.txt", "changed\n");
    home.write("src/new1", "new\n");
    home.write("src/new2", "new\n");
    home.write("src/new.o", "excluded");
    std::fs::remove_file(home.path("src/link")).unwrap();
    let args = ["backup", "src", "missing", "-e", "new.o", "-n"];
    let ran = home.run(&[&["--json"][..], &args].concat()).expect(3);
    let summary = ran.the("summary");
    for (field, count) in [
        ("entries_new", 2),
        ("entries_changed", 2),
        ("entries_removed", 1),
        ("entries_excluded", 1),
        ("entries_unreadable", 1),
        ("entries_vanished", 0),
        ("files_changed_while_read", 0),
        ("total_files_processed", 6),
        ("bytes_read", 16),
        // Both of the new ones are one piece.
        ("chunks", 3),
        ("chunks_new", 2),
        ("data_added", 12),
    ] {
        assert_eq!(summary[field], count, "{field}: {summary}");
    }
    let unmodified = summary["entries_unmodified"].as_u64().unwrap();
    assert!(unmodified >= 4, "{summary}");
    assert_eq!(summary["total_entries_processed"], unmodified + 4, "{summary}");
    assert_eq!(summary["deduplication_ratio"], 1.3333, "{summary}");
    let text = home.run(&args).expect(3).stdout;
    for words in [
        &format!("2 new, 2 changed, {unmodified} unmodified, 1 removed")[..],
        "1 excluded, 1 unreadable",
        "in 6 files",
        "16 B read, 12 B of it new (1.33:1)",
        "would store",
        "a dry run: nothing was stored",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(home.run(&["--json", "snapshots"]).ok().objects().len(), 1);
}

#[test]
fn deduplication_and_compression_are_told_apart() {
    let home = Home::new();
    let noise = Rng::new(1).bytes(1 << 20);
    for name in ["one", "two", "three"] {
        home.write(&format!("twins/{name}"), &noise);
    }
    home.write("text/zeros", "the same again and again ".repeat(50_000));
    let of = |source: &str| home.run(&["--json", "backup", source]).ok().the("summary");
    let ratio = |summary: &serde_json::Value, name: &str| summary[name].as_f64().unwrap();
    let twins = of("twins");
    assert_eq!((ratio(&twins, "deduplication_ratio"), &twins["data_added"]), (3.0, &(1 << 20).into()), "{twins}");
    assert!((0.99..1.01).contains(&ratio(&twins, "compression_ratio")), "{twins}");
    let text = of("text");
    assert!(ratio(&text, "compression_ratio") > 20.0, "{text}");
    // Of what was there before nothing is stored, so there is nothing to compare it with.
    let again = home.run(&["--json", "backup", "twins", "--force"]).ok().the("summary");
    assert_eq!((&again["bytes_read"], &again["data_added_packed"]), (&(3 << 20).into(), &0.into()), "{again}");
    assert!(again.get("deduplication_ratio").is_none() && again.get("compression_ratio").is_none(), "{again}");
    let words = home.run(&["backup", "twins", "--force"]).ok().stdout;
    assert!(words.contains("3.00 MiB read, 0 B of it new\n"), "{words}");
}

#[test]
fn what_changed_while_it_was_read_is_no_failure_but_is_counted() {
    let home = Home::new();
    home.write("src/calm", "calm");
    let log = home.write("src/log", Rng::new(1).bytes(8 << 20));
    let ended = AtomicBool::new(false);
    let ran = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut log = std::fs::File::options().append(true).open(&log).unwrap();
            while !ended.load(Ordering::Relaxed) {
                log.write_all(b"one more line\n").unwrap();
                std::thread::yield_now();
            }
        });
        let ran = home.run(&["--json", "backup", "src", "missing"]);
        ended.store(true, Ordering::Relaxed);
        ran
    });
    let ran = ran.expect(3);
    let kinds: Vec<_> = ran.of_type("error").iter().map(|e| e["kind"].as_str().unwrap().to_owned()).collect();
    assert_eq!(kinds.len(), 2, "{}", ran.stderr);
    assert!(kinds.contains(&"unreadable".into()) && kinds.contains(&"changed_while_read".into()), "{}", ran.stderr);
    let summary = ran.the("summary");
    assert_eq!((&summary["entries_unreadable"], &summary["files_changed_while_read"]), (&1.into(), &1.into()));
    let snapshot = home.run(&["--json", "snapshots"]).ok().the("snapshot");
    assert_eq!(snapshot["summary"]["files_changed_while_read"], 1);
    let long = home.run(&["ls", "-l", "latest", log.to_str().unwrap()]).ok().stdout;
    assert!(long.contains("(changed while it was read)"), "{long}");
    // What was read of it can be had.
    let bytes = home.run(&["dump", "latest", log.to_str().unwrap()]).ok().bytes;
    assert!(bytes.len() >= 8 << 20 && std::fs::read(&log).unwrap().starts_with(&bytes));
}
