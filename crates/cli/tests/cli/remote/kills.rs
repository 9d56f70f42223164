//! The program killed over SFTP.

use super::Away;
use crate::aftermath;
use crate::home::{Home, same};
use drumlin_testkit::{Rclone, Rng, Sshd};
use std::fs;
use std::path::PathBuf;

#[test]
fn killed_while_bytes_pass() {
    let Some(away) = Away::new() else { return };
    aftermath::kills_while_bytes_pass(&away.home, &away.relay, 6000, |args| away.command("plain", args));
}

/// Half again as long as the other one: by `tests/remote sshd`.
#[test]
#[ignore = "takes a minute and a half"]
fn killed_while_bytes_pass_to_proftpd() {
    let Some(proftpd) = Sshd::start_proftpd() else { return };
    let away = Away::over(proftpd);
    aftermath::kills_while_bytes_pass(&away.home, &away.relay, 6000, |args| away.command("jail", args));
}

/// rclone goes on for a moment with what it has heard: by `tests/remote rclone`.
#[test]
#[ignore = "needs rclone"]
fn killed_over_rclone() {
    let rclone = Rclone::start();
    for remote in rclone.remotes() {
        let home = Home::new();
        let repo = format!("stdio:{}", rclone.serves(remote, "killed"));
        aftermath::kills_at_any_moment(&home, true, |args| home.command(&[&["-r", &repo, "-k", "k"], args].concat()));
    }
}

/// Where nothing can be renamed an object has its own name while it is written, so that a kill leaves half of one:
/// backups and restores mind as little as the guide says, and whoever may remove files has it gone.
#[test]
fn killed_where_nothing_can_be_renamed_or_removed() {
    let Some(away) = Away::new() else { return };
    let mut rng = Rng::new(7);
    away.home.write("kept/a", rng.bytes(200_000));
    away.run("append", &["init"]).ok();
    let first = away.run("append", &["--json", "backup", "kept"]).ok().the("summary")["snapshot_id"].clone();
    let kept = format!("{}:{}", first.as_str().unwrap(), away.home.text("kept"));
    let (mut kills, mut halves) = (0, 0);
    let folder = away.folder("append");
    let packs = || crate::kills::files(&folder.join("data")).len();
    for number in 0..72 {
        // Where a kill falls is the machine's affair: as many as it takes.
        if number >= 12 && kills >= 4 && halves >= 1 {
            break;
        }
        away.home.write("src/b", rng.bytes(100_000));
        let after = 6000 + number % 12 * 10_000 + rng.below(10_000) as u64;
        let before = packs();
        kills += u32::from(aftermath::killed(&away.relay, away.command("append", &["backup", "src"]), after));
        // What the file's pack has of its 100,000 bytes.
        let torn = |path: &PathBuf| fs::metadata(path).unwrap().len() < 100_000;
        halves += u32::from(packs() > before && crate::kills::files(&folder.join("data")).iter().any(torn));
        away.run("append", &["backup", "src"]).expect(0);
        // Of a snapshot that is torn nobody can say that it isn't what was asked for.
        let ran = away.run("append", &["restore", &kept, "-t", "out"]);
        assert!(matches!(ran.code, Some(0 | 3)), "{}", ran.stderr);
        assert!(same(&away.home.path("kept"), &away.home.path("out")), "killed after {after} bytes");
        fs::remove_dir_all(away.home.path("out")).unwrap();
    }
    assert!(kills >= 4 && halves >= 1, "{kills} kills, {halves} of them within a pack");
    let owner = |args: &[&str]| away.home.run(&[&["-r", folder.to_str().unwrap(), "-k", "k"], args].concat());
    // A snapshot that is torn is named, and goes by its name.
    let listed = owner(&["--json", "snapshots"]).objects();
    for entry in fs::read_dir(folder.join("snapshots")).unwrap() {
        let id = entry.unwrap().file_name().into_string().unwrap();
        if !listed.iter().any(|snapshot| snapshot["id"] == *id) {
            owner(&["forget", &id]).ok();
        }
    }
    let sessions: Vec<_> = crate::kills::files(&folder.join("sessions"));
    let ids = sessions.iter().map(|path| path.file_name().unwrap().to_str().unwrap());
    let evict: Vec<&str> = ids.flat_map(|id| ["--evict", id]).collect();
    owner(&[&["repair", "--wait", "0"], &evict[..]].concat()).expect(0);
    owner(&["prune", "--wait", "0", "--max-unused", "0%"]).ok();
    owner(&["check", "--read-data"]).ok();
    owner(&["restore", &away.home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&away.home.path("src"), &away.home.path("out")));
}
