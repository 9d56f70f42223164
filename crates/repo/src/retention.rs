//! Retention: objects that the storage keeps from being removed, for a while that has to be begun anew now and then.
//!
//! The config is the last one whose time is begun anew, so that how much of it is left tells how long ago all the
//! others' was. What is written meanwhile has its whole time.

use crate::{Repository, Result, names};

/// Objects that are held in memory at once.
const AT_ONCE: usize = 4096;

impl Repository {
    /// Begin the time anew for which the storage keeps objects from being removed, if the user has asked for that and
    /// less than half of it is left. How many objects that were: 0, most often, for one request. Where `stop` says so,
    /// it ends before it is done.
    ///
    /// # Errors
    /// The storage doesn't do it, or this user may not. The next call begins anew.
    pub fn retain(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<u64> {
        if !self.store().retention_ends_soon(names::CONFIG)? {
            return Ok(0);
        }
        let retained = self.retain_others(stop)?;
        if stop() {
            return Ok(retained);
        }
        self.store().retain(names::CONFIG)?;
        Ok(retained + 1)
    }

    /// Begin it anew for everything but the config: before that is written anew, which begins its own time.
    pub(crate) fn retain_others(&self, stop: &(dyn Fn() -> bool + Sync)) -> Result<u64> {
        let (store, mut retained) = (self.store(), 0);
        if !store.retains() {
            return Ok(0);
        }
        let one = |name: &String| if stop() { Ok(()) } else { store.retain(name) };
        if store.len(names::CONFIG_COPY)?.is_some() {
            one(&names::CONFIG_COPY.to_owned())?;
            retained += 1;
        }
        for folder in names::LASTING.into_iter().filter(|name| ![names::CONFIG, names::CONFIG_COPY].contains(name)) {
            let (mut held, mut done) = (Vec::new(), Ok(Vec::new()));
            store.list(folder, &mut |listed| {
                retained += 1;
                held.push(listed.name);
                if held.len() == AT_ONCE && done.is_ok() {
                    done = self.ask_many(&std::mem::take(&mut held), one);
                }
            })?;
            done?;
            self.ask_many(&held, one)?;
        }
        Ok(retained)
    }
}
