//! `restore` over what is there: what is written, what stays, what is deleted.

use crate::home::{Home, same};
use std::fs::{File, FileTimes};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};

const SAVED: &str = "as it was saved";
const OTHER: &str = "as it is there ";

fn set_time(path: &Path, time: SystemTime) {
    File::options().write(true).open(path).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
}

/// A folder that was restored once and used since: of each file the name says how it differs from the snapshot.
fn used(mode: Option<&str>) -> (Home, Vec<&'static str>, serde_json::Value) {
    let home = Home::new();
    let names = ["same", "newer", "older", "sly", "gone"];
    let saved = SystemTime::now() - Duration::from_secs(1000);
    for name in names {
        set_time(&home.write(&format!("src/{name}"), SAVED), saved);
    }
    home.run(&["backup", "src"]).ok();
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    let day = Duration::from_secs(86400);
    for (name, time) in [("newer", saved + day), ("older", saved - day), ("sly", saved)] {
        set_time(&home.write(&format!("out/{name}"), OTHER), time);
    }
    std::fs::remove_file(home.path("out/gone")).unwrap();
    // What is replaced is another file from then on.
    let state = |name: &str| home.path("out").join(name).metadata().map(|m| m.ino()).ok();
    let before = names.map(state);
    let folder = home.saved_folder();
    let mut args = vec!["--json", "restore", &folder, "-t", "out"];
    args.extend(mode.iter().flat_map(|m| ["--overwrite", m]));
    let summary = home.run(&args).ok().the("summary");
    let mut written = Vec::new();
    for (name, before) in names.into_iter().zip(before) {
        let text = std::fs::read_to_string(home.path("out").join(name)).unwrap();
        if state(name) != before {
            assert_eq!(text, SAVED, "{name}");
            written.push(name);
        }
    }
    assert_eq!(summary["bytes_written"], written.len() * SAVED.len(), "{summary}");
    (home, written, summary)
}

#[test]
fn each_way_to_overwrite() {
    for (mode, expected) in [
        (None, &["newer", "older", "sly", "gone"][..]),
        (Some("always"), &["newer", "older", "sly", "gone"]),
        (Some("if-changed"), &["newer", "older", "gone"]),
        (Some("if-newer"), &["older", "gone"]),
        (Some("never"), &["gone"]),
    ] {
        let (_, written, summary) = used(mode);
        assert_eq!(written, expected, "{mode:?}: {summary}");
        assert_eq!(summary["entries_restored"], expected.len(), "{mode:?}: {summary}");
    }
}

#[test]
fn a_second_restore_writes_nothing() {
    let home = Home::new();
    home.sources();
    home.write("src/big", drumlin_testkit::Rng::new(1).bytes(20 << 20));
    home.run(&["backup", "src"]).ok();
    let restore = ["--json", "restore", &home.saved_folder(), "-t", "out"];
    assert!(home.run(&restore).ok().the("summary")["bytes_written"].as_u64() > Some(20 << 20));
    let summary = home.run(&restore).ok().the("summary");
    assert_eq!((&summary["bytes_written"], &summary["entries_restored"]), (&0.into(), &0.into()), "{summary}");
    assert!(same(&home.path("src"), &home.path("out")));
}

#[test]
fn what_is_deleted_is_named_first_in_a_dry_run() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    let folder = home.saved_folder();
    home.run(&["restore", &folder, "-t", "out"]).ok();
    home.write("out/extra", "x");
    home.write("out/more/below", "x");
    home.write("outside", "x");
    std::os::unix::fs::symlink("../outside", home.path("out/deep/link")).unwrap();
    home.write("out/a.txt", "changed");
    let names = |args: &[&str]| {
        let ran = home.run(&[&["--json", "-v", "restore", &folder, "-t", "out"], args].concat()).ok();
        let of = |action: &str| {
            let all = ran.of_type("verbose_status").into_iter().filter(|o| o["action"] == action);
            let name = |o: serde_json::Value| Path::new(o["path"].as_str().unwrap()).file_name().unwrap().to_owned();
            let mut names: Vec<_> = all.map(name).collect();
            names.sort();
            names
        };
        (of("deleted"), of("restored"), ran.the("summary"))
    };
    // Without --delete all of it stays.
    assert_eq!(names(&["-n"]).0, [""; 0]);
    let (deleted, restored, summary) = names(&["-n", "--delete"]);
    assert_eq!(
        (&deleted[..], &restored[..]),
        (&["extra".into(), "link".into(), "more".into()][..], &["a.txt".into()][..])
    );
    assert_eq!((&summary["dry_run"], &summary["entries_deleted"]), (&true.into(), &3.into()), "{summary}");
    assert_eq!(summary["bytes_written"], 6, "what would be written: {summary}");
    assert!(home.path("out/more/below").exists() && home.path("out/extra").exists());
    assert_eq!(std::fs::read(home.path("out/a.txt")).unwrap(), b"changed");
    let text = home.run(&["restore", &folder, "-t", "out", "-n", "--delete"]).ok().stdout;
    assert!(text.contains("1 would be restored") && text.contains("3 would be deleted"), "{text}");
    // What is done is what was told.
    let (really, written, summary) = names(&["--delete"]);
    assert_eq!((really, written, &summary["dry_run"]), (deleted, restored, &false.into()));
    assert!(same(&home.path("src"), &home.path("out")));
    assert_eq!(std::fs::read(home.path("outside")).unwrap(), b"x", "a link is deleted, not what it leads to");
}

