//! A writer's session in a repository, from its registration on.

use super::{Board, Desk, Known, Looks};
use crate::beside::beside;
use crate::{Repository, Result, random_id};
use drumlin_format::SessionId;
use drumlin_format::session::Session;

/// A session that is registered, and what it knows: whatever a writer looks at comes after this.
pub struct Registration {
    pub(crate) repository: Repository,
    pub(crate) id: SessionId,
    /// The tag of the generation that it seals in.
    pub(crate) generation: u32,
    known: Known,
}

impl Registration {
    /// Register a session, durably.
    pub fn begin(repository: &Repository, session: Session) -> Result<Self> {
        Self::begin_looking(repository, session, &Looks::default())
    }

    /// The same, for who looks at these next: where no plans stand a storage that is far away is asked for them, and
    /// for the index, along with the session.
    pub fn begin_looking(repository: &Repository, session: Session, looks: &Looks) -> Result<Self> {
        repository.may_write()?;
        let generation = repository.generation()?;
        let id = SessionId(random_id()?);
        // What killed runs left takes room that this one may need. Where it can't be cleared, a prune says so. A
        // storage that is far away does it on the side.
        let known = std::thread::scope(|scope| {
            let _ = beside(scope, "clear", || repository.store().clear_unfinished());
            super::register(&Desk::of(repository, session).looking(looks), id)
        });
        let known = known.inspect_err(|_| {
            // Whoever looks for those at work need not wait for this one.
            let _ = Desk::new(repository).remove_session(id);
        })?;
        // What didn't come along.
        looks.expect(repository);
        Ok(Registration { repository: repository.clone(), id, generation, known })
    }

    /// A collector's, which [`super::collect`] registers itself.
    ///
    /// # Errors
    /// Nothing can be sealed in the newest generation.
    pub fn of_collector(repository: &Repository, id: SessionId, known: Known) -> Result<Self> {
        let generation = repository.generation()?;
        Ok(Registration { repository: repository.clone(), id, generation, known })
    }

    /// The plans that stood.
    pub fn known(&self) -> &Known {
        &self.known
    }

    /// End a session that has written nothing.
    pub fn abandon(self) -> Result<()> {
        Desk::new(&self.repository).remove_session(self.id)
    }
}
