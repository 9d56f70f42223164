//! Uploads: what is small in one request, what is large in parts, several at once, none of which anybody sees before
//! they are put together.
//!
//! A part stays in memory until the server has it; a broken connection costs that part's time. Some are on their way
//! while the next one is filled, and waiting for room there is what holds a fast producer back: [`PARTS_AT_ONCE`],
//! which fill a narrow line, or [`PARTS_AT_ONCE_MAX`] where a part is there soon, so that what they wait for is mostly
//! the answer.
//!
//! That the name is free is seen by the request that makes the object, where the server honours `If-None-Match` there,
//! too; some honour it for single requests and not for this one, so it is asked for before as well.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Inner;
use super::client::Ask;
use super::xml;
use crate::lock::lock;
use crate::{Action, Error, Kind, Put, Result, Upload};

/// The least that a part may have, but for the last one.
const PART_BYTES_MIN: usize = 5 << 20;
/// The most that one is made to have: it is held in memory.
const PART_BYTES_MAX: usize = 64 << 20;
/// No more parts than this, of 10,000 that S3 allows, for an object of the expected length.
const PARTS_WANTED_MAX: u64 = 5_000;
/// Parts on their way, besides the one that is being filled.
const PARTS_AT_ONCE: usize = 2;
const PARTS_AT_ONCE_MAX: usize = 4;
/// Of these, no more beyond [`PARTS_AT_ONCE`] in all uploads together: parity has many under way.
const MORE_PARTS_MAX: usize = 4;
/// A part that takes no longer than this is there soon.
const SOON: Duration = Duration::from_secs(1);
/// For so long an upload that is given up waits for what is on its way.
const FAREWELL: Duration = Duration::from_secs(5);
/// How often it looks.
const LOOK: Duration = Duration::from_millis(20);

/// What the threads that send parts have in common.
struct Parts {
    store: Arc<Inner>,
    name: String,
    /// The upload's id, once there is one.
    id: Mutex<Option<String>>,
    /// They have been put together.
    finished: AtomicBool,
    /// Nobody wants them any more.
    given_up: AtomicBool,
}

/// One of those beyond [`PARTS_AT_ONCE`].
struct More(Arc<Inner>);

impl More {
    fn new(store: &Arc<Inner>) -> Self {
        store.more_parts.fetch_add(1, Ordering::Relaxed);
        More(store.clone())
    }
}

impl Drop for More {
    fn drop(&mut self) {
        self.0.more_parts.fetch_sub(1, Ordering::Relaxed);
    }
}

pub(super) struct S3Upload {
    parts: Arc<Parts>,
    part_bytes: usize,
    filling: Vec<u8>,
    under_way: VecDeque<JoinHandle<(Result<String>, Duration)>>,
    /// The entity tags of those that have arrived, in order.
    arrived: Vec<String>,
    /// Bytes handed to threads so far.
    sent: u64,
    /// A part was lost for good: whoever goes on is told the same again.
    failed: Option<(Kind, String)>,
}

impl S3Upload {
    pub(super) fn begin(store: Arc<Inner>, name: &str, len_hint: u64) -> Self {
        let wanted = usize::try_from(len_hint / PARTS_WANTED_MAX).unwrap_or(usize::MAX);
        S3Upload {
            parts: Arc::new(Parts {
                store,
                name: name.to_owned(),
                id: Mutex::default(),
                finished: AtomicBool::new(false),
                given_up: AtomicBool::new(false),
            }),
            part_bytes: wanted.clamp(PART_BYTES_MIN, PART_BYTES_MAX),
            filling: Vec::new(),
            under_way: VecDeque::new(),
            arrived: Vec::new(),
            sent: 0,
            failed: None,
        }
    }

