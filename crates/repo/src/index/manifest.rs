//! Which runs make up the cached index, and which index objects each of them covers.
//!
//! Replaced in one step after new runs are complete. Several processes share the folder: a run is never changed, and
//! one that no manifest names any more is removed by whoever saves the next manifest, unless it is younger than the
//! process that might still be writing it (its name tells which process that is).

use super::layers::Gone;
use super::run::{Run, cache_error};
use super::sync::Objects;
use crate::cache::{self, replace_file};
use crate::{Cache, Error, Result, random_id};
use drumlin_format::IndexId;
use drumlin_seal::checksum;
use drumlin_store::descriptors;
use minicbor::{Decode, Encode};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// A run and what it covers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(super) struct Covered {
    /// The run's file; empty for one without a name.
    #[n(0)]
    pub name: String,
    /// The index objects whose packs it holds, in the order of these.
    #[n(1)]
    objects: Vec<IndexId>,
    /// How many packs each of them names.
    #[n(2)]
    packs: Vec<u32>,
}

impl Covered {
    pub fn one(object: IndexId, packs: usize) -> Self {
        let mut covered = Covered::default();
        covered.add(object, packs);
        covered
    }

    /// The same in a file of this name.
    pub fn named(self, name: String) -> Self {
        Covered { name, ..self }
    }

    /// Behind those before, so many packs of this object.
    pub fn add(&mut self, object: IndexId, packs: usize) {
        self.objects.push(object);
        self.packs.push(packs as u32);
    }

    /// Whether it covers nothing.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }

    /// The index objects, and how many packs each names.
    pub fn objects(&self) -> impl Iterator<Item = (IndexId, u32)> {
        self.objects.iter().copied().zip(self.packs.iter().copied())
    }

    /// Whether that is about a run of so many packs.
    pub fn fits(&self, packs: usize) -> bool {
        self.objects.len() == self.packs.len() && self.packs.iter().map(|n| *n as usize).sum::<usize>() == packs
    }

    /// Which packs are of an object that isn't among these. `None` if most of them are: the run is of little use.
    pub fn gone(&self, objects: &Objects) -> Option<Gone> {
        if self.objects.iter().all(|object| objects.contains_key(object)) {
            return Some(Gone::default());
        }
        let of = |(object, packs)| std::iter::repeat_n(!objects.contains_key(&object), packs as usize);
        let gone: Gone = self.objects().flat_map(of).collect();
        (2 * gone.iter().filter(|gone| **gone).count() <= gone.len()).then_some(gone)
    }
}

/// The list of runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
#[cbor(map)]
pub(super) struct Manifest {
    /// The runs, oldest first.
    #[n(0)]
    pub runs: Vec<Covered>,
}

const NAME: &str = "manifest";

impl Manifest {
    /// What the cache names; empty if there is none, or none that is sound.
    pub fn load(folder: Option<&Path>) -> Self {
        let read = || {
            let path = folder?.join(NAME);
            let bytes = descriptors::wait_for(|| fs::read(&path)).ok()?;
            let (body, sum) = bytes.split_last_chunk::<16>()?;
            (*sum == checksum(body)).then(|| minicbor::decode(body).ok())?
        };
        read().unwrap_or_default()
    }

    /// Save it, and remove runs that it doesn't name. It names what other processes have made meanwhile, too, whose runs
    /// are not `known`; and no file that somebody else has removed. What it names of its own is known from then on.
    pub fn save(mut self, folder: Option<&Path>, known: &mut HashSet<String>) -> Result<()> {
        let Some(folder) = folder else { return Ok(()) };
        self.runs.retain(|run| folder.join(&run.name).exists());
        known.extend(self.runs.iter().map(|run| run.name.clone()));
        let is_new = |run: &Covered| !known.contains(&run.name) && folder.join(&run.name).exists();
        self.runs.extend(Manifest::load(Some(folder)).runs.into_iter().filter(is_new));
        let mut bytes = Vec::new();
        minicbor::encode(&self, &mut bytes).expect("encoding to memory can't fail");
        let sum = checksum(&bytes);
        bytes.extend_from_slice(&sum);
        replace_file(&folder.join(NAME), &bytes)?;
        self.sweep(folder);
        Ok(())
    }

    /// What can't be removed now will be another time.
    fn sweep(&self, folder: &Path) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let Some(writer) = name.strip_prefix("run-").and_then(|rest| rest.split('-').next()) else { continue };
            let others = writer != std::process::id().to_string() && Path::new("/proc").join(writer).exists();
            if !others && !self.runs.iter().any(|r| r.name == name) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

/// Without runs that cover nothing which others don't: processes that are at work at the same time make the same.
pub(super) fn each_once<T>(runs: Vec<T>, covered: impl Fn(&T) -> &Covered) -> Vec<T> {
    let mut order: Vec<usize> = (0..runs.len()).collect();
    order.sort_by_key(|at| Reverse(covered(&runs[*at]).objects.len()));
    let (mut met, mut needed) = (HashSet::new(), vec![false; runs.len()]);
    for at in order {
        // All of them are to be noted.
        let new = covered(&runs[at]).objects.iter().filter(|object| met.insert(**object)).count();
        needed[at] = new > 0;
    }
    runs.into_iter().zip(needed).filter(|(_, needed)| *needed).map(|(run, _)| run).collect()
}

/// Remove a run that came to nothing, so that it takes no room.
pub(super) fn remove_run(folder: Option<&Path>, name: &str) {
    if let Some(folder) = folder.filter(|_| !name.is_empty()) {
        // What can't be removed now is swept later.
        let _ = std::fs::remove_file(folder.join(name));
    }
}

/// A run and its name, if it has one: in the cache, if anything is kept there; where that has no room, in a file of
/// this process alone; and in memory, where there is none for that either. `told` hears why it isn't where it should
/// be.
///
/// # Errors
/// It can't be written anywhere.
pub(super) fn make_run(
    cache: &Cache,
    folder: Option<&Path>,
    write: impl Fn(File) -> io::Result<Run>,
    told: impl Fn(Error),
) -> Result<(Run, String)> {
    let unnamed = |file: Result<File>| Ok((file?, String::new()));
    let places: [&dyn Fn() -> Result<(File, String)>; 3] =
        [&|| new_run(cache, folder), &|| unnamed(cache.file_elsewhere()), &|| unnamed(cache::file_in_memory())];
    let mut outcome = None;
    for place in places {
        let made = place().and_then(|(file, name)| match write(file) {
            Ok(run) => Ok((run, name)),
            Err(e) => {
                remove_run(folder, &name);
                Err(cache_error("use the index in", folder.unwrap_or(Path::new("(in memory)")))(e))
            }
        });
        match made {
            Ok(made) => {
                outcome.into_iter().for_each(told);
                return Ok(made);
            }
            // The first place is the one that its owner can do something about.
            Err(e) => outcome = outcome.or(Some(e)),
        }
    }
    Err(outcome.expect("all places failed"))
}

/// A file for a new run and its name; without a name where nothing is kept.
pub(super) fn new_run(cache: &Cache, folder: Option<&Path>) -> Result<(File, String)> {
    let Some(folder) = folder else { return Ok((cache.scratch_file()?, String::new())) };
    let random: String = random_id()?.iter().map(|b| format!("{b:02x}")).collect();
    let name = format!("run-{}-{random}", std::process::id());
    let path = folder.join(&name);
    let open = || OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path);
    let file = descriptors::wait_for(open);
    Ok((file.map_err(cache_error("make", &path))?, name))
}
