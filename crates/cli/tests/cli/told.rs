//! What is less than one may think is told: sources that aren't there, links, devices; and a prune that was asked for
//! is made.

use crate::home::Home;
use crate::kills::files;
use std::fs;
use std::os::unix::fs::symlink;

fn ids(home: &Home) -> Vec<String> {
    let all = home.run(&["--json", "snapshots"]).expect(0).of_type("snapshot");
    all.iter().map(|snapshot| snapshot["id"].as_str().unwrap().to_owned()).collect()
}

/// A disk that isn't mounted for some nights must not cost the snapshots that have what is on it.
#[test]
fn snapshots_that_lack_a_source_push_out_none_that_have_it() {
    let home = Home::new();
    home.sources();
    home.write("disk/photo", "kept");
    home.run(&["backup", "src", "disk"]).ok();
    let whole = ids(&home).remove(0);
    fs::rename(home.path("disk"), home.path("elsewhere")).unwrap();
    for night in 0..4 {
        home.write("src/night", format!("{night}"));
        let ran = home.run(&["backup", "src", "disk"]).expect(3);
        assert!(ran.stderr.contains("1 source was not there or not readable: rules of"), "{}", ran.stderr);
    }
    let listed = home.run(&["snapshots"]).expect(0).stdout;
    assert_eq!(listed.matches("1 missing source").count(), 4, "{listed}");
    home.run(&["forget", "--keep-last", "2", "--prune"]).ok();
    let left = ids(&home);
    assert!(left.len() == 3 && left.contains(&whole), "{left:?}");
    let out = home.text("out");
    home.run(&["restore", &format!("{whole}:{}", home.text("disk")), "--target", &out]).ok();
    assert_eq!(fs::read(home.path("out/photo")).unwrap(), b"kept");
    let ran = home.run(&["restore", "latest", "--target", &home.text("other")]).expect(0);
    assert!(
        ran.stderr.contains("1 source was not there or not readable when this snapshot was made"),
        "{}",
        ran.stderr
    );
    // Back again, it counts as ever.
    fs::rename(home.path("elsewhere"), home.path("disk")).unwrap();
    home.run(&["backup", "src", "disk"]).ok();
    home.run(&["forget", "--keep-last", "1"]).ok();
    assert!(!ids(&home).contains(&whole));
}

#[test]
fn links_and_devices_that_are_saved_as_such() {
    let home = Home::new();
    home.sources();
    symlink("src", home.path("way")).unwrap();
    symlink("src/a.txt", home.path("short")).unwrap();
    home.run(&["backup", "src"]).ok();
    for (source, part) in
        [("way", "add a '/' at the end"), ("short", "not what it leads to"), ("/dev/null", "--stdin NAME")]
    {
        for quiet in [&["-q"][..], &[]] {
            let ran = home.run(&[quiet, &["backup", source]].concat()).expect(0);
            assert!(ran.stderr.contains(part) && ran.stderr.contains(source), "{source}: {}", ran.stderr);
        }
    }
    // The slash says what is meant; and a list says nothing of what it has.
    home.run(&["backup", "way/"]).ok();
    home.write("list", "way\n");
    home.run(&["backup", "--files-from-verbatim", "list"]).ok();
}

/// Whether this run has forgotten something or an earlier one has.
#[test]
fn forget_with_prune_prunes() {
    let home = Home::new();
    home.sources();
    home.write(
        "src/large",
        (0..400_000u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect::<Vec<u8>>(),
    );
    home.run(&["backup", "src"]).ok();
    fs::remove_file(home.path("src/large")).unwrap();
    home.run(&["backup", "src"]).ok();
    home.run(&["forget", "latest~1"]).ok();
    let data = home.repository().join("data");
    let bytes = || files(&data).iter().map(|path| path.metadata().unwrap().len()).sum::<u64>();
    let before = bytes();
    home.run(&["forget", "--keep-last", "9", "--prune", "-n"]).ok();
    assert_eq!(bytes(), before);
    home.run(&["forget", "--keep-last", "9", "--prune"]).ok();
    assert!(bytes() < before / 2, "{before} bytes, and {} after it", bytes());
    home.run(&["check", "--read-data"]).ok();
    // As for a prune by itself.
    home.run(&["forget", "--keep-last", "9", "--prune", "--max-unused", "0", "--wait", "0"]).ok();
    home.run(&["forget", "--keep-last", "9", "--wait", "0"]).expect(2);
}

/// As the guides' first lines have it, on a machine where the program has no settings yet.
#[test]
fn a_key_file_among_settings_that_are_not_there_yet() {
    let home = Home::new();
    let key = home.text("config/drumlin/nas.key");
    home.run(&["-r", "repo", "--key-file", &key, "init"]).ok();
    assert!(home.path("config/drumlin/nas.key").exists());
    // Elsewhere a folder that isn't there is a slip.
    let elsewhere = home.text("nowhere/nas.key");
    home.run(&["-r", "repo2", "--key-file", &elsewhere, "init"]).expect(1);
    assert!(!home.path("nowhere").exists() && !home.path("repo2").exists());
}
