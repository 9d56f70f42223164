//! `repair`, after `check`.

use crate::home::{Home, same};
use drumlin_testkit::Rng;
use serde_json::json;
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
        drumlin_testkit::wipe_parity(bytes);
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
fn a_key_that_is_lost_is_told_and_removed() {
    let home = home();
    let key_folder = home.repository().join("keys");
    let keys = || -> Vec<PathBuf> { key_folder.read_dir().unwrap().map(|e| e.unwrap().path()).collect() };
    let before = keys();
    home.run(&["key", "add", "--role", "writer", "--new-key-file", "w.key"]).ok();
    let mut added: Vec<_> = keys().into_iter().filter(|key| !before.contains(key)).collect();
    added.sort();
    let id = added[0].file_name().unwrap().to_str().unwrap().to_owned();
    added.iter().for_each(|path| home.tamper(path, |bytes| bytes.truncate(20)));
    home.run(&["check", "--accept-history"]).expect(1);
    let repaired = home.run(&["repair"]).expect(3);
    assert!(repaired.stderr.contains(&format!("'drumlin key remove {id}'")), "{}", repaired.stderr);
    let lost = home.run(&["--json", "repair"]).expect(3).the("repair");
    assert_eq!(lost["objects_lost"], json!([format!("keys/{id}")]));
    let listed = home.run(&["key", "list"]).expect(3);
    assert!(listed.stdout.contains("owner") && listed.stderr.contains(&id), "{} {}", listed.stdout, listed.stderr);
    assert!(home.run(&["key", "rekey"]).expect(1).stderr.contains("'drumlin key remove'"));
    assert!(home.run(&["key", "remove", &id[..8]]).ok().stdout.contains("what was left of key"));
    home.run(&["key", "list"]).ok();
    home.run(&["repair"]).ok();
    home.run(&["check"]).ok();
    home.run(&["key", "rekey"]).ok();
}

#[test]
fn a_config_that_is_lost_is_put_again_by_its_copy() {
    let home = home();
    let [config, copy] = ["config", "config.copy"].map(|name| home.repository().join(name));
    let whole = std::fs::read(&config).unwrap();
    assert_eq!(std::fs::read(&copy).unwrap(), whole);
    std::fs::remove_file(&config).unwrap();
    let told = home.run(&["snapshots"]).expect(0);
    assert!(
        told.stderr.contains("its copy was read instead") && told.stderr.contains("'drumlin repair'"),
        "{}",
        told.stderr
    );
    let healed = home.run(&["--json", "backup", "src"]).expect(0).the("healed");
    assert_eq!((&healed["copies"], &healed["packs"]), (&json!(["config"]), &json!([])));
    assert!(home.run(&["init"]).expect(1).stderr.contains("there is a repository"));
    home.run(&["check"]).expect(1);
    let repaired = home.run(&["repair"]).ok();
    assert!(repaired.stdout.contains("restored: 1 object of the config"), "{}", repaired.stdout);
    assert_eq!(std::fs::read(&config).unwrap(), whole);
    // One that an older program didn't make.
    std::fs::remove_file(&copy).unwrap();
    let told = home.run(&["check"]).ok().stdout;
    assert!(told.contains("no copy:   1 object has none"), "{told}");
    assert_eq!(home.run(&["--json", "check"]).ok().the("check")["copies_lacking"], 1);
    home.run(&["repair"]).ok();
    assert_eq!(std::fs::read(&copy).unwrap(), whole);
    home.tamper(&copy, |bytes| bytes[40] ^= 1);
    home.run(&["snapshots"]).ok();
    assert_eq!(home.run(&["--json", "repair"]).ok().the("repair")["copies_mended"], 1);
    home.run(&["check", "--read-data"]).ok();
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
}

#[test]
fn a_key_that_is_damaged_opens_by_its_copy() {
    let home = home();
    let keys = |suffix: &str| -> Vec<PathBuf> {
        let all = std::fs::read_dir(home.repository().join("keys")).unwrap().map(|key| key.unwrap().path());
        all.filter(|path| path.to_str().unwrap().ends_with(".copy") == (suffix == ".copy")).collect()
    };
    let ([key], [copy]) = (&keys("")[..], &keys(".copy")[..]) else { panic!("one key, and its copy") };
    home.tamper(key, |bytes| bytes[100] ^= 1);
    let told = home.run(&["snapshots"]).expect(0).stderr;
    assert!(
        told.contains("its copy was read instead") && told.contains(key.file_name().unwrap().to_str().unwrap()),
        "{told}"
    );
    // What opens it is changed in both.
    home.run(&["key", "passwd", "--new-key-file", "other.key"]).expect(0);
    assert_eq!(std::fs::read(key).unwrap(), std::fs::read(copy).unwrap());
    std::fs::remove_file(key).unwrap();
    let run = |args: &[&str]| home.run(&[&["-k", "other.key"], args].concat());
    run(&["check"]).expect(1);
    run(&["snapshots"]).expect(0);
    run(&["repair"]).ok();
    run(&["check"]).ok();
    assert_eq!(std::fs::read(key).unwrap(), std::fs::read(copy).unwrap());
}

