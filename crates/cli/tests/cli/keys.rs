//! `key`: roles, new locks, recovery.

use crate::home::{Home, same};
use serde_json::Value;

#[test]
fn each_role_does_its_part_and_no_more() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    for role in ["reader", "writer", "keeper"] {
        let file = format!("{role}.key");
        home.run(&["key", "add", "--role", role, "--label", "it", "--new-key-file", &file]).ok();
    }
    let keys = home.run(&["--json", "key", "list"]).ok().objects();
    assert_eq!(keys.len(), 4);
    let of = |role: &str, args: &[&str]| {
        let file = format!("{role}.key");
        home.run(&[&["-k", &file], args].concat()).code
    };
    assert_eq!(of("reader", &["restore", "latest", "-t", "out"]), Some(0));
    assert_eq!(of("reader", &["backup", "src"]), Some(1));
    assert_eq!(of("writer", &["backup", "src"]), Some(0));
    assert_eq!(of("writer", &["backup", "src", "--no-cache"]), Some(0));
    assert_eq!(of("writer", &["snapshots"]), Some(1));
    assert_eq!(of("writer", &["restore", "latest", "-t", "out2"]), Some(1));
    assert_eq!(of("keeper", &["snapshots"]), Some(0));
    assert_eq!(of("keeper", &["restore", "latest", "-t", "out2"]), Some(1));
    assert_eq!(of("writer", &["key", "add", "--new-key-file", "x.key"]), Some(1));
    assert!(!home.path("x.key").exists(), "a key that wasn't added has no file");

    let writer = keys.iter().find(|k| k["role"] == "writer").unwrap()["id"].as_str().unwrap().to_owned();
    home.run(&["key", "remove", &writer[..8]]).ok();
    assert_eq!(of("writer", &["backup", "src"]), Some(12));
    home.run(&["key", "remove", "ffffffff"]).expect(1);
    let owner = keys.iter().find(|k| k["role"] == "owner").unwrap()["id"].as_str().unwrap().to_owned();
    home.run(&["key", "remove", &owner]).expect(1);
    home.run(&["snapshots"]).ok();
}

#[test]
fn passwords_change() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    home.write("pw", "first\n");
    home.write("empty", "\n");
    home.run(&["key", "passwd"]).expect(2);
    home.run(&["key", "passwd", "--new-password-file", "empty"]).expect(12);
    home.run(&["snapshots"]).ok();
    let kept = home.kept_key();
    home.run(&["key", "passwd", "--new-password-file", "pw"]).ok();
    assert!(!kept.exists(), "a file that opens nothing is no use");
    home.run(&["snapshots"]).expect(12);
    home.run(&["-p", "pw", "key", "passwd", "--new-key-file", "new.key"]).ok();
    home.run(&["-p", "pw", "snapshots"]).expect(12);
    home.run(&["-k", "new.key", "snapshots"]).ok();
    home.run(&["-k", "new.key", "key", "passwd", "--new-key-file", "new.key"]).expect(1);
    home.run(&["-k", "new.key", "snapshots"]).ok();
    // The kept place is a place like any other.
    home.run(&["-k", "new.key", "key", "passwd", "--new-key-file", kept.to_str().unwrap()]).ok();
    home.run(&["snapshots"]).ok();
}

#[test]
fn the_recovery_file_opens_without_anything_else() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    home.run(&["key", "export", "safe"]).ok();
    assert_eq!(home.path("safe").metadata().unwrap().permissions().mode() & 0o777, 0o600);
    home.run(&["key", "export", "safe"]).expect(1);
    let text = std::fs::read_to_string(home.path("safe")).unwrap();
    assert_eq!(home.run(&["key", "export"]).ok().stdout, text);
    let told = home.run(&["--json", "key", "export"]).ok().the("recovery");
    assert_eq!(
        (told["text"].as_str(), told["role"].as_str(), &told["path"]),
        (Some(&text[..]), Some("owner"), &Value::Null)
    );
    let told = home.run(&["--json", "key", "export", "second"]).ok().the("recovery");
    assert_eq!((&told["text"], told["path"].as_str()), (&Value::Null, Some("second")));
    assert_eq!(std::fs::read_to_string(home.path("second")).unwrap(), text);
    std::fs::remove_dir_all(home.path("config")).unwrap();
    std::fs::remove_dir_all(home.repository().join("keys")).unwrap();
    home.run(&["snapshots"]).expect(12);
    // The key objects are missed. With the certificates gone nobody vouches for its signer, so it has to be named.
    let id =
        home.run(&["-k", "safe", "--json", "snapshots"]).expect(4).the("snapshot")["id"].as_str().unwrap().to_owned();
    home.run(&["-k", "safe", "restore", &id, "-t", "out"]).expect(4);
    home.write("safe", std::fs::read_to_string(home.path("safe")).unwrap().replacen('a', "b", 1));
    home.run(&["-k", "safe", "snapshots"]).expect(12);
}