    /// Send what is filled as the next part, once there is room for it.
    fn send(&mut self) -> Result<()> {
        while self.under_way.len() >= self.at_once() {
            self.wait()?;
        }
        let number = self.arrived.len() + self.under_way.len() + 1;
        let bytes = Arc::new(std::mem::take(&mut self.filling));
        self.sent += bytes.len() as u64;
        let (parts, of_thread) = (self.parts.clone(), bytes.clone());
        let more = (self.under_way.len() >= PARTS_AT_ONCE).then(|| More::new(&parts.store));
        let send = move || {
            let _more = more;
            let began = Instant::now();
            (parts.send(number, &of_thread), began.elapsed())
        };
        match thread::Builder::new().name("s3-part".into()).spawn(send) {
            Ok(thread) => {
                self.under_way.push_back(thread);
                Ok(())
            }
            // Where no thread can be had it is sent from here, once those before it have arrived.
            Err(_) => {
                while !self.under_way.is_empty() {
                    self.wait()?;
                }
                let tag = self.parts.send(number, &bytes).map_err(|error| self.fail(error))?;
                self.arrived.push(tag);
                Ok(())
            }
        }
    }

    /// So many parts may be on their way.
    fn at_once(&self) -> usize {
        let store = &self.parts.store;
        match store.is_quick.load(Ordering::Relaxed) && store.more_parts.load(Ordering::Relaxed) < MORE_PARTS_MAX {
            true => PARTS_AT_ONCE_MAX,
            false => PARTS_AT_ONCE,
        }
    }

