//! SFTP over a program's standard input and output: `stdio:PROGRAM`, and `ssh -s sftp` where the user wants his own
//! ssh.
//!
//! The program is run by the shell. What it writes to its standard error is kept, and told when the connection breaks.
//! It doesn't hear the terminal's Ctrl-C: the run that it serves has to end in order first.

use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use super::peer::{Line, Outgoing, Peer};
use super::wire::{Frames, INIT};
use crate::limit::Limits;
use crate::lock::lock;

/// So much of what the program complained of is told.
const COMPLAINT_BYTES: usize = 1 << 10;
/// A program whose input is closed gets so long to end.
const GRACE: Duration = Duration::from_secs(2);
/// What a program that has ended complained of is there by then.
const LAST_WORDS: Duration = Duration::from_millis(100);
const BUFFER_BYTES: usize = 256 << 10;

/// Start `command`.
pub(super) fn start(command: &str, limits: &Limits, patience: Duration) -> io::Result<Arc<Peer>> {
    let mut shell = shell(command);
    let mut child = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let (Some(mut input), Some(mut output), Some(complaints)) =
        (child.stdin.take(), child.stdout.take(), child.stderr.take())
    else {
        return Err(io::Error::other("the program has no pipes"));
    };
    let (out, mut outgoing) = mpsc::unbounded_channel::<Outgoing>();
    let line = Line::to_program(patience);
    let child = Arc::new(Mutex::new(child));
    let of_line = child.clone();
    line.ends_by(move || {
        let _ = lock(&of_line).kill();
    });
    let peer = Peer::new(out, line.clone());
    let (upload, download) = (limits.upload.clone(), limits.download.clone());
    thread::Builder::new().name("sftp-out".into()).spawn(move || {
        let mut sent = input.write_all(&INIT).and_then(|()| input.flush());
        while let (Ok(()), Some(Outgoing { head, body })) = (&sent, outgoing.blocking_recv()) {
            thread::sleep(upload.delay(head.len() + body.len()));
            sent = input.write_all(&head).and_then(|()| input.write_all(&body));
        }
    })?;
    let (complain, complained) = crossbeam_channel::bounded(1);
    thread::Builder::new().name("sftp-err".into()).spawn(move || {
        let _ = complain.send(tail(complaints));
    })?;
    let to = Arc::downgrade(&peer);
    thread::Builder::new().name("sftp-in".into()).spawn(move || {
        let (mut frames, mut buffer) = (Frames::default(), vec![0; BUFFER_BYTES]);
        let ended = loop {
            let came = match output.read(&mut buffer) {
                Ok(0) => break None,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                came => came,
            };
            line.hear();
            let taken = came.and_then(|came| {
                thread::sleep(download.delay(came));
                frames.feed(&buffer[..came], |packet| to.upgrade().map_or(Ok(()), |peer| peer.take(packet)))
            });
            if let Err(error) = taken {
                break Some(error.to_string());
            }
        };
        let status = end(&child);
        if let Some(peer) = to.upgrade() {
            // What it has started may live on and keep this open.
            let complaint = complained.recv_timeout(LAST_WORDS).unwrap_or_default();
            peer.die(&words(ended, &status, &complaint));
        }
    })?;
    Ok(peer)
}

/// A command for the shell, deaf to the terminal's Ctrl-C.
pub(super) fn shell(command: &str) -> Command {
    let mut shell = Command::new("/bin/sh");
    shell.arg("-c").arg(command);
    // SAFETY: between fork and exec, `signal` alone is called, which is safe to be called there.
    unsafe {
        shell.pre_exec(|| {
            libc::signal(libc::SIGINT, libc::SIG_IGN);
            Ok(())
        });
    }
    shell
}

/// The last that a program writes, as text of one line.
fn tail(mut from: ChildStderr) -> String {
    let (mut kept, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(came @ 1..) = from.read(&mut buffer) {
        kept.extend_from_slice(&buffer[..came]);
        kept.drain(..kept.len().saturating_sub(COMPLAINT_BYTES));
    }
    let text = String::from_utf8_lossy(&kept);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(3)..].join("; ")
}

/// Wait for its end, and bring it about.
fn end(child: &Mutex<Child>) -> String {
    let start = Instant::now();
    loop {
        let mut child = lock(child);
        match child.try_wait() {
            Ok(Some(status)) => {
                return match (status.code(), status.signal()) {
                    (Some(code), _) => format!("exit status {code}"),
                    (_, Some(signal)) => format!("signal {signal}"),
                    _ => "it ended".into(),
                };
            }
            Ok(None) if start.elapsed() < GRACE => {}
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return "it closed its output".into();
            }
        }
        drop(child);
        thread::sleep(Duration::from_millis(5));
    }
}

fn words(cause: Option<String>, status: &str, complaint: &str) -> String {
    match (cause, complaint) {
        (Some(cause), "") => cause,
        (Some(cause), complaint) => format!("{cause}; it said: {complaint}"),
        (None, "") => format!("the program has ended ({status})"),
        (None, complaint) => format!("the program has ended ({status}): {complaint}"),
    }
}
