//! Our own ssh, by russh: from an address and the user's configuration to a connection that speaks SFTP.
//!
//! russh is asynchronous, and the rest of this program is not: a runtime of one thread lives here, with the tasks that
//! carry packets between russh and the [`Peer`]s, and nothing else of the program runs on it.

mod config;
mod keys;
mod known;
mod login;
mod names;
mod route;
mod server;
mod short;
mod stream;
mod wait;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use russh::ChannelMsg;
use russh::client::Handle;
use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::time::sleep;

use super::Address;
use super::peer::{Line, Outgoing, Peer};
use super::wire::{Frames, INIT};
use crate::around::{Ask, Surroundings, Tell};
use crate::limit::Limits;
use crate::retry::jittered;
use crate::{Action, Error, Kind};
use login::Proof;
use route::Hop;
use server::Client;
use wait::{Wait, within};

/// So much of what the server says besides is kept, to be told when the connection breaks.
const SAID_BYTES_MAX: usize = 1 << 10;
/// Heads of packets are gathered up to this length.
const GATHERED_BYTES: usize = 16 << 10;
/// Where the speed is limited, so much is sent at once.
const PACED_BYTES: usize = 32 << 10;

/// How long to wait before a server that broke off the handshake is tried again: OpenSSH does so, by chance, to some of
/// those who come at once while more than ten others are logging in (`MaxStartups`), as when a fleet's backups begin
/// with the hour.
const TURNED_AWAY: Duration = Duration::from_millis(250);
/// Each pause is twice as long as the one before, and this one the last: three seconds and three quarters in all.
const TURNED_AWAY_MAX: Duration = Duration::from_secs(2);

/// Why there is no connection.
#[derive(Clone, Debug)]
pub(in crate::sftp) struct Failure {
    kind: Kind,
    action: Action,
    cause: String,
    /// A server was there, and let go of the line at once: it may have too much to do.
    is_turned_away: bool,
}

impl Failure {
    fn new(kind: Kind, action: Action, cause: impl Into<String>) -> Self {
        Failure { kind, action, cause: cause.into(), is_turned_away: false }
    }

    fn turned_away(self) -> Self {
        Failure { is_turned_away: true, ..self }
    }

    pub(in crate::sftp) fn at(&self, location: &str) -> Error {
        Error::because(self.kind, self.action, "", location, self.cause.clone())
    }
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::sftp) enum Occasion {
    /// There was none yet: nobody else tries again what fails in passing.
    First,
    /// None is left.
    Again,
    /// There are others, that have much to do.
    More,
}

/// How to log in to a server, and what has worked before.
pub(in crate::sftp) struct Login {
    inner: Arc<Inner>,
    runtime: Runtime,
}

struct Inner {
    /// Hosts on the way, and the server last.
    hops: Vec<Hop>,
    ask: Option<Ask>,
    tell: Option<Tell>,
    /// What each hop has accepted, in this order, so that nobody is asked twice.
    proofs: Mutex<Vec<Vec<Proof>>>,
    /// Answers that a hop accepted were refused later: they count once, and none is sent again.
    answers_wear: AtomicBool,
}

/// A thread that runs what is asynchronous, as long as it lives.
struct Runtime {
    handle: runtime::Handle,
    _end: oneshot::Sender<()>,
}

impl Runtime {
    fn start() -> std::io::Result<Self> {
        let runtime = runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (end, ended) = oneshot::channel::<()>();
        let handle = runtime.handle().clone();
        thread::Builder::new().name("ssh".into()).spawn(move || {
            let _ = runtime.block_on(ended);
        })?;
        Ok(Runtime { handle, _end: end })
    }
}

/// `ssh` as the user wants it, for an address.
pub(in crate::sftp) fn command(ssh: &str, address: &Address) -> Result<String, Failure> {
    let fit = names::check_host(address).and_then(|()| names::check_user(address, "the program of --ssh-command"));
    fit.map_err(|why| Failure::new(Kind::Refused, Action::Connect, why))?;
    let mut command = ssh.to_owned();
    if let Some(port) = address.port {
        command += &format!(" -p {port}");
    }
    if let Some(user) = &address.user {
        command += &format!(" -l {}", quoted(user));
    }
    Ok(format!("{command} -s -- {} sftp", quoted(&address.host)))
}

