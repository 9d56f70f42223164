//! Signals.

use crate::home::{Home, signal};
use rustix::process::Signal;
use std::io::{BufRead, BufReader, Read};
use std::process::Child;
use std::time::{Duration, Instant};

/// Read lines of its output until one contains `text`; the rest of the output goes on to be read by a thread.
pub fn wait_for(child: &mut Child, text: &str) {
    wait_for_lines(child, text, 1);
}

fn wait_for_lines(child: &mut Child, text: &str, lines: usize) {
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let mut seen = 0;
    while seen < lines {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "it ended too early");
        seen += usize::from(line.contains(text));
    }
    std::thread::spawn(move || {
        let _ = reader.read_to_end(&mut Vec::new());
    });
}

/// Sixteen letters at random: there is something to gain, which a high level looks for long enough to interrupt it.
fn slow_text(bytes: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut text = Vec::with_capacity(bytes);
    while text.len() < bytes {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        text.extend((state >> 32).to_le_bytes()[..4].iter().map(|b| b'a' + b % 16));
    }
    text
}

#[test]
fn the_first_leaves_a_partial_snapshot_that_the_next_run_goes_on_from() {
    for number in [Signal::INT, Signal::TERM] {
        let home = Home::new();
        for n in 0..300 {
            home.write(&format!("src/a/{n:03}"), format!("file {n}"));
        }
        home.write("src/z/big", slow_text(128 << 20));
        home.run(&["init"]).ok();
        let mut child = home.start(&["-v", "backup", "--workers", "2", "--compression", "12", "src"]);
        wait_for_lines(&mut child, "src/a/", 200);
        let start = Instant::now();
        signal(&child, number);
        let output = child.wait_with_output().unwrap();
        let took = start.elapsed();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(130), "{stderr}");
        assert!(stderr.contains("interrupted"), "{stderr}");
        // A second on an idle machine; tests share theirs.
        assert!(took < Duration::from_secs(5), "{took:?}");

        let snapshots = home.run(&["--json", "snapshots"]).ok().objects();
        assert_eq!((snapshots.len(), &snapshots[0]["partial"]), (1, &true.into()));
        let id = snapshots[0]["id"].as_str().unwrap();
        assert!(home.run(&["ls", id]).ok().stdout.contains("/src/a/100"));
        home.run(&["ls", "latest"]).expect(1);

        let summary = home.run(&["--json", "backup", "src"]).expect(0).the("summary");
        assert_eq!(summary["partial"], false);
        assert!(summary["entries_unmodified"].as_u64() >= Some(200), "{summary}");
        home.run(&["restore", &format!("latest:{}", home.text("src")), "-t", "out"]).ok();
        assert!(crate::home::same(&home.path("src"), &home.path("out")));
    }
}

#[test]
fn a_stream_that_is_interrupted_leaves_nothing() {
    let home = Home::new();
    home.run(&["init"]).ok();
    let mut child = home.start(&["--json", "backup", "--stdin", "x"]);
    // Held open: its end would be that of the stream.
    let _stdin = child.stdin.take();
    wait_for(&mut child, "\"status\"");
    let start = Instant::now();
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(start.elapsed() < Duration::from_secs(3));
    assert_eq!(home.run(&["--json", "snapshots"]).ok().stdout, "");
}

#[test]
fn the_second_aborts_at_once() {
    let home = Home::new();
    home.run(&["init"]).ok();
    // The program has no ear for SIGTERM, so the first waits for it.
    let script = "trap '' TERM; echo x; sleep 4 & wait; wait";
    let mut child = home.start(&["--json", "backup", "--command", "x", "--", "sh", "-c", script]);
    wait_for(&mut child, "\"status\"");
    signal(&child, Signal::INT);
    std::thread::sleep(Duration::from_millis(400));
    assert!(child.try_wait().unwrap().is_none(), "it should be waiting for the program");
    let start = Instant::now();
    signal(&child, Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
}

#[test]
fn usr1_tells_the_state() {
    let home = Home::new();
    home.run(&["init"]).ok();
    // With --json there is a status each second, so readiness is seen there; with -q nothing is told unasked.
    let mut child = home.start(&["--json", "backup", "--stdin", "x"]);
    let mut reader = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let start = Instant::now();
    signal(&child, Signal::USR1);
    reader.read_line(&mut line).unwrap();
    assert!(start.elapsed() < Duration::from_millis(700), "{:?}: it came by itself", start.elapsed());
    for status in line.lines() {
        let status: serde_json::Value = serde_json::from_str(status).unwrap();
        assert_eq!(status["message_type"], "status");
        assert!(status.get("percent_done").is_none(), "nobody knows how long a stream is");
    }
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let mut child = home.start(&["-q", "backup", "--stdin", "x"]);
    std::thread::sleep(Duration::from_millis(500));
    signal(&child, Signal::USR1);
    let mut stderr = BufReader::new(child.stderr.take().unwrap());
    line.clear();
    stderr.read_line(&mut line).unwrap();
    assert!(line.contains("of unknown") && line.contains("ETA unknown"), "{line}");
    drop(child.stdin.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
