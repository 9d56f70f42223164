//! A writer's session in a repository, from its registration on.

use super::{Board, Desk, Known, Listing};
use crate::beside::beside;
use crate::{Repository, Result, random_id};
use drumlin_format::SessionId;
use drumlin_format::session::Session;
use std::sync::{Mutex, PoisonError};

/// A session that is registered, and what it knows: whatever a writer looks at comes after this.
pub struct Registration {
    pub(crate) repository: Repository,
    pub(crate) id: SessionId,
    /// The tag of the generation that it seals in.
    pub(crate) generation: u32,
    known: Known,
    /// What was listed right behind the plans, for whoever reads the index first.
    listing: Mutex<Option<Listing>>,
}

impl Registration {
    /// Register a session, durably.
    pub fn begin(repository: &Repository, session: Session) -> Result<Self> {
        Registration::begin_with(repository, session, &|| ())
    }

    /// The same. `stands` is called once the session stands, before anything is read: for hints of what will be asked for
    /// ([`drumlin_store::Store::expect`]), so that nobody waits for that after all else was read. What they find is older than the plans that
    /// are known: fit to tell that something is there which every plan admits, as no collector that doesn't know the session can
    /// take that away; not to be read as an index.
    pub fn begin_with(repository: &Repository, session: Session, stands: &dyn Fn()) -> Result<Self> {
        repository.may_write()?;
        let generation = repository.generation()?;
        let id = SessionId(random_id()?);
        // What killed runs left takes room that this one may need. Where it can't be cleared, a prune says so. A storage that
        // is far away does it on the side.
        let desk = Desk::of(repository, session).beginning(stands);
        let known = std::thread::scope(|scope| {
            let _ = beside(scope, "clear", || repository.store().clear_unfinished());
            super::register(&desk, id)
        });
        let known = known.inspect_err(|_| {
            // Whoever looks for those at work need not wait for this one.
            let _ = Desk::new(repository).remove_session(id);
        })?;
        let listing = Mutex::new(desk.into_listing());
        Ok(Registration { repository: repository.clone(), id, generation, known, listing })
    }

    /// A collector's, which [`super::collect`] registers itself.
    ///
    /// # Errors
    /// Nothing can be sealed in the newest generation.
    pub fn of_collector(repository: &Repository, id: SessionId, known: Known) -> Result<Self> {
        let generation = repository.generation()?;
        Ok(Registration { repository: repository.clone(), id, generation, known, listing: Mutex::default() })
    }

    /// The plans that stood.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// What was listed right behind the plans; once. Whoever asks later has to look anew.
    pub(crate) fn listing(&self) -> Option<Listing> {
        self.listing.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// End a session that has written nothing.
    pub fn abandon(self) -> Result<()> {
        Desk::new(&self.repository).remove_session(self.id)
    }
}