/// A word that the shell takes as it stands.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

impl Login {
    pub(in crate::sftp) fn new(address: &Address, around: &Surroundings) -> Result<Self, Failure> {
        let hops = route::hops(address, around)?;
        let runtime = Runtime::start()
            .map_err(|e| Failure::new(Kind::Io, Action::Connect, format!("no thread can be started for it: {e}")))?;
        let proofs = Mutex::new(hops.iter().map(|_| Vec::new()).collect());
        let (ask, tell) = (around.ask.clone(), around.tell.clone());
        Ok(Login { inner: Arc::new(Inner { hops, ask, tell, proofs, answers_wear: AtomicBool::new(false) }), runtime })
    }

    /// How long the server may take for its first word.
    pub(in crate::sftp) fn patience(&self) -> Option<Duration> {
        self.inner.hops.last().map(Hop::answer_timeout)
    }

    /// A new connection that has been greeted by nobody yet.
    pub(in crate::sftp) fn dial(&self, limits: &Limits, occasion: Occasion) -> Result<Arc<Peer>, Failure> {
        let mut pause = TURNED_AWAY;
        loop {
            match self.dial_once(limits, occasion) {
                Err(failure) if occasion == Occasion::First && failure.is_turned_away && pause <= TURNED_AWAY_MAX => {
                    thread::sleep(jittered(pause));
                    pause *= 2;
                }
                dialed => return dialed,
            }
        }
    }

    fn dial_once(&self, limits: &Limits, occasion: Occasion) -> Result<Arc<Peer>, Failure> {
        let (inner, limits) = (self.inner.clone(), limits.clone());
        let (to, dialed) = crossbeam_channel::bounded(1);
        self.runtime.handle.spawn(async move {
            let _ = to.send(dial(&inner, &limits, occasion).await);
        });
        dialed.recv().unwrap_or_else(|_| {
            Err(Failure::new(Kind::Io, Action::Connect, "the thread that speaks ssh ended unexpectedly"))
        })
    }
}

async fn dial(inner: &Inner, limits: &Limits, occasion: Occasion) -> Result<Arc<Peer>, Failure> {
    let last = inner.hops.last().ok_or_else(|| Failure::new(Kind::Io, Action::Connect, "there is no host"))?;
    let line = Line::new(last.patience());
    let reached = reach(inner, occasion, last, &line, limits).await;
    if reached.is_err() {
        // A program that was to connect (`ProxyCommand`) would be left, and nobody would hear that it has ended.
        line.end();
    }
    reached
}

