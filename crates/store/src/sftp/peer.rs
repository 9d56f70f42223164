//! One connection: requests go out numbered, replies come back in any order and find whoever waits for them.
//!
//! Nobody here waits for one answer before the next question: a [`Flight`] sends several requests at once and takes one
//! round trip for all. A connection that breaks tells everybody who waits; what was asked may have been done or not.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};
use tokio::sync::mpsc;

use super::handles::{Handles, Number};
use super::wire::{PIECE_BYTES, Packet, Reply, Request, Sort, limits, malformed, status};
use crate::lock::lock;

/// What a WRITE carries if the server doesn't say what it takes.
const SMALL_PIECE_BYTES: usize = 32 << 10;
/// Before a connection is closed, what was told gets so long to be heard.
pub(super) const SETTLING: Duration = Duration::from_secs(2);
/// How often somebody who waits looks whether the line is dead.
pub(super) const LOOK: Duration = Duration::from_millis(250);
/// Where a program syncs nothing, the end of a file may be its upload: what only takes whole files (rclone, of storages
/// that take no streams) sends it on then, and answers nothing else meanwhile. A pack takes 50 minutes at 20 KB/s.
const UPLOADING: Duration = Duration::from_secs(3 * 3600);

/// A packet on its way out; the bytes of a WRITE are not copied into it.
pub(super) struct Outgoing {
    pub head: Vec<u8>,
    pub body: Bytes,
}

/// A connection is gone, and why.
#[derive(Clone, Debug)]
pub(super) struct Gone(pub Arc<str>);

/// Why a request did not succeed.
#[derive(Clone, Debug)]
pub(super) enum Trouble {
    /// The connection broke; it may have been done or not.
    Gone(Gone),
    /// The server says no.
    Status { code: u32, words: String },
    /// The reply is not one to this request.
    Odd,
    /// It is nothing that could be an object.
    NoObject(Sort),
}

impl From<Gone> for Trouble {
    fn from(gone: Gone) -> Self {
        Trouble::Gone(gone)
    }
}

impl Trouble {
    pub(super) fn is(&self, wanted: u32) -> bool {
        matches!(self, Trouble::Status { code, .. } if *code == wanted)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Gone(gone) => f.write_str(&gone.0),
            Trouble::Odd => f.write_str("the server's answer makes no sense"),
            Trouble::NoObject(Sort::Link) => {
                f.write_str("it is, or leads through, a symbolic link, and these are not followed here")
            }
            Trouble::NoObject(Sort::File) => f.write_str("the server doesn't tell its length"),
            Trouble::NoObject(_) => f.write_str("it is neither a file nor a folder"),
            Trouble::Status { code, words } => match *code {
                status::NO_SUCH_FILE => f.write_str("there is no such file"),
                status::PERMISSION_DENIED => f.write_str("the server refuses it: permission denied"),
                status::UNSUPPORTED => f.write_str("the server can't do that"),
                _ if words.is_empty() => write!(f, "the server failed, with code {code}"),
                _ => write!(f, "the server failed: {}", words.escape_debug()),
            },
        }
    }
}

/// An answer, and which of somebody's questions it is to.
pub(super) struct Answer {
    pub tag: usize,
    pub reply: Result<Reply, Gone>,
}

