//! One request to the service, until it is answered: signed, tried again while what fails may pass, with what has to be
//! found out on the way (new credentials, the server's clock, the bucket's region, where its name belongs) found out.

use std::borrow::Cow;
use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::credentials::{Chain, NoKeys};
use super::http::{Endpoint, Pool, Request, Response};
use super::said::Said;
use super::settings::{Route, Settings};
use super::sign::{self, Scope};
use super::time;
use crate::around::{Stopped, Surroundings, Tell};
use crate::limit::{Limit, Limits};
use crate::lock::lock;
use crate::retry::{Outage, doze};
use crate::{Action, Error, Kind, Result, Retries};

/// Of an error's body no more than so many bytes are read.
const ERROR_BYTES_MAX: usize = 1 << 20;
/// If a server names a time to wait, at most so many seconds are waited at once.
const RETRY_AFTER_MAX: u64 = 60;
/// Clocks that are at most so many seconds apart count as equal.
const SKEW_MIN: i64 = 60;
/// So often a request is sent again at once, with what was learnt from its refusal.
const LESSONS_MAX: usize = 3;

/// A request.
pub(super) struct Ask<'a> {
    /// What S3 calls it, as rights are named.
    pub action: &'static str,
    pub method: &'static str,
    /// The object, by its name in the repository; `None` for the bucket.
    pub name: Option<&'a str>,
    pub query: &'a [(&'a str, &'a str)],
    pub headers: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
    /// Of a success's body no more than so many bytes are read.
    pub most: usize,
    /// Once this is set nobody wants an answer any more.
    pub given_up: Option<&'a AtomicBool>,
}

impl<'a> Ask<'a> {
    /// About an object, with nothing besides.
    pub(super) fn new(action: &'static str, method: &'static str, name: &'a str) -> Self {
        Ask {
            action,
            method,
            name: Some(name),
            query: &[],
            headers: &[],
            body: b"",
            most: ERROR_BYTES_MAX,
            given_up: None,
        }
    }

    fn is_given_up(&self) -> bool {
        self.given_up.is_some_and(|given_up| given_up.load(Ordering::Relaxed))
    }
}

/// Even a success of this request may contain an error, because it takes long.
pub(super) const COMPLETE: &str = "CompleteMultipartUpload";

/// What a refusal has taught.
enum Lesson {
    Again,
    No,
}

/// All that is known of a bucket and how to talk to it.
pub(super) struct Client {
    settings: Settings,
    /// For messages.
    location: String,
    /// As the bucket's answers have corrected it.
    route: Mutex<Route>,
    keys: Chain,
    pool: Pool,
    retries: Retries,
    outage: Outage,
    tell: Option<Tell>,
    stopped: Option<Stopped>,
    /// Something was there: what fails from now on may pass.
    reached: AtomicBool,
    /// It has answered as it should.
    understood: AtomicBool,
    /// It is a server of S3's that answers there, if not at every moment.
    is_s3: AtomicBool,
    /// By so many seconds the server's clock is ahead.
    ahead: AtomicI64,
}

impl Client {
    pub(super) fn new(settings: Settings, keys: Chain, location: String, around: &Surroundings) -> Self {
        let limits = Limits { upload: Limit::new(around.upload_limit), download: Limit::new(around.download_limit) };
        Client {
            route: Mutex::new(settings.route()),
            pool: Pool::new(limits, settings.bundle.clone(), settings.proxies.clone()),
            settings,
            location,
            keys,
            retries: around.retries,
            outage: Outage::default(),
            tell: around.tell.clone(),
            stopped: around.stopped.clone(),
            reached: AtomicBool::new(false),
            understood: AtomicBool::new(false),
            is_s3: AtomicBool::new(false),
            ahead: AtomicI64::new(0),
        }
    }

