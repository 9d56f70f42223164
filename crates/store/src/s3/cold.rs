//! Cold storage: what has to be brought back before it can be read.
//!
//! A server keeps a copy of it at hand for some days, and says in each object's head how far it is.

use super::Inner;
use super::client::Ask;
use crate::{Action, Haste, Kind, Result, Thaw};

/// How long what was brought back stays at hand: as long as a large restore may take over a slow line.
const DAYS: u32 = 7;
/// Classes from which everything can be read at once; those that providers have besides are asked for.
const AT_HAND: [&str; 8] = [
    "STANDARD",
    "STANDARD_IA",
    "ONEZONE_IA",
    "GLACIER_IR",
    "INTELLIGENT_TIERING",
    "REDUCED_REDUNDANCY",
    "EXPRESS_ONEZONE",
    "OUTPOSTS",
];

impl Inner {
    /// See [`crate::Store::thaw`].
    pub(super) fn thaw(&self, name: &str, haste: Haste) -> Result<Thaw> {
        self.thaw_version(name, None, haste)
    }

    /// Thaw a version of an object, or the one that is there now.
    pub(super) fn thaw_version(&self, name: &str, version: Option<&str>, haste: Haste) -> Result<Thaw> {
        let Some(head) = self.head_version(Action::Thaw, name, version)? else {
            return Err(self.because(Kind::Missing, Action::Thaw, name, "there is no such object"));
        };
        // A deeper tier that the provider itself has moved it to; what comes back from there stays.
        let has_sunk = head.header("x-amz-archive-status").is_some();
        match head.header("x-amz-restore") {
            Some(said) if said.contains("ongoing-request=\"true\"") => return Ok(Thaw::Coming),
            Some(_) => return Ok(Thaw::Ready),
            None if has_sunk => {}
            None if head.header("x-amz-storage-class").is_none_or(|class| AT_HAND.contains(&class)) => {
                return Ok(Thaw::Ready);
            }
            None => {}
        }
        let tier = match haste {
            Haste::Bulk => "Bulk",
            Haste::Standard => "Standard",
            Haste::Expedited => "Expedited",
        };
        let days = if has_sunk { String::new() } else { format!("<Days>{DAYS}</Days>") };
        let body = format!(
            "<RestoreRequest xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">{days}<GlacierJobParameters><Tier>{tier}</Tier>\
             </GlacierJobParameters></RestoreRequest>"
        );
        let version = version.map(|version| ("versionId", version));
        let query: Vec<_> = version.into_iter().chain([("restore", "")]).collect();
        let ask = Ask { query: &query, body: body.as_bytes(), ..Ask::new("RestoreObject", "POST", name) };
        match self.client.call(Action::Thaw, &ask, &mut 0)? {
            Ok(response) if response.status == 200 => Ok(Thaw::Ready),
            Ok(_) => Ok(Thaw::Coming),
            // Somebody has asked for it just now.
            Err(said) if said.code == "RestoreAlreadyInProgress" => Ok(Thaw::Coming),
            // It isn't in cold storage.
            Err(said) if said.code == "InvalidObjectState" => Ok(Thaw::Ready),
            Err(said) => Err(self.client.refused(Action::Thaw, &ask, &said)),
        }
    }
}