/// What can be told of a line from below: when something was last heard on it, and how to end it.
pub(super) struct Line {
    started: Instant,
    heard: AtomicU64,
    /// The other side has closed it, or it broke.
    over: AtomicBool,
    /// What is at its end says that it is OpenSSH's server.
    openssh: AtomicBool,
    /// Nothing heard for so long while somebody waits: the line is dead.
    patience: Duration,
    /// At its end is a program that answers for itself, and whose life nobody asks about.
    is_program: bool,
    end: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Line {
    pub(super) fn new(patience: Duration) -> Arc<Self> {
        Arc::new(Line::silent(patience, false))
    }

    /// To a program.
    pub(super) fn to_program(patience: Duration) -> Arc<Self> {
        Arc::new(Line::silent(patience, true))
    }

    fn silent(patience: Duration, is_program: bool) -> Self {
        let (heard, over, openssh) = Default::default();
        Line { started: Instant::now(), heard, over, openssh, patience, is_program, end: Mutex::new(None) }
    }

    /// How to end it.
    pub(super) fn ends_by(&self, end: impl FnOnce() + Send + 'static) {
        *lock(&self.end) = Some(Box::new(end));
    }

    /// Whose server is at its end, as that names itself.
    pub(super) fn leads_to(&self, software: &[u8]) {
        self.openssh.store(software.starts_with(b"SSH-2.0-OpenSSH_"), Ordering::Relaxed);
    }

    /// Something came in.
    pub(super) fn hear(&self) {
        self.heard.store(self.started.elapsed().as_millis() as u64, Ordering::Relaxed);
    }

    /// Nothing more will come in.
    pub(super) fn close(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    fn silence(&self) -> Duration {
        self.started.elapsed().saturating_sub(Duration::from_millis(self.heard.load(Ordering::Relaxed)))
    }

    pub(super) fn end(&self) {
        let end = lock(&self.end).take();
        if let Some(end) = end {
            end();
        }
    }
}

/// What a server offers.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Offers {
    /// `hardlink@openssh.com`.
    pub link: bool,
    /// `posix-rename@openssh.com`: then the account may replace files, whatever else it may not.
    pub replace: bool,
    /// `fsync@openssh.com`.
    pub sync: bool,
    /// `statvfs@openssh.com`.
    pub room: bool,
    limits: bool,
    /// `expand-path@openssh.com`, which is of use to OpenSSH's own programs alone: by it theirs is told from others.
    openssh: bool,
}

/// What an account may do, and how much a WRITE may carry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Abilities {
    /// Whether it may give a file another name.
    pub rename: bool,
    pub write_bytes: usize,
}

/// What tells an account's [`Abilities`]. Renaming what isn't there does nothing, and tells whether renaming is
/// allowed.
pub(super) fn abilities(none: &[u8]) -> [Request<'_>; 2] {
    [Request::Rename { from: none, to: none }, Request::Limits]
}

/// One connection to a server.
pub(super) struct Peer {
    out: mpsc::UnboundedSender<Outgoing>,
    state: Mutex<State>,
    next: AtomicU32,
    line: Arc<Line>,
    greeting: Receiver<Offers>,
    greeted: Sender<Offers>,
    offers: OnceLock<Offers>,
    asked: Mutex<Option<Receiver<Answer>>>,
    /// Where answers go that nobody wants.
    told: Sender<Answer>,
    abilities: OnceLock<Abilities>,
    /// Bytes asked for or sent whose answers have not come.
    load: AtomicUsize,
    /// What a READ asks for: less, if the server never gives as much.
    pub read_bytes: AtomicUsize,
    /// Whether folders can be opened and synced here.
    pub syncs_folders: AtomicBool,
    /// Whether links can be made: cleared when the server turns out not to.
    pub links: AtomicBool,
    /// A number of its own, by which others tell connections apart.
    pub number: u64,
}

#[derive(Default)]
struct State {
    waiting: HashMap<u32, Waiting>,
    /// Requests that go out with the next one.
    later: Vec<u8>,
    handles: Handles,
    gone: Option<Gone>,
}

struct Waiting {
    to: Sender<Answer>,
    tag: usize,
    weight: usize,
    /// It is a CLOSE, and waited for: of a file that was written.
    ends: bool,
}