    /// Wait for the oldest part.
    fn wait(&mut self) -> Result<()> {
        let Some(oldest) = self.under_way.pop_front() else { return Ok(()) };
        match oldest.join() {
            Ok((Ok(tag), took)) => {
                self.parts.store.is_quick.store(took <= SOON, Ordering::Relaxed);
                self.arrived.push(tag);
                Ok(())
            }
            Ok((Err(error), _)) => Err(self.fail(error)),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    fn fail(&mut self, error: Error) -> Error {
        self.failed = Some((error.kind, error.cause()));
        error
    }

    fn check(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some((kind, cause)) => Err(self.parts.store.because(*kind, Action::Write, &self.parts.name, cause)),
        }
    }

    /// Put the parts together, once they have arrived.
    fn complete(&mut self) -> Result<()> {
        let (store, name) = (self.parts.store.clone(), self.parts.name.clone());
        let is_atomic = store.tested()?;
        let looks = (store.clone(), name.clone());
        // While the last ones are on their way.
        let look = thread::Builder::new().name("s3-look".into()).spawn(move || looks.0.len(&looks.1));
        while !self.under_way.is_empty() {
            self.wait()?;
        }
        let there = match look.map(JoinHandle::join) {
            Ok(Ok(there)) => there,
            Ok(Err(panic)) => std::panic::resume_unwind(panic),
            Err(_) => store.len(&name),
        };
        if there?.is_some() {
            return Err(store.taken(&name));
        }
        let id = self.parts.id()?;
        let mut body = String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
        for (number, tag) in (1..).zip(&self.arrived) {
            let tag = xml::escape(tag);
            body.push_str(&format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>"));
        }
        body.push_str("</CompleteMultipartUpload>");
        let query = [("uploadId", id.as_str())];
        let condition = [("if-none-match", "*")];
        let mut ask = Ask {
            query: &query,
            headers: if is_atomic { &condition } else { &[] },
            body: body.as_bytes(),
            ..Ask::new(super::client::COMPLETE, "POST", &name)
        };
        let mut tries = 0;
        let mut answered = store.client.call(Action::Write, &ask, &mut tries)?;
        if is_atomic && matches!(&answered, Err(said) if said.is_unknown_condition()) {
            ask.headers = &[];
            answered = store.client.call(Action::Write, &ask, &mut tries)?;
        }
        match answered {
            Ok(response) if String::from_utf8_lossy(&response.body).contains("CompleteMultipartUploadResult") => {}
            // It says something else, or nothing: what counts is what is there.
            Ok(_) if store.len(&name)? == Some(self.sent) => {}
            Ok(_) => {
                return Err(store.because(Kind::Io, Action::Write, &name, "the server hasn't put its parts together"));
            }
            // An earlier attempt has done it, and its answer was lost. Nobody else has an object of this name in the
            // making.
            Err(said)
                if tries > 1 && (said.is_taken() || said.status == 404) && store.len(&name)? == Some(self.sent) => {}
            Err(said) if said.is_taken() => return Err(store.taken(&name)),
            Err(said) if said.code == "NoSuchUpload" => return Err(self.parts.removed()),
            Err(said) => return Err(store.client.refused(Action::Write, &ask, &said)),
        }
        self.parts.finished.store(true, Ordering::Relaxed);
        store.see_retained(&name)
    }
}

impl Parts {
    /// Send a part; its entity tag.
    fn send(&self, at: usize, bytes: &[u8]) -> Result<String> {
        let id = self.id()?;
        let number = at.to_string();
        let query = [("partNumber", number.as_str()), ("uploadId", id.as_str())];
        let sum = self.store.sum(&self.name, bytes);
        let headers: Vec<_> = sum.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let ask = Ask { query: &query, headers: &headers, body: bytes, ..self.ask("PUT") };
        match self.store.client.call(Action::Write, &ask, &mut 0)? {
            Ok(response) => match response.header("etag") {
                Some(tag) => Ok(tag.to_owned()),
                None => Err(self.store.because(
                    Kind::Io,
                    Action::Write,
                    &self.name,
                    "the server gives no tag for a part of it",
                )),
            },
            Err(said) if said.wants_sum() && sum.is_none() => {
                self.store.wants_sums.store(true, Ordering::Relaxed);
                self.send(at, bytes)
            }
            Err(said) if said.code == "NoSuchUpload" => Err(self.removed()),
            Err(said) => Err(self.store.client.refused(Action::Write, &ask, &said)),
        }
    }

    /// Whoever comes first begins the upload; the others wait for that.
    fn id(&self) -> Result<String> {
        let mut id = lock(&self.id);
        if let Some(id) = &*id {
            return Ok(id.clone());
        }
        let class = self.store.client.settings().class(&self.name).map(|class| ("x-amz-storage-class", class));
        let lasting = self.store.retention(&self.name);
        let lasting = lasting.iter().map(|(name, value)| (*name, value.as_str()));
        let headers: Vec<_> = class.into_iter().chain(lasting).collect();
        let ask = Ask { query: &[("uploads", "")], headers: &headers, ..self.ask("POST") };
        let response = self.store.client.done(Action::Write, &ask)?;
        let text = String::from_utf8_lossy(&response.body);
        match xml::text(&text, "UploadId").filter(|id| !id.is_empty()) {
            Some(new) => Ok(id.insert(new).clone()),
            None => {
                Err(self.store.because(Kind::Io, Action::Write, &self.name, "the server begins no upload in parts"))
            }
        }
    }

    fn ask(&self, method: &'static str) -> Ask<'_> {
        Ask { given_up: Some(&self.given_up), ..Ask::new("PutObject", method, &self.name) }
    }

    fn removed(&self) -> Error {
        let cause =
            "its parts have been removed from the server while it was being written, by a rule of the bucket perhaps";
        self.store.because(Kind::Io, Action::Write, &self.name, cause)
    }
}

impl Upload for S3Upload {
    fn write(&mut self, mut bytes: &[u8]) -> Result<()> {
        self.check()?;
        while !bytes.is_empty() {
            if self.filling.len() == self.part_bytes {
                self.send()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(self.part_bytes - self.filling.len()));
            self.filling.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>) -> Result<()> {
        self.check()?;
        if self.under_way.is_empty() && self.arrived.is_empty() {
            return self.parts.store.put(&self.parts.name, &self.filling, Put::Create);
        }
        self.send()?;
        self.complete()
    }
}

impl Drop for S3Upload {
    /// What is on its way is waited for for a while only: over a slow line, or one that is dead, it may take for ever.
    fn drop(&mut self) {
        self.parts.given_up.store(true, Ordering::Relaxed);
        let began = Instant::now();
        while began.elapsed() < FAREWELL && !self.under_way.iter().all(JoinHandle::is_finished) {
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Parts {
    /// Whoever is the last to leave takes them away: the upload, or a thread that was still sending.
    fn drop(&mut self) {
        if self.finished.load(Ordering::Relaxed) {
            return;
        }
        if let Some(id) = &*lock(&self.id) {
            self.store.abort_if_possible(&self.name, id);
        }
    }
}
