//! A repository that was copied to another sort of storage: one that creates atomically has a session's verdict in one
//! place, another one in flags.
//!
//! Whoever reads finds it in either. Whoever collects brings it to where this storage has it first, since the
//! protocol's steps know one form alone: a session that had committed elsewhere would look as if it were at work, and
//! be evicted with its snapshot. Verdicts are sealed for their session and not for their name, so that a session's own
//! word stays its own.

use super::{Board, Desk, Flag};
use crate::{Repository, Result, names};
use drumlin_format::decision::Verdict;
use drumlin_store::{Kind, Put};
use std::collections::HashSet;

impl Repository {
    /// Bring verdicts to where this storage has them: for whoever collects, before anything else.
    ///
    /// # Errors
    /// The storage fails.
    pub fn adopt_verdicts(&self) -> Result<()> {
        let atomically = self.store().creates_atomically()?;
        let is_at_home = |flag: &Flag| matches!(flag, Flag::Decision(_)) == atomically;
        let mut flags = HashSet::new();
        self.store().list(names::DECISIONS, &mut |listed| flags.extend(Flag::parse(names::last(&listed.name))))?;
        let mut strangers: Vec<Flag> = flags.iter().filter(|flag| !is_at_home(flag)).copied().collect();
        // An eviction counts more than the writer's word.
        strangers.sort_by_key(|flag| !matches!(flag, Flag::Evicted(_)));
        for stranger in strangers {
            self.adopt(stranger, atomically)?;
        }
        Ok(())
    }

    fn adopt(&self, stranger: Flag, atomically: bool) -> Result<()> {
        let (desk, session) = (Desk::new(self), stranger.session());
        let bytes = match self.store().get(&stranger.name()) {
            Err(e) if e.kind == Kind::Missing => return Ok(()),
            other => other?,
        };
        // Of one that can't be read what it stands for: its bytes stand for that at home as well.
        let home = match desk.verdict(stranger)? {
            // It means nothing, and nobody confirms it here.
            None | Some(Verdict::Claimed { .. }) => None,
            Some(_) if atomically => Some(Flag::Decision(session)),
            Some(Verdict::Evicted { .. }) => Some(Flag::Evicted(session)),
            Some(_) => Some(Flag::Commit(session)),
        };
        if let Some(home) = home {
            let how = if atomically { Put::Create } else { Put::Replace };
            match self.store().put(&home.name(), &bytes, how) {
                // Who has decided here was first.
                Err(e) if e.kind == Kind::Exists => {}
                put => put?,
            }
        }
        Ok(self.store().delete(&stranger.name())?)
    }
}
