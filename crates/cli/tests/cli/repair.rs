//! `repair`, after `check`.

use crate::home::{Home, same};
use drumlin_testkit::Rng;
use std::path::PathBuf;

fn home() -> Home {
    let home = Home::new();
    for file in 0..30u64 {
        home.write(&format!("src/f{file}"), Rng::new(file).bytes(50_000));
    }
    home.write("src/large", Rng::new(99).bytes(3_000_000));
    home.run(&["backup", "src"]).ok();
    home
}

/// The packs of a folder.
fn packs(home: &Home, folder: &str) -> Vec<PathBuf> {
    let folders = home.repository().join(folder).read_dir().unwrap();
    folders.flat_map(|f| f.unwrap().path().read_dir().unwrap().map(|e| e.unwrap().path())).collect()
}

#[test]
fn a_flipped_byte_is_found_repaired_and_healed() {
    let home = home();
    assert!(home.run(&["repair"]).ok().stdout.contains("nothing to repair"));
    home.tamper(&packs(&home, "data")[0], |bytes| {
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
    });
    home.run(&["check"]).ok();
    home.run(&["check", "--read-data"]).expect(1);
    // By names and lengths alone nothing is to be seen.
    home.run(&["repair"]).ok();
    let repaired = home.run(&["--json", "repair", "--read-data"]).expect(3).the("repair");
    assert!(repaired["chunks_lost"].as_u64() > Some(0) && repaired["bytes_salvaged"].as_u64() > Some(1_000_000));
    home.run(&["restore", &home.saved_folder(), "-t", "part"]).expect(3);
    home.run(&["backup", "src"]).ok();
    home.run(&["check", "--read-data"]).ok();
    home.run(&["restore", &format!("latest~1:{}", home.text("src")), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
    home.run(&["prune"]).ok();
    assert_eq!(home.run(&["--json", "check", "--read-data"]).ok().the("check")["leftover_packs"], 0);
}

#[test]
fn an_index_that_is_gone_is_made_anew() {
    let home = home();
    for object in home.repository().join("index").read_dir().unwrap() {
        std::fs::remove_file(object.unwrap().path()).unwrap();
    }
    home.run(&["cache", "clear"]).ok();
    home.run(&["check"]).expect(1);
    assert!(home.run(&["repair"]).ok().stdout.contains("in the index again"));
    home.run(&["check", "--read-data"]).ok();
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
}

#[test]
fn a_writer_may_not() {
    let home = home();
    home.run(&["key", "add", "--role", "writer", "--new-key-file", "w.key"]).ok();
    let refused = home.run(&["--key-file", "w.key", "repair"]).expect(1);
    assert!(refused.stderr.contains("a writer key can't"), "{}", refused.stderr);
}
