//! `parity`: parity across packs, and what is made again by it.

use crate::home::{Home, same};
use drumlin_testkit::Rng;
use std::path::PathBuf;

/// Several packs of contents, some of metadata.
fn home() -> Home {
    let home = Home::new();
    for state in 0..4u64 {
        home.write(&format!("src/large{state}"), Rng::new(state).bytes(2_000_000));
        for file in 0..10 {
            home.write(&format!("src/f{file}"), Rng::new(state * 100 + file).bytes(20_000));
        }
        home.run(&["backup", "src"]).ok();
    }
    home
}

fn packs(home: &Home) -> Vec<PathBuf> {
    let in_folder = |folder: &str| {
        let folders = home.repository().join(folder).read_dir().unwrap();
        folders.flat_map(|f| f.unwrap().path().read_dir().unwrap().map(|e| e.unwrap().path())).collect::<Vec<_>>()
    };
    let mut packs = [in_folder("data"), in_folder("tree")].concat();
    packs.sort_by_key(|path| std::cmp::Reverse(path.metadata().unwrap().len()));
    packs
}

fn recovery_objects(home: &Home) -> usize {
    home.repository().join("parity").read_dir().map_or(0, Iterator::count)
}

#[test]
fn two_lost_packs_are_made_again() {
    let home = home();
    let plan = home.run(&["--json", "parity", "-n"]).ok().the("parity");
    assert_eq!(
        (&plan["dry_run"], &plan["shape"], &plan["covered"]["packs"]),
        (&true.into(), &"20+2".into(), &0.into())
    );
    assert_eq!(recovery_objects(&home), 0);
    let told = home.run(&["parity"]).ok().stdout;
    assert!(
        told.contains("covered:   8 packs of 8.") && told.contains("(20+2)") && !told.contains("uncovered"),
        "{told}"
    );
    let again = home.run(&["--json", "parity"]).ok().the("parity");
    assert_eq!((&again["bands_made"], &again["uncovered"]["packs"]), (&0.into(), &0.into()), "{again}");
    let sound = home.run(&["check", "--read-data"]).ok().stdout;
    assert!(sound.contains("parity:    8 of 8 packs can be made again, by"), "{sound}");
    let stats = home.run(&["--json", "stats"]).ok().the("stats");
    assert_eq!(stats["recovery_objects"].as_u64(), Some(recovery_objects(&home) as u64));

    let packs = packs(&home);
    let whole: Vec<_> = packs.iter().map(|pack| std::fs::read(pack).unwrap()).collect();
    [0, 1, packs.len() - 1].iter().for_each(|n| std::fs::remove_file(&packs[*n]).unwrap());
    let found = home.run(&["check"]).expect(1);
    assert!(found.stdout.contains("parity across packs makes up for it"), "{}", found.stdout);
    assert!(!found.stdout.contains("touches"), "{}", found.stdout);
    assert!(home.run(&["parity", "off"]).expect(1).stderr.contains("drumlin repair"));
    let restored = home.run(&["restore", &home.saved_folder(), "-t", "out"]).expect(0);
    assert!(restored.stderr.contains("read through their parity"), "{}", restored.stderr);
    assert!(same(&home.path("src"), &home.path("out")));
    let repaired = home.run(&["--json", "repair"]).expect(0);
    assert_eq!(repaired.the("repair")["packs_made_again"].as_array().unwrap().len(), 3);
    let parity = repaired.the("parity");
    assert_eq!((&parity["uncovered"]["packs"], &parity["packs_lost"]), (&0.into(), &0.into()), "{parity}");
    home.run(&["check", "--read-data"]).ok();
    let restored = home.run(&["restore", &home.saved_folder(), "-t", "again"]).ok();
    assert!(restored.stderr.is_empty() && same(&home.path("src"), &home.path("again")), "{}", restored.stderr);
    // The disk gives them back: they are nobody's.
    packs.iter().zip(&whole).for_each(|(pack, bytes)| std::fs::write(pack, bytes).unwrap());
    home.run(&["prune"]).ok();
    home.run(&["check", "--read-data"]).ok();
}

#[test]
fn a_prune_keeps_it_up_to_date() {
    let home = home();
    home.run(&["parity", "4+1"]).ok();
    home.run(&["forget", "--keep-last", "1"]).ok();
    let plan = home.run(&["--json", "prune", "-n"]).ok().the("prune_plan");
    assert!(plan["parity"]["bands"].as_u64() > Some(0) && plan["parity"]["bytes_read"].as_u64() > Some(0), "{plan}");
    let told = home.run(&["prune", "-n"]).ok().stdout;
    assert!(told.contains("parity:       "), "{told}");
    let done = home.run(&["--json", "prune"]).ok().the("parity");
    assert_eq!((&done["uncovered"]["packs"], &done["shape"]), (&0.into(), &"4+1".into()), "{done}");
    home.run(&["check", "--read-data"]).ok();
    home.write("src/more", Rng::new(999).bytes(300_000));
    home.run(&["backup", "src"]).ok();
    let checked = home.run(&["check"]).ok().stdout;
    assert!(checked.contains("'drumlin parity' covers the others"), "{checked}");
    home.run(&["parity"]).ok();
    let off = home.run(&["parity", "off"]).ok().stdout;
    assert!(off.contains("removed ") && recovery_objects(&home) == 0, "{off}");
    assert!(home.run(&["parity", "off"]).ok().stdout.contains("there is no parity across packs"));
    assert!(home.run(&["--json", "prune"]).ok().of_type("parity").is_empty());
}

#[test]
fn damaged_recovery_objects_are_told_and_made_anew() {
    let home = home();
    home.run(&["parity", "10+2"]).ok();
    let objects = || home.repository().join("parity").read_dir().unwrap().map(|e| e.unwrap().path());
    let largest = objects().max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    home.tamper(&largest, |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    });
    home.run(&["check"]).ok();
    let found = home.run(&["--json", "check", "--read-data"]).expect(1).the("damage");
    assert_eq!((&found["kind"], &found["touched"]), (&"recovery_object".into(), &serde_json::json!([])), "{found}");
    home.run(&["repair", "--read-data"]).ok();
    home.run(&["check", "--read-data"]).ok();
    assert!(!largest.exists());
    // The last one of a band.
    let last = objects()
        .max_by_key(|path| path.file_name().map(|name| name.to_owned().into_string().unwrap()[30..].to_owned()));
    std::fs::remove_file(last.unwrap()).unwrap();
    assert!(home.run(&["check"]).expect(1).stdout.contains("it isn't there"));
    home.run(&["parity"]).ok();
    home.run(&["check", "--read-data"]).ok();
}

#[test]
fn what_makes_no_sense_or_may_not_be_is_refused() {
    let home = home();
    for wrong in ["x", "5", "0+1", "5+0", "200+1", "5+20"] {
        home.run(&["parity", wrong]).expect(2);
    }
    home.run(&["key", "add", "--role", "writer", "--new-key-file", "w.key"]).ok();
    let refused = home.run(&["--key-file", "w.key", "parity"]).expect(1);
    assert!(refused.stderr.contains("a writer key can't"), "{}", refused.stderr);
    home.run(&["key", "add", "--role", "keeper", "--new-key-file", "k.key"]).ok();
    home.run(&["--key-file", "k.key", "parity"]).ok();
    home.run(&["check"]).ok();
}