/// What is in a pack that no index object names isn't read by a check: one repair finds it all the same.
#[test]
fn one_repair_is_enough_for_the_index_and_what_it_names() {
    let home = home();
    for object in std::fs::read_dir(home.repository().join("index")).unwrap() {
        home.tamper(&object.unwrap().path(), |bytes| bytes[40] ^= 1);
    }
    home.tamper(&packs(&home, "data")[0], |bytes| {
        let middle = drumlin_testkit::parity_of(bytes).start / 2;
        bytes[middle] ^= 1;
    });
    home.run(&["check", "--read-data"]).expect(1);
    let repaired = home.run(&["--json", "repair", "--read-data"]).expect(0).the("repair");
    assert_eq!(repaired["packs_mended"].as_array().unwrap().len(), 1, "{repaired}");
    assert!(repaired["packs_named_again"].as_u64() > Some(1), "{repaired}");
    home.run(&["check", "--read-data"]).ok();
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
}

/// As if somebody had written zeros over sectors of every pack, its header and its footer.
#[test]
fn lost_sectors_are_healed() {
    let home = home();
    for folder in ["data", "tree"] {
        for pack in packs(&home, folder) {
            home.tamper(&pack, |bytes| {
                let (data, len) = (drumlin_testkit::parity_of(bytes).start, bytes.len());
                let middle = data / 2 / 4096 * 4096;
                // Sixteen in a row where sixteen codewords are woven.
                let sectors = if data > 1024 * 4096 { 16 } else { 1 };
                bytes[middle..middle + sectors * 4096].fill(0);
                bytes[len - 48..].fill(0);
                bytes[if data > 16 * 4096 { 0..4096 } else { 0..0 }].fill(0);
            });
        }
    }
    let found = home.run(&["check", "--read-data"]).expect(1).stdout;
    assert!(found.contains("its parity makes up for it") && !found.contains("touches"), "{found}");
    let found = home.run(&["--json", "check"]).expect(1).the("damage");
    assert_eq!((&found["kind"], &found["healed_by_parity"]), (&"tree_pack".into(), &true.into()), "{found}");
    let restored = home.run(&["restore", &home.saved_folder(), "-t", "out"]).expect(0);
    assert!(restored.stderr.contains("read through their parity"), "{}", restored.stderr);
    assert!(same(&home.path("src"), &home.path("out")));
    let told = home.run(&["--json", "ls", "latest"]).expect(0);
    assert!(told.stderr.contains("\"message_type\":\"healed\""), "{}", told.stderr);
    let repaired = home.run(&["repair", "--read-data"]).ok().stdout;
    assert!(repaired.contains("rewritten") && repaired.contains("is lost"), "{repaired}");
    home.run(&["check", "--read-data"]).ok();
    let restored = home.run(&["restore", &home.saved_folder(), "-t", "again"]).ok();
    assert!(restored.stderr.is_empty(), "{}", restored.stderr);
    assert!(same(&home.path("src"), &home.path("again")));
    home.run(&["prune"]).ok();
    assert_eq!(home.run(&["--json", "check", "--read-data"]).ok().the("check")["leftover_packs"], 0);
}

/// No index, and no pack whose footer can be read: the parity tells where the tables are.
#[test]
fn an_index_is_made_anew_from_packs_without_footers() {
    let home = home();
    for pack in ["data", "tree"].iter().flat_map(|folder| packs(&home, folder)) {
        home.tamper(&pack, |bytes| {
            let len = bytes.len();
            bytes[len - 48..].fill(0);
        });
    }
    for object in home.repository().join("index").read_dir().unwrap() {
        std::fs::remove_file(object.unwrap().path()).unwrap();
    }
    home.run(&["cache", "clear"]).ok();
    assert!(home.run(&["repair"]).ok().stdout.contains("in the index again"));
    home.run(&["repair", "--read-data"]).ok();
    home.run(&["check", "--read-data"]).ok();
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
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

/// A session that nobody can read is damage, and the only one: it is ended all the same, and one that isn't there is
/// told of.
#[test]
fn a_session_is_ended_though_nothing_else_is_to_be_repaired() {
    let home = Home::new();
    home.write("src/file", "contents");
    home.run(&["init"]).ok();
    home.run(&["backup", "src"]).ok();
    let session = "00112233445566778899aabbccddeeff";
    home.write(&format!("{}/sessions/{session}", home.repository().display()), "");
    home.run(&["check"]).expect(1);
    let told = home.run(&["repair", "--evict", session]).expect(0);
    assert!(told.stdout.contains("ended: 1 session"), "{}", told.stdout);
    home.run(&["check"]).ok();
    let told = home.run(&["repair", "--evict", session]).expect(0);
    assert!(told.stdout.contains("nothing to repair") && told.stderr.contains(&format!("no session {session}")));
}
