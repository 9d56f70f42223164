//! Signals.

use crate::home::{Home, signal};
use drumlin_testkit::Rng;
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::Child;
use std::time::{Duration, Instant};

/// Read lines of its output until one contains `text`; the rest of the output goes on to be read by a thread.
pub fn wait_for(child: &mut Child, text: &str) {
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "it ended too early");
    }
    std::thread::spawn(move || {
        let _ = reader.read_to_end(&mut Vec::new());
    });
}

/// Sixteen letters at random: there is something to gain, which a high level looks for long enough to interrupt it.
fn slow_text(bytes: usize) -> Vec<u8> {
    Rng::new(1).bytes(bytes).into_iter().map(|b| b'a' + b % 16).collect()
}

/// Start a backup of `src` that takes long, wait until it is well under way, and end it by these signals, one right
/// behind the other. Gives how long that took.
fn end_by(home: &Home, numbers: &[Signal]) -> Duration {
    let slow = ["--json", "-v", "backup", "src", "--compression", "19", "--workers", "2"];
    let mut child = home.start(&slow);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let under_way = |line: &str| {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert_ne!(object["message_type"], "summary", "it should take longer than that");
        object["bytes_done"].as_u64() > Some(0)
    };
    while !under_way(&lines.next().unwrap().unwrap()) {}
    // Whatever else it says is read meanwhile.
    let rest = std::thread::spawn(move || lines.map_while(Result::ok).collect::<Vec<_>>());
    let start = Instant::now();
    for number in numbers {
        signal(&child, *number);
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let took = start.elapsed();
    let last: serde_json::Value = serde_json::from_str(rest.join().unwrap().last().unwrap()).unwrap();
    assert_eq!((&last["partial"], &last["exit_code"]), (&true.into(), &130.into()), "{last}");
    took
}

/// A second where the program has the machine to itself; as much longer as there are others who want it too.
fn a_second() -> Duration {
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let wanted: f64 = load.split(' ').next().and_then(|l| l.parse().ok()).unwrap_or(0.0);
    let there = std::thread::available_parallelism().map_or(1, usize::from) as f64;
    Duration::from_secs_f64((wanted / there).clamp(2.0, 10.0))
}

/// The fastest of three runs tells.
#[track_caller]
fn within_a_second(home: &Home, number: Signal) {
    let took: Vec<_> = (0..3).map(|_| end_by(home, &[number])).take_while(|t| *t >= a_second()).collect();
    assert!(took.len() < 3, "{took:?}, where {:?} would do", a_second());
}

#[test]
fn a_second_is_enough_in_the_midst_of_one_large_file() {
    let home = Home::new();
    home.write("src/a/small", "small");
    home.write("src/big", slow_text(32 << 20));
    within_a_second(&home, Signal::TERM);
    // What of the file was stored by then need not be stored again.
    let partial = home.run(&["--json", "snapshots"]).ok().objects().remove(0);
    assert_eq!(partial["partial"], true);
    let summary = home.run(&["--json", "backup", "src"]).ok().the("summary");
    assert_eq!((&summary["partial"], &summary["bytes_read"]), (&false.into(), &(5 + (32 << 20)).into()));
    assert!(summary["data_added"].as_u64() < Some(32 << 20), "{summary}");
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(crate::home::same(&home.path("src"), &home.path("out")));
}

#[test]
fn a_second_is_enough_among_many_small_files() {
    let home = Home::new();
    let text = slow_text(32 << 20);
    for (n, part) in text.chunks(24 << 10).enumerate() {
        home.write(&format!("src/{:02}/{n:04}", n / 100), part);
    }
    within_a_second(&home, Signal::INT);
    let partial = home.run(&["--json", "snapshots"]).ok().objects().remove(0);
    let id = partial["id"].as_str().unwrap();
    let files = partial["files"].as_u64().unwrap();
    assert!(partial["partial"] == true && files > 0, "{partial}");
    home.run(&["ls", "latest"]).expect(1);
    // It lists and restores, and all that is in it is whole.
    let listed = home.run(&["--json", "ls", id]).ok().objects();
    assert_eq!(listed.iter().filter(|n| n["type"] == "file").count() as u64, files);
    let source = format!("{id}:{}", home.text("src"));
    let ran = home.run(&["-q", "restore", &source, "-t", "out", "--dry-run"]).expect(0);
    assert!(ran.stderr.contains("warning: this snapshot is partial"), "{}", ran.stderr);
    let ran = home.run(&["restore", &source, "-t", "out", "--verify"]).expect(0);
    assert!(ran.stderr.contains("partial") && ran.stdout.contains("read back and right"), "{}", ran.stderr);
    for node in listed.iter().filter(|n| n["type"] == "file") {
        let path = std::path::Path::new(node["path"].as_str().unwrap());
        let below = path.strip_prefix(home.path("src")).unwrap();
        assert_eq!(std::fs::read(path).unwrap(), std::fs::read(home.path("out").join(below)).unwrap());
    }
    // The next run reads none of them again.
    let summary = home.run(&["--json", "backup", "src"]).ok().the("summary");
    assert!(summary["entries_unmodified"].as_u64() >= Some(files), "{summary}");
    assert!(summary["bytes_read"].as_u64() <= Some((32 << 20) - (files - 1) * (24 << 10)), "{summary}");
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(crate::home::same(&home.path("src"), &home.path("out")));
}

#[test]
fn two_at_once_abort_and_harm_nothing() {
    let home = Home::new();
    home.write("src/first", "first");
    home.run(&["backup", "src"]).ok();
    home.write("src/big", slow_text(32 << 20));
    let mut child = home.start(&["--json", "backup", "src", "--compression", "19"]);
    wait_for(&mut child, "\"status\"");
    let start = Instant::now();
    signal(&child, Signal::TERM);
    while child.try_wait().unwrap().is_none() {
        signal(&child, Signal::TERM);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(start.elapsed() < a_second(), "{:?}", start.elapsed());
    home.run(&["ls", "latest"]).ok();
    home.run(&["backup", "src"]).ok();
    home.run(&["restore", &home.saved_folder(), "-t", "out"]).ok();
    assert!(crate::home::same(&home.path("src"), &home.path("out")));
}

/// `timeout` signals its command and then its whole group; a terminal that goes away says so by its shell and by the
/// kernel.
#[test]
fn what_comes_twice_at_once_is_one_signal() {
    let home = Home::new();
    home.write("src/big", slow_text(32 << 20));
    for number in [Signal::TERM, Signal::HUP].into_iter().filter(|number| !is_ignored(*number)) {
        // It tells of a partial snapshot.
        end_by(&home, &[number, number]);
    }
    home.run(&["backup", "src"]).ok();
}

#[test]
fn nohup_is_heeded() {
    let home = Home::new();
    home.run(&["init"]).ok();
    let usual = home.command(&["--json", "backup", "--stdin", "x"]);
    let mut command = std::process::Command::new("nohup");
    command.arg(usual.get_program()).args(usual.get_args());
    command.env_clear().envs(usual.get_envs().filter_map(|(k, v)| Some((k, v?))));
    let pipe = std::process::Stdio::piped;
    let mut child = command.stdin(pipe()).stdout(pipe()).stderr(pipe()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    wait_for(&mut child, "\"status\"");
    signal(&child, Signal::HUP);
    std::thread::sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none());
    stdin.write_all(b"x").unwrap();
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Whether who runs the tests ignores a signal: then so do the programs that they start.
fn is_ignored(signal: Signal) -> bool {
    masked("/proc/self/status", "SigIgn:", signal)
}

/// Whether a signal is in one of a process's masks.
fn masked(status: &str, mask: &str, signal: Signal) -> bool {
    let status = std::fs::read_to_string(status).unwrap();
    let mask = status.lines().find_map(|line| line.strip_prefix(mask)).unwrap();
    u64::from_str_radix(mask.trim(), 16).unwrap() >> (signal.as_raw() - 1) & 1 == 1
}

#[test]
fn a_stream_that_is_interrupted_leaves_nothing() {
    let home = Home::new();
    home.run(&["init"]).ok();
    // Under nohup the program shall not hear the third.
    let numbers = [Signal::INT, Signal::TERM, Signal::HUP].into_iter().filter(|number| !is_ignored(*number));
    let streams: Vec<_> = numbers
        .map(|number| {
            let mut child = home.start(&["--json", "backup", "--stdin", &format!("{number:?}")]);
            // Held open: its end would be that of the stream.
            let stdin = child.stdin.take();
            (number, child, stdin)
        })
        .collect();
    for (number, mut child, _stdin) in streams {
        wait_for(&mut child, "\"status\"");
        let start = Instant::now();
        signal(&child, number);
        assert_eq!(child.wait().unwrap().code(), Some(130));
        assert!(start.elapsed() < a_second(), "{:?}", start.elapsed());
    }
    assert_eq!(home.run(&["--json", "snapshots"]).ok().stdout, "");
}

#[test]
fn the_second_aborts_at_once() {
    let home = Home::new();
    home.run(&["init"]).ok();
    // The program has no ear for SIGTERM, so the first waits for it.
    let script = "trap '' TERM; echo x; sleep 60 & wait; wait";
    let mut child = home.start(&["--json", "backup", "--command", "x", "--", "sh", "-c", script]);
    wait_for(&mut child, "\"status\"");
    signal(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(400));
    assert!(child.try_wait().unwrap().is_none(), "it should be waiting for the program");
    let start = Instant::now();
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
}

#[test]
fn usr1_tells_the_state() {
    let home = Home::new();
    home.run(&["init"]).ok();
    // With --json there is a status each second, so readiness is seen there; with -q nothing is told unasked.
    let mut child = home.start(&["--json", "backup", "--stdin", "x"]);
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    // On a busy machine one of some.
    let took: Vec<_> = (0..5)
        .map(|_| {
            reader.read_line(&mut line).unwrap();
            let start = Instant::now();
            signal(&child, Signal::USR1);
            reader.read_line(&mut line).unwrap();
            start.elapsed()
        })
        .collect();
    assert!(took.iter().any(|took| *took < Duration::from_millis(500)), "{took:?}: they came by themselves");
    for status in line.lines() {
        let status: serde_json::Value = serde_json::from_str(status).unwrap();
        assert_eq!(status["message_type"], "status");
        assert!(status.get("percent_done").is_none(), "nobody knows how long a stream is");
    }
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let mut child = home.start(&["-q", "backup", "--stdin", "x"]);
    // Unheeded it would end the program.
    while !masked(&format!("/proc/{}/status", child.id()), "SigCgt:", Signal::USR1) {
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(&child, Signal::USR1);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    line.clear();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("of unknown") && line.contains("ETA unknown"), "{line}");
    child.stdin.take().unwrap().write_all(b"x").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
