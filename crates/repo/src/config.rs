//! The config as a repository has it: twice.

use crate::twice::{Counts, Examined, Mended, Twice};
use crate::{Error, Repository, Result, names};
use drumlin_format::config::Config;
use drumlin_store::Store;

fn twice<'a>(store: &'a dyn Store, decode: impl Fn(&[u8]) -> drumlin_format::Result<Config> + 'a) -> Twice<'a, Config> {
    Twice { store, name: names::CONFIG.into(), decode: Box::new(decode), counts, copy_is_owed: false }
}

/// A copy of a higher generation is what a rekey left that was cut short, or the config is an old one: the next rekey
/// is past both.
fn counts(config: &Config, copy: &Config) -> Counts {
    if copy.generation > config.generation { Counts::Neither } else { Counts::Object }
}

/// Read the config, and tell whether it was its copy that was read.
pub(crate) fn read(store: &dyn Store) -> Result<(Config, bool)> {
    twice(store, Config::decode).read().map_err(|e| match e.is_missing() {
        // Where even what it should be in is missing, the store says so.
        true if e.is_of_one_object() && was_used(store) => Error::NoConfig { location: store.location() },
        true if e.is_of_one_object() => Error::NoRepository { location: store.location() },
        _ => e,
    })
}

/// Whether something was ever saved here, which takes a config: as far as that can be told.
fn was_used(store: &dyn Store) -> bool {
    [names::SNAPSHOTS, names::INDEX].iter().any(|folder| {
        let mut found = false;
        store.list(folder, &mut |_| found = true).is_ok() && found
    })
}

impl Repository {
    fn config_twice(&self) -> Twice<'_, Config> {
        let decode = |bytes: &[u8]| {
            let config = Config::decode(bytes)?;
            match config.id == self.config().id && config.owner == self.config().owner {
                true => Ok(config),
                false => Err(drumlin_format::Error::Malformed {
                    object: "config",
                    detail: "it is another repository's: its id or its owner is not what the key in use names",
                }),
            }
        };
        twice(&**self.store(), decode)
    }

    /// See whether the config and its copy are sound and the same.
    ///
    /// # Errors
    /// The storage fails.
    pub fn examine_config(&self) -> Result<Examined<Config>> {
        self.config_twice().examine()
    }

    /// The config as it is now.
    pub(crate) fn config_now(&self) -> Result<Config> {
        let config = self.read_twice(&twice(&**self.store(), Config::decode))?;
        if config.id != self.config().id || config.owner != self.config().owner {
            return Err(Error::OtherRepository {
                expected: self.config().id.to_string(),
                found: config.id.to_string(),
                location: self.store().location(),
            });
        }
        Ok(config)
    }

    /// Put the config and its copy right, each by the other one.
    ///
    /// # Errors
    /// The storage fails, or this user may not.
    pub fn mend_config(&self) -> Result<Mended> {
        let twice = self.config_twice();
        if self.store().retains() && !twice.examine()?.troubles.is_empty() {
            // Put anew, the config would be locked for the whole time, by which that of all others is told.
            self.retain_others(&|| false)?;
        }
        self.mend_twice(&twice)
    }
}
