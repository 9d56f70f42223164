//! Clearing away what writers that are gone left in `tmp/`: by the rules of [`crate::whose`], and by the server's
//! clock.

use super::Inner;
use super::objects::{BORN, NEW};
use super::peer::{Peer, Trouble};
use super::wire::{Request, Sort, status};
use crate::name::TMP;
use crate::whose::{Writer, is_running};
use crate::{Action, Cleared, Result};
use std::time::Duration;

impl Inner {
    /// Remove what may be removed. What can't be doesn't keep the rest from going; the first such failure is told.
    pub(super) fn clear(&self) -> Result<Cleared> {
        let mut cleared = Cleared::default();
        let stale: Vec<(String, u64, Duration, Option<u32>)> = self
            .entries(TMP)?
            .into_iter()
            .filter(|entry| entry.attrs.sort() == Sort::File)
            .filter_map(|entry| {
                let name = String::from_utf8(entry.name).ok()?;
                let patience = Writer::parse(&name)?.patience(Writer::this(), is_running)?;
                Some((format!("{TMP}/{name}"), entry.attrs.size.unwrap_or(0), patience, entry.attrs.mtime))
            })
            .collect();
        if stale.is_empty() {
            return Ok(cleared);
        }
        let mut failed = None;
        self.run(Action::Delete, TMP, |peer| {
            if !peer.abilities()?.rename {
                return Ok(());
            }
            let mut now = None;
            for (name, len, patience, written) in &stale {
                if !patience.is_zero() {
                    let now = match now {
                        Some(now) => now,
                        None => *now.insert(self.clock(peer)?),
                    };
                    let silent = now.saturating_sub(i64::from(written.unwrap_or(u32::MAX)));
                    if silent < patience.as_secs().cast_signed() {
                        continue;
                    }
                }
                match peer.one(&Request::Remove { path: &self.path(name) })?.done() {
                    Ok(()) => {
                        cleared.files += 1;
                        cleared.bytes += len;
                    }
                    Err(trouble) if trouble.is(status::NO_SUCH_FILE) => {}
                    Err(trouble) => failed = failed.take().or(Some(self.error(Action::Delete, name, &trouble))),
                }
            }
            Ok(())
        })?;
        failed.map_or(Ok(cleared), Err)
    }

    /// What time it is on the server, in seconds since 1970: when a file was made there just now.
    fn clock(&self, peer: &Peer) -> std::result::Result<i64, Trouble> {
        let path = self.path(&self.temporary().map_err(|_| Trouble::Odd)?);
        let handle = peer.one(&Request::Open { path: &path, flags: NEW, mode: Some(BORN) })?.handle()?;
        let looked = peer.one(&Request::FileStat { handle: &handle })?.attrs();
        peer.tell(&Request::Close { handle: &handle });
        peer.tell(&Request::Remove { path: &path });
        looked?.mtime.map(i64::from).ok_or(Trouble::Odd)
    }
}