/// As docs/guides/keys.md says to do where the folder of keys is lost.
#[test]
fn a_recovery_file_makes_its_key_again() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    home.run(&["key", "export", "safe"]).ok();
    for folder in ["config", "cache", "state"] {
        let _ = std::fs::remove_dir_all(home.path(folder));
    }
    std::fs::remove_dir_all(home.repository().join("keys")).unwrap();
    let ran = home.run(&["-k", "safe", "backup", "src"]).expect(3);
    assert!(ran.stderr.contains("'drumlin key passwd'"), "{}", ran.stderr);
    let ran = home.run(&["-k", "safe", "restore", &home.saved_folder(), "-t", "out"]).expect(3);
    assert!(same(&home.path("src"), &home.path("out")));
    assert!(!ran.stderr.contains("not everything was restored"), "{}", ran.stderr);
    home.run(&["-k", "safe", "key", "passwd", "--new-key-file", "again"]).expect(3);
    home.run(&["-k", "again", "check"]).ok();
    assert_eq!(home.run(&["-k", "again", "--json", "snapshots"]).ok().of_type("snapshot").len(), 2);
    home.run(&["-k", "again", "restore", "latest", "-t", "twice"]).ok();
    home.run(&["-k", "safe", "backup", "src"]).ok();
}

/// Who has seen the key is told that it is missing, and of nothing once it is made again.
#[test]
fn a_key_that_was_made_again_is_the_one_that_was_seen() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    home.run(&["check"]).ok();
    home.run(&["key", "export", "safe"]).ok();
    std::fs::remove_dir_all(home.repository().join("keys")).unwrap();
    let ran = home.run(&["snapshots"]).expect(12);
    assert!(
        ran.stderr.contains("its folder 'keys' is empty or gone") && ran.stderr.contains("hint: "),
        "{}",
        ran.stderr
    );
    home.run(&["-k", "safe", "snapshots"]).expect(4);
    // Its certificate gets another time.
    std::thread::sleep(std::time::Duration::from_millis(1100));
    home.run(&["-k", "safe", "key", "passwd", "--new-key-file", "again"]).expect(4);
    for args in [&["snapshots"][..], &["check"], &["forget", "--keep-last", "1"], &["prune"]] {
        home.run(&[&["-k", "again"], args].concat()).ok();
    }
}

