//! On a terminal: questions, colours, progress, Ctrl-C. And not on one: nothing of them.

use crate::home::Home;
use drumlin_testkit::Rng;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;

/// What begins a status line: back to its start, and away with the one before.
const DRAW: &str = "\r\u{1b}[K";

#[test]
fn a_passphrase_is_asked_for_and_not_shown() {
    let home = Home::new();
    let mut terminal = home.on_terminal(80, &[], &["-r", "repo", "init"]);
    for (question, answer) in [("new passphrase: ", "correct\r"), ("the same again: ", "horse\r")] {
        terminal.wait_for(question, 1);
        terminal.press(answer);
    }
    terminal.wait_for("the two differ", 1);
    for question in ["new passphrase: ", "the same again: "] {
        terminal.wait_for(question, 2);
        terminal.press("battery staple\r");
    }
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    assert!(screen.contains("don't lose it"), "{screen}");
    assert!(!screen.contains("staple") && !screen.contains("horse"), "{screen}");
    home.write("pw", "battery staple");
    home.run(&["-r", "repo", "-p", "pw", "snapshots"]).ok();

    let mut terminal = home.on_terminal(80, &[], &["-r", "repo", "snapshots"]);
    terminal.wait_for("passphrase for the repository in ", 1);
    terminal.press("wrong\r");
    terminal.wait_for("wrong passphrase; try again", 1);
    terminal.wait_for("passphrase for the repository in ", 2);
    terminal.press("battery staple\r");
    let (code, screen) = terminal.end();
    assert_eq!((code, screen.contains("no snapshots")), (Some(0), true), "{screen}");

    let mut terminal = home.on_terminal(80, &[], &["-r", "repo", "snapshots"]);
    for attempt in 1..=3 {
        terminal.wait_for("passphrase for the repository in ", attempt);
        terminal.press("wrong\r");
    }
    assert_eq!(terminal.end().0, Some(12));

    // Keys that edit a line do; and who ends the input answers nothing.
    for (pressed, status) in [("wrong\u{15}battery stables\u{7f}\u{7f}\u{7f}\u{7f}ple\r", 0), ("\u{4}", 1)] {
        let mut terminal = home.on_terminal(80, &[], &["-r", "repo", "snapshots"]);
        terminal.wait_for("passphrase for the repository in ", 1);
        terminal.press(pressed);
        let (code, screen) = terminal.end();
        assert_eq!(code, Some(status), "{screen}");
    }
    // Where there is nothing to open nothing is asked.
    let (code, screen) = home.on_terminal(80, &[], &["-r", "nowhere", "snapshots"]).end();
    assert_eq!((code, screen.contains("passphrase")), (Some(10), false), "{screen}");
}

#[test]
fn nothing_is_shown_from_before_the_question_on() {
    let home = Home::new();
    let mut terminal = home.on_terminal(80, &[], &["-r", "repo", "init"]);
    // Ctrl-S: the question waits until Ctrl-Q, and with it whatever is done after it.
    terminal.press("\u{13}");
    terminal.wait_until(|_| !terminal.echoes());
    terminal.press("\u{11}");
    for question in ["new passphrase: ", "the same again: "] {
        terminal.wait_for(question, 1);
        assert!(!terminal.echoes(), "{question}");
        terminal.press("battery staple\r");
    }
    let (code, screen) = terminal.end();
    assert_eq!((code, screen.contains("staple")), (Some(0), false), "{screen}");
}

#[test]
fn whoever_gives_up_at_the_question_gets_the_terminal_back() {
    let home = Home::new();
    home.write("pw", "secret");
    home.run(&["-r", "repo", "-p", "pw", "init"]).ok();
    for args in [&["-r", "repo", "snapshots"][..], &["-r", "repo", "backup", "pw"], &["-r", "new", "init"]] {
        let mut terminal = home.on_terminal(80, &[], args);
        terminal.wait_for("passphrase", 1);
        terminal.wait_until(|_| !terminal.echoes());
        terminal.press("sec\u{3}");
        let status = terminal.wait();
        let by_signal = status.signal() == Some(rustix::process::Signal::INT.as_raw());
        assert!(by_signal || status.code() == Some(130), "{args:?}: {status} {}", terminal.screen());
        assert!(terminal.echoes(), "{args:?}");
    }
    let mut terminal = home.on_terminal(80, &[], &["-r", "repo", "snapshots"]);
    terminal.wait_until(|_| !terminal.echoes());
    terminal.signal(rustix::process::Signal::TERM);
    assert_eq!(terminal.wait().signal(), Some(rustix::process::Signal::TERM.as_raw()));
    assert!(terminal.echoes());
    // Once it is answered the first Ctrl-C is that of the operation.
    let mut terminal = home.on_terminal(80, &[], &["-r", "repo", "backup", "--command", "x", "--", "sleep", "30"]);
    terminal.wait_for("passphrase", 1);
    terminal.press("secret\r");
    terminal.wait_for(DRAW, 3);
    assert!(terminal.echoes());
    terminal.press("\u{3}");
    let (code, screen) = terminal.end();
    assert_eq!((code, screen.contains("no snapshot was made")), (Some(130), true), "{screen}");
}

