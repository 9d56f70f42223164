//! Days on which the machine lets the program down: places that can't be read, two prunes at once, clocks that are set.

use crate::home::{Home, Ran, same, signal};
use crate::interrupt::wait_for;
use drumlin_testkit::Rng;
use rustix::process::Signal;
use std::os::unix::fs::{FileTypeExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// `machine.c`, as the dynamic linker takes it.
fn machine(home: &Home) -> PathBuf {
    let library = home.path("machine.so");
    if !library.exists() {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cli/machine.c");
        let made = Command::new("cc").args(["-shared", "-fPIC", "-O1", "-o"]).arg(&library).arg(source).status();
        assert!(made.unwrap().success());
    }
    library
}

/// Run the program on a machine with this wrong.
fn run(home: &Home, (what, how): (&str, &str), args: &[&str]) -> Ran {
    home.command(args).env("LD_PRELOAD", machine(home)).env(what, how).output().unwrap().into()
}

/// Which statuses commands end with while nothing in a folder of the repository can be read: restore, check, prune,
/// repair, backup, and a forget that is only tried.
const STATUSES: [(&str, [i32; 6]); 6] = [
    ("config", [1, 1, 1, 1, 1, 1]),
    ("keys/", [1, 1, 1, 1, 1, 1]),
    ("data/", [3, 1, 3, 0, 0, 0]),
    ("tree/", [1, 1, 1, 3, 0, 0]),
    ("index/", [1, 1, 1, 1, 1, 0]),
    ("snapshots/", [1, 1, 1, 3, 0, 3]),
];

#[test]
fn a_place_that_cannot_be_read_is_named_with_its_cause() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    let folder = home.saved_folder();
    let commands = [
        &["--no-cache", "restore", &folder, "-t", "out"][..],
        &["--no-cache", "check", "--read-data"],
        &["--no-cache", "prune"],
        &["--no-cache", "repair"],
        &["--no-cache", "backup", "src"],
        &["--no-cache", "forget", "--keep-last", "1", "-n"],
    ];
    for (folder, statuses) in STATUSES {
        let unreadable = ("MACHINE_UNREADABLE", &*format!("drumlin/repository/{folder}"));
        for (args, status) in commands.iter().zip(statuses) {
            let ran = run(&home, unreadable, args);
            assert_eq!(ran.code, Some(status), "{folder} {args:?}: {}{}", ran.stdout, ran.stderr);
            // A check tells of what it finds on standard output.
            let said = ran.stdout + &ran.stderr;
            let names_it = said.contains("Input/output error") && said.contains(folder.trim_end_matches('/'));
            assert!(names_it || status == 0 || said.contains("there is no snapshot"), "{folder} {args:?}: {said}");
        }
    }
    // It passes, and nothing has come of it.
    home.run(&["check", "--read-data"]).ok();
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
}

/// 'latest' is then an older one, and whoever asks for it has to know.
#[test]
fn a_snapshot_that_cannot_be_read_is_told_by_who_passes_it_over() {
    let home = Home::new();
    home.sources();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let saved = home.run(&["--json", "backup", "src"]).expect(0);
        let summary = saved.objects().into_iter().find(|o| o["snapshot_id"].is_string()).unwrap();
        ids.push(summary["snapshot_id"].as_str().unwrap().to_owned());
    }
    home.tamper(&home.repository().join("snapshots").join(&ids[1]), |bytes| bytes[40] ^= 1);
    let ran = home.run(&["restore", "latest", "-t", "out"]).expect(3);
    assert!(ran.stderr.contains("passed over") && ran.stderr.contains(&ids[1]), "{}", ran.stderr);
    home.run(&["repair"]).expect(3);
}

#[test]
fn of_two_prunes_one_is_refused_and_names_the_other() {
    let home = Home::new();
    home.write("src/file", Rng::new(1).bytes(100_000));
    home.run(&["backup", "src"]).ok();
    home.write("src/file", Rng::new(2).bytes(100_000));
    home.run(&["backup", "src"]).ok();
    home.run(&["forget", "--keep-last", "1"]).ok();
    let mut writer = home.start(&["--json", "-v", "backup", "--command", "endless", "--", "cat", "/dev/zero"]);
    wait_for(&mut writer, "status");
    // The first waits for the writer, and then stands still.
    let mut first = home.start(&["prune"]);
    wait_for(&mut first, "waiting: a backup");
    signal(&first, Signal::STOP);
    signal(&writer, Signal::KILL);
    writer.wait().unwrap();
    let second = home.run(&["prune", "--wait", "1s"]).expect(11);
    assert!(
        second.stderr.contains("a prune of host") && second.stderr.contains("nothing was removed"),
        "{}",
        second.stderr
    );
    signal(&first, Signal::CONT);
    Ran::from(first.wait_with_output().unwrap()).expect(0);
    let left = home.run(&["prune"]).ok();
    assert!(left.stdout.contains("nothing to prune"), "{}", left.stdout);
    home.run(&["check", "--read-data"]).ok();
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(same(&home.path("src"), &home.path("out")));
}