#[test]
fn a_stolen_key_is_shut_out_by_new_secrets() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    for role in ["reader", "writer", "keeper"] {
        home.run(&["key", "add", "--role", role, "--label", role, "--new-key-file", &format!("{role}.key")]).ok();
    }
    // All that the key gives out, taken before it was removed.
    home.run(&["-k", "reader.key", "key", "export", "stolen"]).ok();
    let keys = home.run(&["--json", "key", "list"]).ok().objects();
    let reader = keys.iter().find(|k| k["role"] == "reader").unwrap()["id"].as_str().unwrap().to_owned();
    let removed = home.run(&["key", "remove", &reader[..8]]).ok();
    assert!(removed.stdout.contains("drumlin key rekey"), "{}", removed.stdout);
    home.run(&["-k", "writer.key", "key", "rekey"]).expect(1);
    let done = home.run(&["--json", "key", "rekey"]).ok().the("rekeyed");
    assert_eq!((&done["generation"], done["keys"].as_array().unwrap().len()), (&1.into(), 3));
    assert!(done["removed"].as_array().unwrap().is_empty() && done["open_sessions"].as_array().unwrap().is_empty());
    assert!(done["keys"].as_array().unwrap().iter().all(|k| k["id"] != reader && k["label"].is_string()));

    home.write("src/secret", "what the thief shall not read");
    home.run(&["-k", "writer.key", "backup", "src"]).ok();
    let ids_of = |ran: crate::home::Ran| -> Vec<String> {
        ran.of_type("snapshot").iter().map(|s| s["id"].as_str().unwrap().to_owned()).collect()
    };
    let listed = |key: &[&str]| ids_of(home.run(&[key, &["--json", "snapshots"]].concat()));
    // This program refuses him; he has another, which doesn't ask whether the key was removed.
    home.run(&["-k", "stolen", "snapshots"]).expect(12);
    let as_thief = |args: &[&str]| {
        let word = |name: &str| [home.repository().join("keys").join(name), home.path(name)];
        let both = [reader.clone(), format!("{reader}.copy")].map(|name| word(&name));
        both.iter().for_each(|[there, away]| std::fs::rename(there, away).unwrap());
        let ran = home.run(&[&["-k", "stolen"], args].concat());
        both.iter().for_each(|[there, away]| std::fs::rename(away, there).unwrap());
        ran
    };
    let ids = listed(&[]);
    let his = ids_of(as_thief(&["--json", "snapshots"]));
    assert_eq!((ids.len(), his), (2, ids[..1].to_vec()), "he reads what he could read before");
    as_thief(&["dump", &ids[1], "/"]).expect(1);
    home.run(&["-k", "keeper.key", "check"]).ok();
    let of = |home: &Home| home.run(&["--json", "stats"]).ok().the("stats")["generations"].clone();
    assert!(of(&home)[0]["pack_bytes"].as_u64() > Some(0) && of(&home)[1]["snapshots"] == 1, "{}", of(&home));

    // A keeper does what it can, and says what is left to an owner.
    let half = home.run(&["-k", "keeper.key", "prune"]).ok().stdout;
    assert!(half.contains("old secrets:") && half.contains("owner's key"), "{half}");
    assert_eq!(ids_of(as_thief(&["--json", "snapshots"])), Vec::<String>::new());
    let plan = home.run(&["--json", "prune", "-n"]).ok().the("prune_plan");
    assert!(plan["rekeyed"]["packs"].as_u64() > Some(0) && plan["older_after"]["packs"] == 0, "{plan}");
    home.run(&["prune", "--max-rekey", "0"]).ok();
    assert!(of(&home)[0]["packs"].as_u64() > Some(0));
    home.run(&["prune"]).ok();
    for field in ["packs", "pack_bytes", "index_objects", "snapshots"] {
        assert_eq!(of(&home)[0][field], 0, "{field}");
    }
    let told = home.run(&["stats"]).ok().stdout;
    assert!(told.contains("secrets 0:    old, open nothing of what was backed up"), "{told}");
    assert_eq!(listed(&[]), ids);
    home.run(&["check", "--read-data"]).ok();
    home.run(&["restore", &ids[0], "-t", "out"]).ok();
    home.run(&["-k", "writer.key", "backup", "src"]).ok();
    let told = home.run(&["key", "rekey"]).ok().stdout;
    assert!(told.contains("generation 2") && told.contains("writer") && told.contains("drumlin prune"), "{told}");
}

#[test]
fn a_storage_that_takes_new_secrets_back_gets_nothing_written() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    let config = home.repository().join("config");
    let before = std::fs::read(&config).unwrap();
    home.run(&["key", "rekey"]).ok();
    home.run(&["backup", "src"]).ok();
    let now = std::fs::read(&config).unwrap();
    std::fs::write(&config, before).unwrap();
    let ran = home.run(&["backup", "src"]).expect(1);
    assert!(ran.stderr.contains("nothing can be written") && ran.stderr.contains("older state"), "{}", ran.stderr);
    let ran = home.run(&["key", "list"]).expect(4);
    assert!(ran.stderr.contains("generation 1 of its secrets"), "{}", ran.stderr);
    home.run(&["prune"]).expect(1);
    home.run(&["key", "rekey"]).expect(1);
    std::fs::write(&config, now).unwrap();
    home.run(&["backup", "src"]).ok();
    home.run(&["snapshots"]).ok();
}