impl Peer {
    /// A connection whose packets go to `out`; whoever reads the other direction hands it to [`Peer::take`].
    pub(super) fn new(out: mpsc::UnboundedSender<Outgoing>, line: Arc<Line>) -> Arc<Self> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let (greeted, greeting) = bounded(1);
        Arc::new(Peer {
            out,
            state: Mutex::default(),
            next: AtomicU32::new(1),
            line,
            greeting,
            greeted,
            offers: OnceLock::new(),
            asked: Mutex::new(None),
            told: unbounded().0,
            abilities: OnceLock::new(),
            load: AtomicUsize::new(0),
            read_bytes: AtomicUsize::new(PIECE_BYTES),
            syncs_folders: AtomicBool::new(true),
            links: AtomicBool::new(true),
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
        })
    }

    /// Wait for the other side's version.
    pub(super) fn greet(&self, within: Duration) -> Result<(), Gone> {
        let start = Instant::now();
        let offers = loop {
            match self.greeting.recv_timeout(LOOK) {
                Ok(offers) => break offers,
                Err(_) if start.elapsed() < within => self.check()?,
                Err(_) => {
                    self.die(&format!("it said nothing for {} seconds", within.as_secs()));
                    self.check()?;
                }
            }
        };
        let _ = self.offers.set(offers);
        Ok(())
    }

    /// Ask what can only be found by asking. `none` is a path that nobody has.
    pub(super) fn inquire(&self, none: &[u8]) {
        let (to, answers) = unbounded();
        self.ask(&abilities(none)[0], &to, 0);
        if self.offers().limits {
            self.ask(&abilities(none)[1], &to, 1);
        }
        *lock(&self.asked) = Some(answers);
    }

    pub(super) fn offers(&self) -> Offers {
        self.offers.get().copied().unwrap_or_default()
    }

    /// What the account may do: known one round trip after the greeting.
    pub(super) fn abilities(&self) -> Result<Abilities, Gone> {
        if let Some(known) = self.abilities.get() {
            return Ok(*known);
        }
        let offers = self.offers();
        let mut asked = lock(&self.asked);
        let (mut renamed, mut told) = (None, None);
        if let Some(answers) = &*asked {
            for _ in 0..1 + usize::from(offers.limits) {
                let answer = self.wait(answers)?;
                let of = if answer.tag == 0 { &mut renamed } else { &mut told };
                *of = Some(answer.reply?);
            }
        }
        *asked = None;
        Ok(self.learn(renamed, told))
    }

    /// What the answers to [`abilities`] say; of one that hasn't come, what nearly all servers say.
    pub(super) fn learn(&self, renamed: Option<Reply>, told: Option<Reply>) -> Abilities {
        let mut known = Abilities { rename: true, write_bytes: SMALL_PIECE_BYTES };
        known.rename = !matches!(renamed, Some(Reply::Status { code: status::PERMISSION_DENIED, .. }));
        if let Some(Reply::Extended(told)) = told
            && let Ok((read, write)) = limits(&told)
        {
            // 0 is 'not told', and nobody needs more than one piece.
            let most = |told| if told == 0 { PIECE_BYTES as u64 } else { told };
            let piece = |told| most(told).clamp(4096, PIECE_BYTES as u64) as usize;
            self.read_bytes.fetch_min(piece(read), Ordering::Relaxed);
            known.write_bytes = piece(write);
        }
        *self.abilities.get_or_init(|| known)
    }

    /// Send a request. Its answer goes to `to`, with `tag`; if the connection is gone, that is the answer.
    pub(super) fn ask(&self, request: &Request, to: &Sender<Answer>, tag: usize) {
        self.send(request, Bytes::new(), to, tag);
    }

    /// Send a WRITE of `body`.
    pub(super) fn write(&self, handle: &[u8], offset: u64, body: Bytes, to: &Sender<Answer>, tag: usize) {
        let len = body.len() as u32;
        self.send(&Request::Write { handle, offset, len }, body, to, tag);
    }

    /// Send a request whose answer nobody waits for, but for whoever closes the connection: [`Peer::settle`]. It goes
    /// along with the next one that somebody waits for.
    pub(super) fn tell(&self, request: &Request) {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut state = lock(&self.state);
        if state.gone.is_none() {
            state.waiting.insert(id, Waiting { to: self.told.clone(), tag: 0, weight: 0, ends: false });
            state.handles.sent(id, request);
            state.later.extend(request.encode(id));
        }
    }

    /// Wait until everything that was told has been heard, for a while.
    pub(super) fn settle(&self) {
        let start = Instant::now();
        let later = std::mem::take(&mut lock(&self.state).later);
        if !later.is_empty() {
            let _ = self.out.send(Outgoing { head: later, body: Bytes::new() });
        }
        let owed = || lock(&self.state).waiting.values().any(|waiting| waiting.to.same_channel(&self.told));
        while start.elapsed() < SETTLING && self.check().is_ok() && owed() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn send(&self, request: &Request, body: Bytes, to: &Sender<Answer>, tag: usize) {
        let mut state = lock(&self.state);
        if let Some(gone) = &state.gone {
            let _ = to.send(Answer { tag, reply: Err(gone.clone()) });
            return;
        }
        let mut head = Vec::new();
        self.add(&mut state, request, to, tag, &mut head);
        // Under the lock, so that what was told before goes out before.
        let sent = self.out.send(Outgoing { head, body });
        drop(state);
        if sent.is_err() {
            self.die("it was closed");
        }
    }

    /// Add a request to a packet that is going out, behind what was to go along with it.
    fn add(&self, state: &mut State, request: &Request, to: &Sender<Answer>, tag: usize, packet: &mut Vec<u8>) {
        let weight = match request {
            Request::Read { len, .. } | Request::Write { len, .. } => *len as usize,
            _ => 0,
        };
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        // A line is silent for as long as nobody asks anything.
        if state.waiting.is_empty() || !state.later.is_empty() {
            self.line.hear();
        }
        let ends = matches!(request, Request::Close { .. });
        state.waiting.insert(id, Waiting { to: to.clone(), tag, weight, ends });
        state.handles.sent(id, request);
        self.load.fetch_add(weight, Ordering::Relaxed);
        packet.append(&mut state.later);
        packet.extend(request.encode(id));
    }

    /// Several requests with nothing of anybody else's in between, the first of which opens something; `None` if it
    /// can't be told which handle it will get, or the connection is gone. Nobody else can ask anything until they go
    /// out.
    pub(super) fn foresee(&self) -> Option<Foreseen<'_>> {
        // Elsewhere handles are text, mostly.
        if !self.offers().sync {
            return None;
        }
        self.foreseen(self.offers().openssh)
    }

    /// The same where requests are done in the order in which they are sent: by OpenSSH's server.
    pub(super) fn foresee_in_order(&self) -> Option<Foreseen<'_>> {
        self.foresee().filter(|_| self.offers().openssh)
    }

    /// The same before the greeting has come, on a line that leads to OpenSSH's server, which takes requests by then.
    pub(super) fn foresee_first(&self) -> Option<Foreseen<'_>> {
        let may = self.line.openssh.load(Ordering::Relaxed) && self.offers.get().is_none();
        if may { self.foreseen(false) } else { None }
    }

    /// The same for a new file that is written to before its handle has come, on a line that leads to OpenSSH's server:
    /// see [`super::handles`].
    pub(super) fn foresee_new(&self) -> Option<Foreseen<'_>> {
        if !self.writes_at_once() {
            return None;
        }
        self.foreseen(true).map(|foreseen| Foreseen { is_new: true, ..foreseen })
    }

    /// Whether a new file can be written to before its handle has come. An account that can't replace may not be able
    /// to take away what came of a wrong guess.
    pub(super) fn writes_at_once(&self) -> bool {
        let offers = self.offers();
        self.line.openssh.load(Ordering::Relaxed) && offers.openssh && offers.sync && offers.replace
    }

    fn foreseen(&self, is_openssh: bool) -> Option<Foreseen<'_>> {
        let state = lock(&self.state);
        let handle = state.handles.next(is_openssh).filter(|_| state.gone.is_none())?;
        let (to, answers) = unbounded();
        Some(Foreseen { handle, is_new: false, peer: self, state, packet: Vec::new(), to, answers, count: 0 })
    }

    /// The next answer to somebody who has asked here.
    pub(super) fn wait(&self, answers: &Receiver<Answer>) -> Result<Answer, Gone> {
        loop {
            match answers.recv_timeout(LOOK) {
                Ok(answer) => return Ok(answer),
                Err(RecvTimeoutError::Timeout) => self.look(),
                Err(RecvTimeoutError::Disconnected) => return Err(Gone("it was closed".into())),
            }
        }
    }

    /// End the connection if nothing has been heard for too long.
    pub(super) fn look(&self) {
        let patience = self.patience();
        if self.line.silence() > patience {
            self.die(&format!("nothing was heard for {} seconds", patience.as_secs()));
        }
    }

    /// For how long nothing may be heard.
    fn patience(&self) -> Duration {
        let is_uploading = self.line.is_program
            && !self.offers().sync
            && lock(&self.state).waiting.values().any(|waiting| waiting.ends);
        if is_uploading { self.line.patience.max(UPLOADING) } else { self.line.patience }
    }

    /// One request and its reply.
    pub(super) fn one(&self, request: &Request) -> Result<Reply, Trouble> {
        let (to, answers) = unbounded();
        self.ask(request, &to, 0);
        Ok(self.wait(&answers)?.reply?)
    }

    /// Several requests at once.
    pub(super) fn flight(&self) -> Flight<'_> {
        let (to, answers) = unbounded();
        Flight { peer: self, to, answers, count: 0 }
    }

    /// The answers to so many questions, in the order of their tags, and whether they came in that order.
    fn all(&self, answers: &Receiver<Answer>, count: usize) -> Result<(Vec<Reply>, bool), Gone> {
        let (mut replies, mut in_order): (Vec<Option<Reply>>, _) = (vec![None; count], true);
        for turn in 0..count {
            let answer = self.wait(answers)?;
            in_order &= answer.tag == turn;
            replies[answer.tag] = Some(answer.reply?);
        }
        Ok((replies.into_iter().flatten().collect(), in_order))
    }

    /// Bytes on their way.
    pub(super) fn load(&self) -> usize {
        self.load.load(Ordering::Relaxed)
    }

    /// Fails if the connection is gone.
    pub(super) fn check(&self) -> Result<(), Gone> {
        lock(&self.state).gone.clone().map_or(Ok(()), Err)
    }

    /// Take in a packet of the other side.
    pub(super) fn take(&self, packet: Packet) -> io::Result<()> {
        match packet {
            Packet::Version { version, extensions } => {
                if version < 3 {
                    return Err(malformed(&format!("it speaks version {version}, and 3 is needed")));
                }
                let has = |name: &[u8]| extensions.iter().any(|offered| offered == name);
                let offers = Offers {
                    link: has(b"hardlink@openssh.com"),
                    replace: has(b"posix-rename@openssh.com"),
                    sync: has(b"fsync@openssh.com"),
                    room: has(b"statvfs@openssh.com"),
                    limits: has(b"limits@openssh.com"),
                    openssh: has(b"expand-path@openssh.com"),
                };
                // A second greeting is as good as none.
                let _ = self.greeted.try_send(offers);
            }
            Packet::Reply { id, reply } => {
                let waiting = {
                    let mut state = lock(&self.state);
                    state.handles.answered(id, &reply);
                    state.waiting.remove(&id)
                };
                if let Some(Waiting { to, tag, weight, .. }) = waiting {
                    self.load.fetch_sub(weight, Ordering::Relaxed);
                    let _ = to.send(Answer { tag, reply: Ok(reply) });
                }
            }
        }
        Ok(())
    }

    /// The connection is gone: tell everybody who waits.
    pub(super) fn die(&self, why: &str) {
        let (gone, waiting) = {
            let mut state = lock(&self.state);
            let gone = state.gone.get_or_insert_with(|| Gone(why.into())).clone();
            (gone, std::mem::take(&mut state.waiting))
        };
        for (_, Waiting { to, tag, .. }) in waiting {
            let _ = to.send(Answer { tag, reply: Err(gone.clone()) });
        }
        self.line.end();
    }
}

