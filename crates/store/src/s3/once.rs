//! Whether `If-None-Match: *` is honoured: tried, on an object that is there for that alone.
//!
//! Some servers take the header and overwrite all the same, with the same 200 that a creation gets. So a store that is
//! about to write has to see one such request refused. It is made with `tmp/once`:
//!
//! | `tmp/once` | the request | means |
//! |---|---|---|
//! | says "honoured" | to overwrite it with "ignored": 412 | honoured still |
//! | says "honoured" | the same: 200 | ignored; the repository has been moved, or the server has changed |
//! | says "ignored" | none | ignored, and everybody goes by that, even if the server has learned better since: two who go by different rules are the one thing that must not be |
//! | isn't there | to create it with "honoured", then to overwrite it as above | as above |
//!
//! Whoever only reads goes by what it says. It costs two requests a run that writes, made while other things are waited
//! for.

use std::sync::{Arc, Mutex};
use std::thread;

use super::Inner;
use super::client::Ask;
use super::retention;
use crate::lock::lock;
use crate::{Action, Kind, Result};

pub(super) const STONE: &str = "tmp/once";
const HONOURED: &[u8] = b"honoured\n";
const IGNORED: &[u8] = b"ignored\n";
/// So often somebody else may come in between.
const ATTEMPTS: usize = 5;

#[derive(Default)]
pub(super) struct Once {
    /// Seen by a test of this store's own.
    tested: Mutex<Option<bool>>,
    /// Read, for those who don't write.
    read: Mutex<Option<bool>>,
}

/// Whether conditions are, as far as the object says.
pub(super) fn is_honoured(said: Option<&[u8]>) -> bool {
    said != Some(IGNORED)
}

/// What came of a conditional put.
enum Came {
    Written,
    Refused,
    /// The server doesn't know the condition, and says so.
    Unknown,
}

/// Have it tested in the background. What fails then is told to whoever puts something.
pub(super) fn test_soon(store: &Arc<Inner>) {
    let store = store.clone();
    let _ = thread::Builder::new().name("s3-once".into()).spawn(move || store.tested());
}

impl Inner {
    /// Whether of several who create an object one alone succeeds. Writes, unless it is known.
    pub(super) fn tested(&self) -> Result<bool> {
        let mut tested = lock(&self.once.tested);
        if let Some(known) = *tested {
            return Ok(known);
        }
        let found = self.test()?;
        *tested = Some(found);
        Ok(found)
    }

    /// Whether [`Inner::tested`] would say so, as far as that can be known without writing.
    pub(super) fn looked(&self) -> Result<bool> {
        if let Some(known) = *lock(&self.once.tested) {
            return Ok(known);
        }
        let mut read = lock(&self.once.read);
        if let Some(known) = *read {
            return Ok(known);
        }
        // Where there is none nobody has written yet, but for those who put the repository there by other means.
        let found = is_honoured(self.stone()?.as_deref());
        *read = Some(found);
        Ok(found)
    }

    fn test(&self) -> Result<bool> {
        for _ in 0..ATTEMPTS {
            let body = match self.stone()? {
                Some(said) if said == IGNORED => return Ok(false),
                Some(_) => IGNORED,
                None => HONOURED,
            };
            match (self.set(body)?, body == HONOURED) {
                // It is there now: try again whether it can be overwritten.
                (Came::Written, true) => {}
                (Came::Written, false) => return Ok(false),
                (Came::Refused, false) => return Ok(true),
                // Somebody else has created it just now.
                (Came::Refused, true) => {}
                (Came::Unknown, _) => {
                    let (header, sum) = retention::sum(IGNORED);
                    let headers = [(header, sum.as_str())];
                    let ask = Ask { headers: &headers, body: IGNORED, ..Ask::new("PutObject", "PUT", STONE) };
                    self.client.done(Action::Write, &ask)?;
                    return Ok(false);
                }
            }
        }
        Err(self.because(
            Kind::Io,
            Action::Write,
            STONE,
            "it is there and isn't, again and again: the server contradicts itself",
        ))
    }

    /// What it says.
    fn stone(&self) -> Result<Option<Vec<u8>>> {
        let ask = Ask::new("GetObject", "GET", STONE);
        match self.client.call(Action::Read, &ask, &mut 0)? {
            Ok(response) => Ok(Some(response.body)),
            Err(said) if said.is_missing() => Ok(None),
            Err(said) => Err(self.client.refused(Action::Read, &ask, &said)),
        }
    }

    fn set(&self, body: &[u8]) -> Result<Came> {
        // Some buckets take nothing without its sum.
        let (header, sum) = retention::sum(body);
        let headers = [("if-none-match", "*"), (header, sum.as_str())];
        let ask = Ask { headers: &headers, body, ..Ask::new("PutObject", "PUT", STONE) };
        let mut tries = 0;
        match self.client.call(Action::Write, &ask, &mut tries)? {
            Ok(_) => Ok(Came::Written),
            // Refused by what it has written itself, when no answer came.
            Err(said) if said.is_taken() && tries > 1 && self.stone()?.as_deref() == Some(body) => Ok(Came::Written),
            Err(said) if said.is_taken() => Ok(Came::Refused),
            Err(said) if said.is_unknown_condition() => Ok(Came::Unknown),
            Err(said) => Err(self.client.refused(Action::Write, &ask, &said)),
        }
    }
}
