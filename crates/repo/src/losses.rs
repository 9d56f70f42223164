//! Losses: what a repair could not heal.

use crate::{Error, Repository, Result, names, random_id};
use drumlin_format::LossId;
use drumlin_format::key::Role;
use drumlin_format::loss::Loss;
use drumlin_store::{Kind, Put, WHOLE_BYTES_MAX};

/// Losses, as far as they can be read.
#[derive(Default)]
pub struct Losses {
    /// Those that somebody signed who may.
    pub whole: Vec<Loss>,
    /// Those that are damaged, and what of them.
    pub broken: Vec<(LossId, Error)>,
    /// Those that nobody signed who may: they say nothing.
    pub idle: Vec<LossId>,
}

impl Repository {
    /// The losses that stand, by their ids.
    pub fn loss_ids(&self) -> Result<Vec<LossId>> {
        self.ids(names::LOSSES, LossId::parse)
    }

    /// The losses that stand and that somebody signed who may.
    ///
    /// # Errors
    /// One of them is damaged.
    pub fn losses(&self) -> Result<Vec<Loss>> {
        let Losses { whole, broken, .. } = self.readable_losses()?;
        broken.into_iter().next().map_or(Ok(whole), |(_, e)| Err(e))
    }

    /// The losses that stand and that somebody signed who may, and those that are damaged.
    ///
    /// # Errors
    /// The storage fails, or one is sealed with secrets that came since.
    pub fn readable_losses(&self) -> Result<Losses> {
        let ids = self.loss_ids()?;
        if ids.is_empty() {
            return Ok(Losses::default());
        }
        let trusted = self.trusted_keys()?;
        let mut losses = Losses::default();
        for id in ids {
            let name = names::loss(id);
            let bytes = match self.store().get(&name) {
                Err(e) if e.kind == Kind::Missing => continue,
                // Nobody writes such a one: who may add put it there.
                Err(e) if self.store().len(&name)?.is_some_and(|len| len > WHOLE_BYTES_MAX) => {
                    losses.broken.push((id, e.into()));
                    continue;
                }
                other => other?,
            };
            let (loss, signer) = match Loss::open(id, self.secrets(), &bytes).map_err(Error::damaged(&name)) {
                Err(e) if !e.is_unknown_generation() => {
                    losses.broken.push((id, e));
                    continue;
                }
                other => other?,
            };
            let key = trusted.get(&signer.key).filter(|key| matches!(key.role, Role::Owner | Role::Keeper));
            match key.is_some_and(|key| signer.verify(&key.verifying).is_ok()) {
                true => losses.whole.push(loss),
                false => losses.idle.push(id),
            }
        }
        Ok(losses)
    }

    /// Put a loss, durably.
    pub fn put_loss(&self, loss: &Loss) -> Result<()> {
        let bytes = loss.seal(self.config().suite, self.sealing()?);
        Ok(self.store().put(&names::loss(loss.id), &bytes, Put::Create)?)
    }

    /// Put a loss in its own place that says less than before.
    pub fn narrow_loss(&self, loss: &Loss) -> Result<()> {
        let bytes = loss.seal(self.config().suite, self.sealing()?);
        Ok(self.store().put(&names::loss(loss.id), &bytes, Put::Replace)?)
    }

    /// Put each loss once more, by another name: whoever has met it meets it again.
    pub fn renew_losses(&self) -> Result<()> {
        for loss in self.readable_losses()?.whole {
            self.put_loss(&Loss { id: LossId(random_id()?), ..loss.clone() })?;
            self.remove_loss(loss.id)?;
        }
        Ok(())
    }

    /// Remove a loss: it stands no more, or another one says what still does.
    pub fn remove_loss(&self, id: LossId) -> Result<()> {
        Ok(self.store().delete(&names::loss(id))?)
    }
}