/// Requests that are on their way together.
pub(super) struct Flight<'a> {
    peer: &'a Peer,
    to: Sender<Answer>,
    answers: Receiver<Answer>,
    count: usize,
}

/// Requests that are answered together.
pub(super) trait Together {
    /// Add one more.
    fn add(&mut self, request: &Request);
}

impl Together for Flight<'_> {
    fn add(&mut self, request: &Request) {
        self.peer.ask(request, &self.to, self.count);
        self.count += 1;
    }
}

impl Flight<'_> {
    /// Send a WRITE.
    pub(super) fn write(&mut self, handle: &[u8], offset: u64, body: Bytes) {
        self.peer.write(handle, offset, body, &self.to, self.count);
        self.count += 1;
    }

    /// All replies, in the order of the requests.
    pub(super) fn land(self) -> Result<Vec<Reply>, Gone> {
        Ok(self.peer.all(&self.answers, self.count)?.0)
    }
}

/// Requests that go out together, made with the handle that the first of them will get.
pub(super) struct Foreseen<'a> {
    /// That handle.
    pub handle: Number,
    is_new: bool,
    peer: &'a Peer,
    state: MutexGuard<'a, State>,
    packet: Vec<u8>,
    to: Sender<Answer>,
    answers: Receiver<Answer>,
    count: usize,
}