/// A folder in whose place the snapshot has a file goes with all that is in it: that is said, and where it is.
#[test]
fn a_folder_that_gives_way_to_a_file_is_deleted_and_named() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    let folder = home.saved_folder();
    home.run(&["restore", &folder, "-t", "out"]).ok();
    std::fs::remove_file(home.path("out/a.txt")).unwrap();
    home.write("out/a.txt/sub/valuable", "x");
    home.write("out/extra", "x");
    for dry in [true, false] {
        let args = [&["-v", "restore", &folder, "-t", "out", "--delete"][..], if dry { &["-n"] } else { &[] }].concat();
        let told = home.run(&args).ok().stdout;
        for name in ["a.txt", "extra"] {
            assert!(told.contains(&format!("deleted    out/{name}\n")), "{name}: {told}");
        }
        assert!(told.contains("2 would be deleted") == dry && told.contains("2 deleted") != dry, "{told}");
        assert_eq!(home.path("out/a.txt/sub/valuable").exists(), dry);
    }
    assert!(same(&home.path("src"), &home.path("out")));
}

#[test]
fn verify_finds_what_is_not_right() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    let folder = home.saved_folder();
    let summary = home.run(&["--json", "restore", &folder, "-t", "out", "--verify"]).ok().the("summary");
    assert_eq!(summary["files_verified"], 4, "{summary}");
    // What is there stays, and is not what was saved.
    home.write("out/deep/b.txt", "beta\n".repeat(999) + "BETA\n");
    let ran = home.run(&["--json", "restore", &folder, "-t", "out", "--overwrite", "never", "--verify"]).expect(3);
    let error = ran.the("error");
    assert_eq!(error["path"], home.text("src/deep/b.txt"), "{error}");
    assert_eq!(ran.the("summary")["files_verified"], 3, "{}", ran.stdout);
    home.run(&["restore", &folder, "-t", "out", "--overwrite", "never"]).ok();
    let text = home.run(&["restore", &folder, "-t", "out", "--verify"]).ok().stdout;
    assert!(text.contains("verified: 4 files read back and right"), "{text}");
}

#[test]
fn nothing_is_written_through_links_that_lead_elsewhere() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    let folder = home.saved_folder();
    for args in [&[][..], &["--overwrite", "never"], &["--delete"], &["-n"]] {
        home.write("elsewhere/b.txt", "precious");
        std::fs::create_dir(home.path("out")).unwrap();
        std::os::unix::fs::symlink("../elsewhere", home.path("out/deep")).unwrap();
        std::os::unix::fs::symlink("../elsewhere/new", home.path("out/a.txt")).unwrap();
        let ran = home.run(&[&["restore", &folder, "-t", "out"], args].concat());
        assert!(matches!(ran.code, Some(0 | 3)), "{args:?}: {}", ran.stderr);
        let there: Vec<_> =
            std::fs::read_dir(home.path("elsewhere")).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(there, ["b.txt"], "{args:?}");
        assert_eq!(std::fs::read(home.path("elsewhere/b.txt")).unwrap(), b"precious", "{args:?}");
        let link = home.path("out/deep").symlink_metadata().unwrap().is_symlink();
        // Where links may be replaced the whole is restored, beside what they led to, and a dry run says so; else the
        // refusal is told.
        let (stays, refused) = (!args.is_empty() && args != ["--delete"], args == ["--overwrite", "never"]);
        assert_eq!((link, ran.code == Some(3)), (stays, refused), "{args:?}: {}", ran.stderr);
        assert!(link || same(&home.path("src"), &home.path("out")), "{args:?}");
        std::fs::remove_dir_all(home.path("out")).unwrap();
    }
}
