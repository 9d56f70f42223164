//! Listings: page after page, each object of ours once.
//!
//! What other programs have put there, under names that ours can't have, is passed over.

use super::Inner;
use super::client::Ask;
use super::xml;
use crate::name::{self, TMP};
use crate::{Action, Kind, Listed, Result};

/// More pages than any repository has: a hundred million objects.
pub(super) const PAGES_MAX: usize = 100_000;
/// A page of a thousand keys of the longest sort.
pub(super) const PAGE_BYTES_MAX: usize = 16 << 20;

impl Inner {
    /// Give each object below `prefix`.
    pub(super) fn list(&self, prefix: &str, each: &mut dyn FnMut(Listed)) -> Result<()> {
        let base = &self.client.settings().base;
        let of = if prefix.is_empty() { base.clone() } else { format!("{base}{prefix}/") };
        self.pages(prefix, &of, &mut |key, len| {
            let name =
                key.strip_prefix(base.as_str()).filter(|name| name::is_name(name) && name::is_below(name, prefix));
            if let Some(name) = name {
                match len {
                    Some(len) => each(Listed { name: name.to_owned(), len }),
                    None => {
                        return Err(self.because(
                            Kind::Io,
                            Action::List,
                            name,
                            "the server doesn't say how long it is",
                        ));
                    }
                }
            }
            Ok(true)
        })
    }

    /// [`Kind::Exists`] if there is anything where a new repository is to be.
    pub(super) fn is_empty(&self) -> Result<()> {
        let base = &self.client.settings().base;
        let mut other = None;
        self.pages("", base, &mut |key, _| {
            let name = key.strip_prefix(base.as_str()).unwrap_or(key);
            // What an interrupted attempt left, and what a web page leaves that shows folders, is no obstacle.
            if !name.is_empty() && name.split('/').next() != Some(TMP) {
                other = Some(key.to_owned());
            }
            Ok(other.is_none())
        })?;
        let Some(other) = other else { return Ok(()) };
        let cause = format!(
            "there are objects in it already, such as '{}'; a new repository needs an empty bucket, or a prefix of its own in it",
            other.escape_debug()
        );
        Err(self.because(Kind::Exists, Action::CreateRepository, "", &cause))
    }

    /// Each key that begins so, until `each` says `false`.
    fn pages(&self, folder: &str, prefix: &str, each: &mut dyn FnMut(&str, Option<u64>) -> Result<bool>) -> Result<()> {
        let odd = |cause: &str| self.because(Kind::Io, Action::List, folder, cause);
        let mut token: Option<String> = None;
        for _ in 0..PAGES_MAX {
            let mut query = vec![("list-type", "2"), ("prefix", prefix)];
            if let Some(token) = &token {
                query.push(("continuation-token", token));
            }
            let ask = Ask { name: None, query: &query, most: PAGE_BYTES_MAX, ..Ask::new("ListBucket", "GET", "") };
            let response = self.client.done(Action::List, &ask)?;
            let text = String::from_utf8_lossy(&response.body);
            let page = xml::element(&text, "ListBucketResult")
                .ok_or_else(|| odd("what answers there gives no listing as S3 does: is its address right?"))?;
            for entry in xml::elements(page, "Contents") {
                let key = xml::text(entry, "Key").ok_or_else(|| odd("the server lists an object without a name"))?;
                let len = xml::text(entry, "Size").and_then(|len| len.trim().parse().ok());
                if !each(&key, len)? {
                    return Ok(());
                }
            }
            if xml::text(page, "IsTruncated").is_none_or(|more| more.trim() != "true") {
                return Ok(());
            }
            let next = xml::text(page, "NextContinuationToken").filter(|token| !token.is_empty());
            if next.is_none() || next == token {
                return Err(odd("the server cuts its listing short and doesn't say how it goes on"));
            }
            token = next;
        }
        Err(odd("the server's listing has no end"))
    }
}
