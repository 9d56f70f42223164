//! `key`: roles, new locks, recovery.

use crate::home::Home;

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
    assert_eq!(home.run(&["key", "export"]).ok().stdout, std::fs::read_to_string(home.path("safe")).unwrap());
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
