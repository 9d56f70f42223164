//! When a line counts as dead.

use tokio::sync::mpsc::unbounded_channel;

use super::*;

const PATIENCE: Duration = Duration::from_millis(20);

/// Whether a connection to a server that offers such things is given up while `request` is all that it owes.
fn is_given_up(line: Arc<Line>, extensions: &[&[u8]], request: &Request) -> bool {
    let (out, _outgoing) = unbounded_channel();
    let peer = Peer::new(out, line);
    let extensions = extensions.iter().map(|extension| extension.to_vec()).collect();
    peer.take(Packet::Version { version: 3, extensions }).unwrap();
    peer.greet(Duration::from_secs(1)).unwrap();
    let (to, _answers) = unbounded();
    peer.ask(request, &to, 0);
    std::thread::sleep(3 * PATIENCE);
    peer.look();
    peer.check().is_err()
}

#[test]
fn the_end_of_a_file_may_take_as_long_as_its_upload() {
    let (close, line) = (Request::Close { handle: b"of a file" }, || Line::to_program(PATIENCE));
    assert!(!is_given_up(line(), &[], &close));
    assert!(is_given_up(line(), &[b"fsync@openssh.com"], &close), "all was sent on by the sync before");
    assert!(is_given_up(line(), &[], &Request::Limits));
    assert!(is_given_up(Line::new(PATIENCE), &[], &close), "a server by ssh is asked whether it lives");
}

/// Of what was only read nothing is uploaded.
#[test]
fn what_nobody_waits_for_keeps_no_dead_line() {
    let (out, _outgoing) = unbounded_channel();
    let peer = Peer::new(out, Line::to_program(PATIENCE));
    let (to, _answers) = unbounded();
    peer.tell(&Request::Close { handle: b"of a file" });
    peer.ask(&Request::Limits, &to, 0);
    std::thread::sleep(3 * PATIENCE);
    peer.look();
    assert!(peer.check().is_err());
}

/// It does one thing after the other: what was asked for later has its answer when that is done.
#[test]
fn what_is_asked_for_meanwhile_waits_as_long() {
    let (out, _outgoing) = unbounded_channel();
    let peer = Peer::new(out, Line::to_program(PATIENCE));
    let (to, answers) = unbounded();
    peer.ask(&Request::Close { handle: b"of a file" }, &to, 0);
    peer.ask(&Request::Limits, &to, 1);
    std::thread::sleep(3 * PATIENCE);
    peer.look();
    assert!(peer.check().is_ok());
    // Once the upload has ended the others have as long as ever.
    peer.line.hear();
    let done = Reply::Status { code: status::OK, words: String::new() };
    peer.take(Packet::Reply { id: 1, reply: done }).unwrap();
    std::thread::sleep(3 * PATIENCE);
    peer.look();
    assert!(peer.check().is_err());
    assert!(answers.iter().take(2).map(|answer| answer.reply.is_ok()).eq([true, false]));
}