#[test]
fn colours_only_where_they_are_wanted() {
    let home = Home::new();
    let red = "\u{1b}[31merror:\u{1b}[0m ";
    let screen = |variables: &[(&str, &str)], args: &[&str]| home.on_terminal(80, variables, args).end().1;
    assert!(screen(&[], &["snapshots"]).contains(red));
    assert!(screen(&[("NO_COLOR", "")], &["snapshots"]).contains(red), "empty, it is as good as unset");
    assert!(screen(&[], &["bakup"]).contains('\u{1b}'));
    for (variable, args) in [
        (("NO_COLOR", "1"), "snapshots"),
        (("NO_COLOR", "1"), "bakup"),
        (("TERM", "dumb"), "snapshots"),
        (("TERM", "dumb"), "bakup"),
    ] {
        let screen = screen(&[variable], &[args]);
        assert!(screen.contains("error: ") && !screen.contains('\u{1b}'), "{variable:?}: {screen:?}");
    }
    // Neither escapes nor a status line where there is no terminal, whatever the variables say.
    home.write("big", Rng::new(1).bytes(64 << 20));
    for args in [&["snapshots"][..], &["bakup"], &["backup", "big", "missing"]] {
        let output = home.command(args).env("TERM", "xterm").env("CLICOLOR_FORCE", "").output().unwrap();
        let all = [output.stdout, output.stderr].concat();
        assert!(!all.is_empty() && !all.contains(&0x1b) && !all.contains(&b'\r'), "{args:?}");
    }
}

#[test]
fn progress_is_drawn_and_taken_away() {
    let home = Home::new();
    home.run(&["init"]).ok();
    // A stream that waits for its end; there is nothing to guess it by.
    rustix::fs::mknodat(rustix::fs::CWD, home.path("fifo"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    let terminal = home.on_terminal(100, &[], &["backup", "--command", "x", "--", "cat", "fifo"]);
    let mut pipe = std::fs::File::options().write(true).open(home.path("fifo")).unwrap();
    pipe.write_all(&Rng::new(2).bytes(3 << 20)).unwrap();
    let screen = terminal.wait_for("MiB of unknown", 2);
    let line = screen.split(DRAW).find(|l| l.contains("MiB of unknown")).unwrap();
    assert!(
        line.starts_with("[0:0") && line.contains("] 0 files  ") && line.ends_with("iB/s  ETA unknown"),
        "{line:?}"
    );
    drop(pipe);
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(0), "{screen}");
    let end = screen.rsplit(DRAW).next().unwrap();
    assert!(end.contains("saved snapshot ") && !end.contains("ETA"), "the last of them is taken away: {screen:?}");
    for args in [&["-q"][..], &["--json"]] {
        let args = [args, &["backup", "--force", "fifo", "home"]].concat();
        let (code, screen) = home.on_terminal(100, &[], &args).end();
        assert!(code == Some(0) && !screen.contains('\u{1b}') && !screen.contains("ETA"), "{screen:?}");
    }
}

#[test]
fn a_status_line_is_never_wider_than_the_terminal() {
    let home = Home::new();
    home.run(&["init"]).ok();
    for columns in [30, 50, 0] {
        let mut terminal = home.on_terminal(columns, &[], &["backup", "--stdin", "x"]);
        let screen = terminal.wait_for(DRAW, 3);
        let width = if columns == 0 { 80 } else { usize::from(columns) };
        let widest = screen.split(DRAW).map(|l| l.chars().count()).max();
        assert!(widest > Some(20) && widest < Some(width), "{screen:?}");
        // Ctrl-D is the end of what is typed.
        terminal.press("x\n\u{4}");
        assert_eq!(terminal.end().0, Some(0));
    }
}

#[test]
fn what_the_run_before_saved_is_the_first_guess() {
    let home = Home::new();
    let size = 24 << 20;
    home.write("src/big", Rng::new(3).text(size));
    home.run(&["backup", "src"]).ok();
    let first = home.run(&["--json", "snapshots"]).ok().the("snapshot")["id"].as_str().unwrap().to_owned();
    home.write("src/big", Rng::new(4).text(size));
    // Slow, and without a partial snapshot for the second of them to go on from.
    let slow = ["backup", "src", "--compression", "19", "--workers", "1", "--parent", &first];
    let mut terminal = home.on_terminal(120, &[], &slow);
    let drawn = |line: &str| line.contains(" of 24.0 MiB  ") && line.contains("%  ") && line.contains("/s  ETA ");
    terminal.wait_until(|screen| screen.split(DRAW).any(drawn));
    // Ctrl-C; this is what a partial snapshot is for.
    terminal.press("\u{3}");
    let (code, screen) = terminal.end();
    assert_eq!(code, Some(130), "{screen}");
    assert!(screen.contains("again to abort at once") && screen.contains("interrupted"), "{screen}");

    let mut child = home.start(&[&["--json"], &slow[..]].concat());
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let status = loop {
        let object: serde_json::Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        if object["bytes_done"].as_u64() > Some(0) {
            break object;
        }
        assert_eq!(object["message_type"], "status");
    };
    assert_eq!((&status["total_bytes"], &status["total_entries"].is_u64()), (&size.into(), &true), "{status}");
    assert!(status["seconds_remaining"].is_u64() && status["bytes_per_second"].as_u64() > Some(0), "{status}");
    let part = status["percent_done"].as_f64().unwrap();
    assert!(part > 0.0 && part < 1.0, "{status}");
    crate::home::signal(&child, rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn archives_are_kept_from_terminals() {
    let home = Home::new();
    home.sources();
    home.run(&["backup", "src"]).ok();
    let (code, screen) = home.on_terminal(80, &[], &["dump", "latest", "/"]).end();
    assert_eq!((code, screen.contains("--target")), (Some(2), true), "{screen}");
    let (code, screen) = home.on_terminal(80, &[], &["dump", "latest", &home.text("src/a.txt")]).end();
    assert_eq!((code, &screen[..]), (Some(0), "alpha\r\n"), "a file is for whoever asked for it");
}