#[test]
fn a_clock_that_is_set_back_or_ahead_loses_nothing() {
    const DAY: i64 = 86_400;
    let home = Home::new();
    home.write("src/file", "first");
    home.run(&["backup", "src"]).ok();
    for (round, off) in [-DAY, DAY, -10 * 365 * DAY, 10 * 365 * DAY].into_iter().enumerate() {
        let at = |args: &[&str]| run(&home, ("MACHINE_CLOCK", &off.to_string()), args);
        home.write("src/file", format!("round {round}"));
        at(&["backup", "src"]).expect(0);
        for args in [&["check", "--read-data"][..], &["forget", "--keep-daily", "2"], &["prune"], &["repair"]] {
            at(args).expect(0);
        }
        // By a clock that is right again.
        home.write("src/file", format!("round {round} again"));
        let made = home.run(&["--json", "backup", "src"]).expect(0);
        // After one from the future.
        let cautions = made.stderr.contains("but by earlier backups it is past");
        assert_eq!(cautions, off > 0 || round == 2, "{off}: {}", made.stderr);
        let saved = made.the("summary")["snapshot_id"].as_str().unwrap().to_owned();
        home.run(&["prune"]).ok();
        let (out, spec) = (format!("out{round}"), format!("{saved}:{}", home.text("src")));
        home.run(&["restore", &spec, "-t", &out]).ok();
        assert!(same(&home.path("src"), &home.path(&out)));
    }
    home.run(&["check", "--read-data"]).ok();
}

/// A rescue system in which nobody has mounted /proc.
#[test]
fn without_proc_nothing_is_left_out() {
    let home = Home::new();
    let mount = "mount -t tmpfs none /proc";
    if home.run_among(mount, &["version"]).code != Some(0) {
        eprintln!("skipped: no mount namespace to be had");
        return;
    }
    home.write("src/file", "x");
    symlink("file", home.path("src/link")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, home.path("src/pipe"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    home.run_among(mount, &["backup", "src"]).ok();
    let folder = home.saved_folder();
    home.run_among(mount, &["restore", &folder, "-t", "out"]).ok();
    assert_eq!(std::fs::read_link(home.path("out/link")).unwrap().to_str(), Some("file"));
    assert!(home.path("out/pipe").symlink_metadata().unwrap().file_type().is_fifo());
}

/// What a backup had to tell went nowhere; that it was made must not be in doubt.
#[test]
fn a_full_disk_behind_standard_output_hides_no_snapshot() {
    let home = Home::new();
    home.sources();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    let ran: Ran = home.command(&["backup", "src"]).stdout(full()).output().unwrap().into();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("standard output") && ran.stderr.contains("ended with status 0"), "{}", ran.stderr);
    assert_eq!(home.run(&["--json", "snapshots"]).ok().of_type("snapshot").len(), 1);
    // However long ago it was lost.
    let slow = ["--json", "backup", "--command", "out", "--", "sh", "-c", "sleep 1.5; echo made"];
    let ran: Ran = home.command(&slow).stdout(full()).output().unwrap().into();
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    assert!(ran.stderr.contains("standard output") && ran.stderr.contains("ended with status 0"), "{}", ran.stderr);
}

/// Whoever may add to the storage, without any key, may put something among the index objects; a bad sector may make
/// one of it.
#[test]
fn what_is_no_index_object_keeps_nobody_from_anything() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    let junk = home.repository().join("index/00112233445566778899aabbccddeeff");
    std::fs::write(junk, vec![7; 3000]).unwrap();
    let folder = home.saved_folder();
    let done_without = |ran: Ran| -> Ran {
        let ran = ran.expect(3);
        for part in ["00112233445566778899aabbccddeeff", "passed over", "drumlin repair"] {
            assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
        }
        ran
    };
    for cached in [&[][..], &["--no-cache"]] {
        let run = |args: &[&str]| home.run(&[cached, args].concat());
        let target = format!("out{}", cached.len());
        let ran = done_without(run(&["--json", "restore", &folder, "-t", &target]));
        assert_eq!(ran.the("summary")["exit_code"], 3);
        assert!(same(&home.path("src"), &home.path(&target)));
        assert!(done_without(run(&["ls", "-R", "latest"])).stdout.contains("a.txt"));
        home.write("src/new", target);
        done_without(run(&["backup", "src"]));
    }
    // Two repositories to keep the same, and what takes something away, want to know all.
    home.run(&["check"]).expect(1);
    home.run(&["repair"]).expect(0);
    home.run(&["restore", &folder, "-t", "mended"]).ok();
    assert!(same(&home.path("src"), &home.path("mended")));
    home.run(&["check", "--read-data"]).ok();
}
