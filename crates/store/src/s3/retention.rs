//! Object lock: for some days after an object was written, or seen to, nobody can remove it for good.
//!
//! A bucket with object lock keeps all versions of its objects. A removal only hides an object, under a mark that can
//! be taken away again; the version below it can't be removed before its time is over.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::Inner;
use super::client::Ask;
use super::http::Response;
use super::time;
use crate::{Action, Result};

const DAY: i64 = 86_400;
/// A hundred years, which is more than any server takes.
const DAYS_MAX: u32 = 36_500;

/// For how long objects are kept from being removed, and how strictly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectLock {
    /// Days from when an object is written or seen to.
    pub days: u32,
    /// Nobody at all can shorten it (S3's mode COMPLIANCE); else whoever has a right of its own for that can
    /// (GOVERNANCE).
    pub is_strict: bool,
}

impl ObjectLock {
    fn mode(self) -> &'static str {
        if self.is_strict { "COMPLIANCE" } else { "GOVERNANCE" }
    }
}

/// `30`, `governance:30` or `compliance:30`. The error says what is wrong.
impl FromStr for ObjectLock {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let (mode, days) = text.split_once(':').unwrap_or(("governance", text));
        let is_strict = match mode {
            "governance" => false,
            "compliance" => true,
            _ => return Err("the mode is 'governance' or 'compliance'".to_owned()),
        };
        match days.parse() {
            Ok(days @ 1..=DAYS_MAX) => Ok(ObjectLock { days, is_strict }),
            _ => Err(format!("days are a number from 1 to {DAYS_MAX}")),
        }
    }
}

impl fmt::Display for ObjectLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", if self.is_strict { "compliance" } else { "governance" }, self.days)
    }
}

/// The sum by which a server sees that a locked object is what was sent: it takes none without.
pub(super) fn sum(bytes: &[u8]) -> (&'static str, String) {
    ("content-md5", BASE64.encode(md5::compute(bytes).0))
}

impl Inner {
    /// What to say of an object's retention when it is made; nothing, if it has none.
    pub(super) fn retention(&self, name: &str) -> Vec<(&'static str, String)> {
        let Some(lock) = self.client.settings().lock(name) else { return Vec::new() };
        vec![
            ("x-amz-object-lock-mode", lock.mode().to_owned()),
            ("x-amz-object-lock-retain-until-date", time::iso_of(self.end(lock))),
        ]
    }

    /// The sum of what is sent, where the server takes nothing without.
    pub(super) fn sum(&self, name: &str, bytes: &[u8]) -> Option<(&'static str, String)> {
        let wanted = self.wants_sums.load(Ordering::Relaxed) || self.client.settings().lock(name).is_some();
        wanted.then(|| sum(bytes))
    }

    fn end(&self, lock: ObjectLock) -> i64 {
        self.client.now() + i64::from(lock.days) * DAY
    }

    /// See [`crate::Store::retain`].
    pub(super) fn retain(&self, name: &str) -> Result<()> {
        let Some(lock) = self.client.settings().lock(name) else { return Ok(()) };
        let end = self.end(lock);
        let body = format!(
            "<Retention xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Mode>{}</Mode><RetainUntilDate>{}</RetainUntilDate></Retention>",
            lock.mode(),
            time::iso_of(end)
        );
        let (sum, of_body) = sum(body.as_bytes());
        let ask = Ask {
            query: &[("retention", "")],
            headers: &[(sum, &of_body)],
            body: body.as_bytes(),
            ..Ask::new("PutObjectRetention", "PUT", name)
        };
        match self.client.call(Action::Lock, &ask, &mut 0)? {
            Ok(_) => Ok(()),
            Err(said) if said.is_missing() && !said.code.starts_with("ObjectLock") => Ok(()),
            // Removed meanwhile: what a mark hides is no object that could be locked, whatever the server calls that.
            Err(_) if self.len(name)?.is_none() => Ok(()),
            // It is locked for longer, or more strictly, by a rule of the bucket's perhaps: that stays as it is.
            Err(_) if self.retained_until(name)?.is_some_and(|until| until >= end - DAY) => Ok(()),
            Err(said) => Err(self.client.refused(Action::Lock, &ask, &said)),
        }
    }

    /// See that what was put in parts is locked: some servers (Ceph's 16.2) forget what such an upload was begun with.
    pub(super) fn see_retained(&self, name: &str) -> Result<()> {
        match self.client.settings().lock(name) {
            Some(_) if self.retained_until(name)?.is_none() => self.retain(name),
            _ => Ok(()),
        }
    }

    /// See [`crate::Store::retains`].
    pub(super) fn retains(&self) -> bool {
        self.client.settings().locks()
    }

    /// See [`crate::Store::retention_ends_soon`].
    pub(super) fn retention_ends_soon(&self, name: &str) -> Result<bool> {
        let Some(lock) = self.client.settings().lock(name) else { return Ok(false) };
        let whole = i64::from(lock.days) * DAY;
        let Some(head) = self.head(Action::Find, name)? else { return Ok(true) };
        // More strictly than it is now is not for later.
        let is_loose = lock.is_strict && head.header("x-amz-object-lock-mode").is_some_and(|mode| mode != lock.mode());
        // One that is locked for longer, by somebody who once asked for more days or who has the right to, says nothing
        // of others.
        let is_in_time = |left: i64| (whole / 2..=whole + DAY).contains(&left);
        Ok(is_loose || end_of(&head).is_none_or(|until| !is_in_time(until - self.client.now())))
    }

    /// When an object's retention ends; `None` if it has none, or this user may not know.
    fn retained_until(&self, name: &str) -> Result<Option<i64>> {
        Ok(self.head(Action::Find, name)?.as_ref().and_then(end_of))
    }
}

fn end_of(head: &Response) -> Option<i64> {
    head.header("x-amz-object-lock-retain-until-date").and_then(time::iso)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_users_say() {
        for (said, days, is_strict) in
            [("30", 30, false), ("governance:1", 1, false), ("compliance:36500", 36_500, true)]
        {
            assert_eq!(said.parse(), Ok(ObjectLock { days, is_strict }));
        }
        assert_eq!("30".parse::<ObjectLock>().unwrap().to_string(), "governance:30");
        for odd in ["", "0", "-1", "36501", "strict:3", "compliance:", ":3", "3:compliance"] {
            assert!(odd.parse::<ObjectLock>().is_err(), "{odd}");
        }
    }

    #[test]
    fn the_sum_is_the_one_of_rfc_1864() {
        // RFC 1321's test of "abc", in base64.
        assert_eq!(sum(b"abc"), ("content-md5", "kAFQmDzST7DWlj99KOF/cg==".to_owned()));
    }
}