    pub(super) fn location(&self) -> &str {
        &self.location
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What time it is by the server's clock, as far as it has been corrected.
    pub(super) fn now(&self) -> i64 {
        time::now() + self.ahead.load(Ordering::Relaxed)
    }

    pub(super) fn tell(&self, words: &str) {
        if let Some(tell) = &self.tell {
            tell(words);
        }
    }

    /// Ask until there is an answer. `verb` says what is tried, for messages; `tries` counts how often it was sent:
    /// what was sent twice may have been done the first time.
    pub(super) fn call(
        &self,
        verb: Action,
        ask: &Ask<'_>,
        tries: &mut u32,
    ) -> Result<std::result::Result<Response, Said>> {
        if !self.reached.load(Ordering::Relaxed) {
            // An address that is wrong is told at once; a line that breaks at its first word isn't one.
            let once = Retries { give_up: Duration::ZERO, ..self.retries };
            match self.patiently(once, verb, ask, tries) {
                Err(error) if error.kind == Kind::Transient && self.reached.load(Ordering::Relaxed) => {}
                other => return other,
            }
        }
        self.patiently(self.retries, verb, ask, tries)
    }

    fn patiently(
        &self,
        retries: Retries,
        verb: Action,
        ask: &Ask<'_>,
        tries: &mut u32,
    ) -> Result<std::result::Result<Response, Said>> {
        let mut throttled = 0;
        let stopped = || ask.is_given_up() || self.stopped.as_ref().is_some_and(|stopped| stopped());
        retries.run(
            &self.outage,
            || {
                if ask.is_given_up() {
                    let name = ask.name.unwrap_or_default();
                    return Err(Error::because(Kind::Io, verb, name, &self.location, "it has been given up"));
                }
                // A server that has said when to come back has its way; the pause before this one has been counted
                // already.
                doze(Duration::from_secs(std::mem::take(&mut throttled)), &stopped);
                let answered = self.once(verb, ask, tries)?;
                match answered {
                    // A HEAD has no body by which one could tell; who asks by it asks otherwise, too.
                    Err(said) if ask.method != "HEAD" && said.is_by_proxy() && self.is_s3.load(Ordering::Relaxed) => {
                        let words = format!(
                            "something on the way, such as a proxy, answers instead of the server (status {})",
                            said.status
                        );
                        Err(Error::because(Kind::Transient, verb, ask.name.unwrap_or_default(), &self.location, words))
                    }
                    Err(said) if said.passes() => {
                        throttled = said.retry_after.unwrap_or(0).min(RETRY_AFTER_MAX);
                        Err(self.refused(verb, ask, &said))
                    }
                    answered => Ok(answered),
                }
            },
            |error| self.tell(&format!("{error}; trying again")),
            stopped,
        )
    }

    /// As [`Client::call`], where every refusal is an error.
    pub(super) fn done(&self, verb: Action, ask: &Ask<'_>) -> Result<Response> {
        self.call(verb, ask, &mut 0)?.map_err(|said| self.refused(verb, ask, &said))
    }

    /// Ask once, and don't care much.
    pub(super) fn attempt(&self, verb: Action, ask: &Ask<'_>) -> Result<()> {
        self.once(verb, ask, &mut 0).map(drop)
    }

    /// A refusal as an error.
    pub(super) fn refused(&self, verb: Action, ask: &Ask<'_>, said: &Said) -> Error {
        let source = match self.keys.keys() {
            Ok(keys) => keys.source.clone(),
            Err(_) => "this user".to_owned(),
        };
        let endpoint = self.settings.endpoint(&self.route()).to_string();
        let (kind, words) = said.judge(ask.action, &source, &self.settings.bucket, &endpoint);
        if said.code == "NoSuchBucket" {
            return Error::because(kind, Action::FindBucket, "", &self.location, words);
        }
        // Of all objects alike: whoever goes through many need not be told for each.
        let name = if said.is_of_account() { "" } else { ask.name.unwrap_or_default() };
        Error::because(kind, verb, name, &self.location, words)
    }

    fn route(&self) -> Route {
        lock(&self.route).clone()
    }

    fn once(&self, verb: Action, ask: &Ask<'_>, tries: &mut u32) -> Result<std::result::Result<Response, Said>> {
        let name = ask.name.unwrap_or_default();
        let because = |kind, words: String| Error::because(kind, verb, name, &self.location, words);
        let body_hash = sign::sha256(ask.body);
        for lesson in 0.. {
            let keys = self.keys.keys().map_err(|none| match none {
                NoKeys::Never(words) => because(Kind::Refused, words),
                NoKeys::Passing(words) => because(Kind::Transient, words),
            })?;
            let route = self.route();
            let endpoint = self.settings.endpoint(&route);
            let path = self.settings.path(&route, ask.name);
            let query = sign::query(ask.query);
            let mut headers = vec![("host", endpoint.authority())];
            headers.extend(ask.headers.iter().map(|(name, value)| (*name, (*value).to_owned())));
            let ahead = self.ahead.load(Ordering::Relaxed);
            let scope = Scope { region: &route.region, service: "s3", now: time::now() + ahead };
            sign::sign(&keys, &scope, ask.method, (&path, &query), &mut headers, &body_hash);
            let target = if query.is_empty() { Cow::from(&path) } else { format!("{path}?{query}").into() };
            let request = Request { method: ask.method, target: &target, headers: &headers, body: ask.body };
            let most = |status: u16| if status < 300 { ask.most } else { ERROR_BYTES_MAX };
            let response = self.pool.call(&endpoint, &request, &most, tries).map_err(|broken| {
                // What answers there is no server of this sort, or can't be trusted: that won't pass. Where one has
                // answered before, the line has garbled it, or something on the way speaks in its place for a while.
                let has_answered = self.understood.load(Ordering::Relaxed);
                let kind = match broken.error.kind() {
                    ErrorKind::InvalidData | ErrorKind::Other if !has_answered => Kind::Io,
                    _ => Kind::Transient,
                };
                self.reached.fetch_or(!broken.dialing, Ordering::Relaxed);
                let verb = if broken.dialing { Action::Connect } else { verb };
                let words = match broken.dialing {
                    true => format!("{endpoint} can't be reached: {}", crate::error::plain(&broken.error)),
                    false => format!("the connection to {endpoint} broke: {}", crate::error::plain(&broken.error)),
                };
                Error::because(kind, verb, if broken.dialing { "" } else { name }, &self.location, words)
            })?;
            self.reached.store(true, Ordering::Relaxed);
            self.understood.store(true, Ordering::Relaxed);
            let late = ask.action == COMPLETE && response.body.windows(7).any(|at| at == b"<Error>");
            if response.status < 300 && !late {
                self.is_s3.store(true, Ordering::Relaxed);
                return Ok(Ok(response));
            }
            let said = Said::read(&response);
            self.is_s3.fetch_or(said.is_by_s3(), Ordering::Relaxed);
            match self.learn(&said, &keys, (&endpoint, &route), ahead) {
                Lesson::Again if lesson < LESSONS_MAX => {}
                _ => return Ok(Err(said)),
            }
        }
        unreachable!("the loop has no end of its own")
    }

    /// What can be put right by ourselves: said to a request to this endpoint, that went this way. `used` is how far
    /// the server's clock was taken to be ahead.
    fn learn(&self, said: &Said, keys: &Arc<sign::Keys>, (endpoint, went): (&Endpoint, &Route), used: i64) -> Lesson {
        if said.is_skewed()
            && let Some(theirs) = said.date.as_deref().and_then(time::http)
        {
            let ahead = theirs - time::now();
            if (ahead - used).abs() < SKEW_MIN {
                return Lesson::No;
            }
            // Of several requests that are taught the same, the first one tells it.
            if (ahead - self.ahead.swap(ahead, Ordering::Relaxed)).abs() < SKEW_MIN {
                return Lesson::Again;
            }
            let (far, which) = (ahead.unsigned_abs(), if ahead > 0 { "behind" } else { "ahead of" });
            self.tell(&format!(
                "this machine's clock is {} {which} that of {endpoint}, which rejects requests signed with a wrong time; the \
                 server's time is used instead: set the clock",
                if far < 7200 { format!("{} minutes", far / 60) } else { format!("{} hours", far / 3600) }
            ));
            return Lesson::Again;
        }
        if said.wants_other_keys() && self.keys.are_others(keys) {
            return Lesson::Again;
        }
        let elsewhere = matches!(said.status, 301 | 307 | 400) || said.code == "AuthorizationHeaderMalformed";
        if elsewhere && let Some(region) = &said.region {
            // Of several requests that are taught the same, the first one keeps it.
            lock(&self.route).region.clone_from(region);
            if *region != went.region {
                return Lesson::Again;
            }
        }
        if said.wants_bucket_in_host() && !went.in_host && self.settings.fits_in_host() {
            lock(&self.route).in_host = true;
            return Lesson::Again;
        }
        Lesson::No
    }
}