/// Connect, log in, and have SFTP spoken.
async fn reach(
    inner: &Inner,
    occasion: Occasion,
    last: &Hop,
    line: &Arc<Line>,
    limits: &Limits,
) -> Result<Arc<Peer>, Failure> {
    let mut sessions: Vec<Handle<Client>> = Vec::new();
    let mut is_last: Option<Arc<AtomicBool>> = None;
    for (at, hop) in inner.hops.iter().enumerate() {
        let stream = match sessions.last() {
            None => stream::first(hop, line).await?,
            Some(before) => stream::through(before, hop, line).await?,
        };
        if let Some(before) = is_last.replace(stream.is_last()) {
            before.store(false, Ordering::Relaxed);
        }
        let session = server::connect(inner, hop, stream).await?;
        sessions.push(login::login(inner, occasion, at, line, session).await?);
    }
    let Some(session) = sessions.last() else {
        return Err(Failure::new(Kind::Io, Action::Connect, "there is no host"));
    };
    let limit = last.answer_timeout();
    let channel = within(limit, line, session.channel_open_session()).await.map_err(|wait| match wait {
        Wait::Failed(russh::Error::ChannelOpenFailure(why)) => {
            Failure::new(Kind::Refused, Action::LogIn, format!("the server opens no session ({why:?})"))
        }
        wait => wait.failure(limit),
    })?;
    let (out, outgoing) = mpsc::unbounded_channel();
    let peer = Peer::new(out, line.clone());
    let (mut reading, writing) = channel.split();
    // The first packet goes along with the request that it is for: who refuses that will not read it.
    let asked = within(limit, line, writing.request_subsystem(true, "sftp")).await;
    asked.map_err(|wait| wait.failure(limit))?;
    let begun = within(limit, line, writing.data_bytes(Bytes::from_static(&INIT))).await;
    begun.map_err(|wait| wait.failure(limit))?;
    let upload = limits.upload.clone();
    tokio::spawn(async move {
        let _ = send(outgoing, &writing, &upload).await;
        let _ = writing.close().await;
        // In order: what is nearer to the server first.
        while sessions.pop().is_some() {}
    });
    let (to, download) = (Arc::downgrade(&peer), limits.download.clone());
    tokio::spawn(async move {
        let (mut frames, mut said) = (Frames::default(), String::new());
        let why = loop {
            match reading.wait().await {
                Some(ChannelMsg::Data { data }) => {
                    sleep_for(download.delay(data.len())).await;
                    let Some(peer) = to.upgrade() else { return };
                    if let Err(error) = frames.feed(&data, |packet| peer.take(packet)) {
                        break error.to_string();
                    }
                }
                Some(ChannelMsg::ExtendedData { data, .. }) => {
                    said.push_str(&String::from_utf8_lossy(&data));
                    let cut = said.ceil_char_boundary(said.len().saturating_sub(SAID_BYTES_MAX));
                    said.drain(..cut);
                }
                Some(ChannelMsg::Failure) => break "the server offers no SFTP".into(),
                Some(ChannelMsg::Eof | ChannelMsg::Close) => break "the server has closed it".into(),
                None => break "the line is gone".into(),
                Some(_) => {}
            }
        };
        if let Some(peer) = to.upgrade() {
            let said = said.trim().replace('\n', "; ");
            peer.die(&if said.is_empty() { why } else { format!("{why}; the server said: {}", said.escape_debug()) });
        }
    });
    Ok(peer)
}

/// Carry packets to the channel until nobody has more, or it breaks.
async fn send(
    mut outgoing: mpsc::UnboundedReceiver<Outgoing>,
    writing: &russh::ChannelWriteHalf<russh::client::Msg>,
    upload: &crate::limit::Limit,
) -> Result<(), russh::Error> {
    let mut next = outgoing.recv().await;
    while let Some(Outgoing { mut head, mut body }) = next.take() {
        // Small requests go out together.
        while body.is_empty() && head.len() < GATHERED_BYTES {
            let Ok(more) = outgoing.try_recv() else { break };
            head.extend_from_slice(&more.head);
            body = more.body;
        }
        for mut bytes in [Bytes::from(head), body] {
            // A line that is limited isn't left idle for the time of all of them, and filled then.
            let most = if upload.is_any() { PACED_BYTES } else { usize::MAX };
            while !bytes.is_empty() {
                let piece = bytes.split_to(bytes.len().min(most));
                sleep_for(upload.delay(piece.len())).await;
                writing.data_bytes(piece).await?;
            }
        }
        next = outgoing.recv().await;
    }
    Ok(())
}

async fn sleep_for(time: Duration) {
    if !time.is_zero() {
        sleep(time).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_own_ssh() {
        let command = |ssh: &str, given: &str| command(ssh, &Address::parse(given).unwrap()).map_err(|e| e.cause);
        assert_eq!(command("ssh", "//h/x").unwrap(), "ssh -s -- 'h' sftp");
        let shown = command("ssh -F c", r"//A\b@h:2222/x").unwrap();
        assert_eq!(shown, r"ssh -F c -p 2222 -l 'A\b' -s -- 'h' sftp");
        for given in ["//it's@h/x", "//-oProxyCommand=id@h/x", "//h%24%28id%29/x", "//a%3Bid@h/x"] {
            assert!(command("ssh", given).unwrap_err().contains("--ssh-command"), "{given}");
        }
    }
}