/// Requests that went out together.
pub(super) struct Sent<'a> {
    peer: &'a Peer,
    answers: Receiver<Answer>,
    count: usize,
}

impl Sent<'_> {
    /// As [`Foreseen::land`].
    fn land(self) -> Result<(Vec<Reply>, bool), Gone> {
        self.peer.all(&self.answers, self.count)
    }

    /// The same; `None` if they don't come in this time, or the connection is gone.
    pub(super) fn land_within(self, time: Duration) -> Option<(Vec<Reply>, bool)> {
        let start = Instant::now();
        while self.answers.len() < self.count {
            if start.elapsed() > time || self.peer.check().is_err() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.land().ok()
    }
}

impl Together for Foreseen<'_> {
    /// None that writes to a file: [`Foreseen::write`].
    fn add(&mut self, request: &Request) {
        debug_assert!(!matches!(request, Request::Write { .. } | Request::SetMode { .. }), "{request:?}");
        self.peer.add(&mut self.state, request, &self.to, self.count, &mut self.packet);
        self.count += 1;
    }
}

impl<'a> Foreseen<'a> {
    /// Write to the new file ([`Peer::foresee_new`]).
    pub(super) fn write(&mut self, offset: u64, body: &[u8]) {
        debug_assert!(self.is_new, "a file that may be another's");
        let (handle, len) = (self.handle, body.len() as u32);
        let write = Request::Write { handle: &handle, offset, len };
        self.peer.add(&mut self.state, &write, &self.to, self.count, &mut self.packet);
        self.packet.extend_from_slice(body);
        self.count += 1;
    }

