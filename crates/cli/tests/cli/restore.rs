//! `restore`.

use crate::home::{Home, same};
use std::os::unix::fs::MetadataExt;

fn saved() -> (Home, String) {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    let folder = format!("latest:{}", home.text("src"));
    (home, folder)
}

#[test]
fn the_whole_and_parts_of_it() {
    let (home, folder) = saved();
    let summary = home.run(&["--json", "restore", "latest", "-t", "whole", "--verify"]).ok().the("summary");
    let below = format!("whole{}", home.text("src"));
    assert!(same(&home.path("src"), &home.path(&below)));
    assert_eq!((summary["exit_code"].as_i64(), summary["total_files_processed"].as_u64()), (Some(0), Some(4)));
    assert!(summary["files_verified"].as_u64() >= Some(4), "{summary}");
    let mtime = |p: &std::path::Path| (p.metadata().unwrap().mtime(), p.metadata().unwrap().mtime_nsec());
    assert_eq!(mtime(&home.path("src/a.txt")), mtime(&home.path(&below).join("a.txt")));

    home.run(&["restore", &folder, "-t", "sub", "/deep"]).ok();
    assert!(home.path("sub/deep/b.txt").exists() && !home.path("sub/a.txt").exists());
    home.run(&["restore", &folder, "-t", "inc", "-i", "*.txt"]).ok();
    assert!(home.path("inc/deep/b.txt").exists() && !home.path("inc/deep/c.o").exists());
    home.run(&["restore", &folder, "-t", "exc", "-e", "deep"]).ok();
    assert!(home.path("exc/a.txt").exists() && !home.path("exc/deep").exists());
    home.run(&["restore", "latest", "/no/such/path", "-t", "none"]).expect(1);
    home.run(&["restore", "ffff", "-t", "none"]).expect(1);
}

#[test]
fn over_what_is_there() {
    let (home, folder) = saved();
    home.run(&["restore", &folder, "-t", "out"]).ok();
    home.write("out/a.txt", "changed here");
    home.write("out/extra", "x");
    home.run(&["restore", &folder, "-t", "out", "--overwrite", "never"]).ok();
    assert_eq!(std::fs::read(home.path("out/a.txt")).unwrap(), b"changed here");
    let summary = home.run(&["--json", "restore", &folder, "-t", "out", "--delete", "-n"]).ok().the("summary");
    assert_eq!((&summary["dry_run"], &summary["entries_deleted"]), (&true.into(), &1.into()));
    assert!(home.path("out/extra").exists());
    let summary = home.run(&["--json", "restore", &folder, "-t", "out", "--delete"]).ok().the("summary");
    assert_eq!(summary["entries_deleted"], 1);
    assert!(summary["entries_kept"].as_u64() >= Some(3), "{summary}");
    assert!(same(&home.path("src"), &home.path("out")));
}

#[test]
fn what_could_not_be_written_is_3() {
    let (home, folder) = saved();
    // A mount point can't be replaced by a file; for users without that right, a folder that isn't theirs to write.
    let Some(fs) = drumlin_testkit::LoopFs::new(16 << 20) else { return };
    let taken = fs.path().parent().unwrap();
    let name = fs.path().file_name().unwrap().to_str().unwrap();
    home.write(&format!("src/{name}"), "a file where the target has a mount");
    home.run(&["backup", "src"]).ok();
    let ran = home.run(&["--json", "restore", &folder, "-t", taken.to_str().unwrap()]).expect(3);
    assert!(ran.of_type("error").iter().any(|e| e["kind"] == "unwritable"), "{}", ran.stderr);
    assert!(ran.the("summary")["entries_unwritable"].as_u64() >= Some(1));
}

#[test]
fn damage_is_3_and_named() {
    let (home, folder) = saved();
    // Damage the middle of every data pack: some block of it, whichever that is.
    for folder in std::fs::read_dir(home.repository().join("data")).unwrap() {
        for pack in std::fs::read_dir(folder.unwrap().path()).unwrap() {
            use std::os::unix::fs::PermissionsExt;
            let path = pack.unwrap().path();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
            let mut bytes = std::fs::read(&path).unwrap();
            bytes.iter_mut().skip(40).take(400).for_each(|b| *b ^= 0x55);
            std::fs::write(&path, bytes).unwrap();
        }
    }
    let ran = home.run(&["--json", "restore", &folder, "-t", "out"]).expect(3);
    let errors = ran.of_type("error");
    assert!(errors.iter().any(|e| e["kind"] == "damaged" && e["path"].is_string()), "{}", ran.stderr);
    assert!(ran.the("summary")["entries_damaged"].as_u64() >= Some(1));
    assert_ne!(home.run(&["dump", "latest", &home.text("src/deep/b.txt")]).code, Some(0));
}