    /// Send them all. All replies, in the order of the requests, and whether they came in that order: otherwise what
    /// was asked may have been done in another one, and nothing is certain of what was asked of the handle.
    pub(super) fn land(self) -> Result<(Vec<Reply>, bool), Gone> {
        self.send().land()
    }

    /// Send them all, and wait for nothing.
    pub(super) fn send(self) -> Sent<'a> {
        let Foreseen { peer, state, packet, answers, count, .. } = self;
        let sent = peer.out.send(Outgoing { head: packet, body: Bytes::new() });
        drop(state);
        if sent.is_err() {
            peer.die("it was closed");
        }
        Sent { peer, answers, count }
    }
}

/// What a reply should be.
impl Reply {
    fn or_trouble<T>(self, wanted: Option<T>) -> Result<T, Trouble> {
        match (wanted, self) {
            (Some(wanted), _) => Ok(wanted),
            (None, Reply::Status { code, words }) if code != status::OK => Err(Trouble::Status { code, words }),
            (None, _) => Err(Trouble::Odd),
        }
    }

    pub(super) fn done(self) -> Result<(), Trouble> {
        let done = matches!(self, Reply::Status { code: status::OK, .. }).then_some(());
        self.or_trouble(done)
    }

    pub(super) fn handle(self) -> Result<Vec<u8>, Trouble> {
        match self {
            Reply::Handle(handle) => Ok(handle),
            other => other.or_trouble(None),
        }
    }

    pub(super) fn attrs(self) -> Result<super::wire::Attrs, Trouble> {
        match self {
            Reply::Attrs(attrs) => Ok(attrs),
            other => other.or_trouble(None),
        }
    }
}

#[cfg(test)]
mod tests;
