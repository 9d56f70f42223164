//! The generations of a repository as a key sees them: which there are, which is the newest, what it opens.
//!
//! Each stands there twice (`twice`). Everything new is sealed in the newest one. Where that can't be had, because its
//! object is gone or because the key was not given it, what there is can still be read, and nothing is written.

use crate::lock::lock;
use crate::twice::{Counts, Found, Mended, Twice};
use crate::{Error, Repository, Result, names};
use drumlin_format::config::Config;
use drumlin_format::generation::Generation;
use drumlin_format::key::Secrets;
use drumlin_format::pack::PackKind;
use drumlin_format::snapshot::Recipient;
use drumlin_format::{FRESH_BYTES, Sealing};
use drumlin_seal::{PublicKey, checksum};
use drumlin_store::Store;
use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// The generations behind the first, as they were when the repository was opened.
#[derive(Clone, Default)]
pub struct Generations {
    /// Those whose objects are sound, in the order of their numbers.
    sound: Vec<(Generation, [u8; 16])>,
    /// Objects that are none, and what is wrong with them; and shares that this key can't open.
    broken: Vec<(u32, String)>,
    /// The highest number that the config or the key speaks of.
    expected: u32,
}

/// What was met since then.
#[derive(Default)]
pub(crate) struct Met {
    /// New secrets.
    is_rekeyed: AtomicBool,
    is_behind: AtomicBool,
    /// Tags of generations that nobody has given since, whose objects are gone or damaged.
    lost: Mutex<BTreeSet<u32>>,
}

impl Generations {
    /// Read them, and let the secrets learn what is handed to their key.
    pub(crate) fn read(store: &dyn Store, config: &Config, secrets: &mut Secrets) -> Result<Self> {
        let known = secrets.generations.last().map_or(0, |of| of.number);
        let mut generations = Generations { expected: config.generation.max(known), ..Generations::default() };
        if generations.expected == 0 {
            return Ok(generations);
        }
        let mut numbers = Vec::new();
        store.list(names::GENERATIONS, &mut |listed| numbers.extend(names::generation_number(&listed.name)))?;
        numbers.sort_unstable();
        numbers.dedup();
        for number in numbers {
            let mut trouble = None;
            let twice = twice(store, config, number);
            for name in twice.names() {
                match twice.find(&name)? {
                    Found::Sound(generation, bytes) => {
                        generations.add(generation, checksum(&bytes), secrets);
                        trouble = None;
                        break;
                    }
                    found => trouble = trouble.or(found.cause()),
                }
            }
            generations.broken.extend(trouble.map(|cause| (number, cause)));
        }
        Ok(generations)
    }

    pub(crate) fn add(&mut self, generation: Generation, digest: [u8; 16], secrets: &mut Secrets) {
        if secrets.generation(generation.tag).is_none()
            && let Some(pair) = secrets.wrapping_key()
        {
            match generation.secrets(secrets.key, secrets.role, &pair) {
                Ok(handed) => handed.into_iter().for_each(|of| secrets.learn(of)),
                Err(e) => self.broken.push((generation.number, e.to_string())),
            }
        }
        self.expected = self.expected.max(generation.number);
        self.sound.push((generation, digest));
    }

    /// The generations behind the first, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Generation> {
        self.sound.iter().map(|(generation, _)| generation)
    }

    /// Objects in their place that are none, by number, and why.
    pub fn broken(&self) -> &[(u32, String)] {
        &self.broken
    }

    /// The number of the newest one that there is; 0 is the first.
    pub fn newest(&self) -> u32 {
        self.sound.last().map_or(0, |(generation, _)| generation.number)
    }

    /// The number that the newest one must have at least.
    pub fn expected(&self) -> u32 {
        self.expected
    }

    /// Numbers and checksums of the objects.
    pub(crate) fn digests(&self) -> impl Iterator<Item = (u32, [u8; 16])> {
        self.sound.iter().map(|(generation, digest)| (generation.number, *digest))
    }
}

/// Both objects of a generation.
fn twice<'a>(store: &'a dyn Store, config: &'a Config, number: u32) -> Twice<'a, Generation> {
    let decode = move |bytes: &[u8]| Generation::decode(config.id, &config.owner, number, bytes);
    let counts = |_: &Generation, _: &Generation| Counts::Object;
    Twice { store, name: names::generation(number), decode: Box::new(decode), counts, copy_is_owed: true }
}

impl Repository {
    /// What is wrong with the objects of generations, though what they say is known: their names, and the cause.
    ///
    /// # Errors
    /// The storage fails.
    pub fn generation_troubles(&self) -> Result<Vec<(String, String)>> {
        let mut troubles = Vec::new();
        for of in self.generations().iter() {
            troubles.extend(twice(&**self.store(), self.config(), of.number).examine()?.troubles);
        }
        Ok(troubles)
    }

    /// Put what is wrong with the objects of generations right, each by the other one. Those that a rekey left which
    /// came to no end are among them: the next one makes them known.
    ///
    /// # Errors
    /// The storage fails.
    pub fn mend_generations(&self) -> Result<Mended> {
        let mut numbers: BTreeSet<u32> = self.generations().iter().map(|of| of.number).collect();
        self.store().list(names::GENERATIONS, &mut |listed| numbers.extend(names::generation_number(&listed.name)))?;
        self.mend_each(numbers.into_iter().map(|number| twice(&**self.store(), self.config(), number)))
    }

    /// The tag of the generation that new objects are sealed in.
    ///
    /// # Errors
    /// [`Error::Generation`] if it can't be had, or if this client has seen a newer one: then nothing may be written.
    pub fn generation(&self) -> Result<u32> {
        let refuse = |why| Err(Error::Generation { location: self.store().location(), why });
        let generations = self.generations();
        let (newest, expected) = (generations.newest(), generations.expected().max(self.seen_generation()));
        if newest < expected {
            // Or another process has met them since this one has opened the repository.
            self.refuse_rekeyed()?;
            return refuse(format!(
                "its newest secrets ('{}') are not there, or not sound: the storage has lost them, or gives back an older state",
                names::generation(expected)
            ));
        }
        let Some((generation, _)) = generations.sound.last() else { return Ok(0) };
        match self.secrets().generation(generation.tag) {
            Some(_) => Ok(generation.tag),
            None => refuse(format!(
                "key {} was not given its newest secrets ('{}'); ask its owner for a new key",
                self.secrets().key,
                names::generation(newest)
            )),
        }
    }

    /// With what this key signs and seals an object of a generation for every role.
    pub(crate) fn sealing_of(&self, generation: u32) -> Result<Sealing<'_>> {
        let fresh: [u8; FRESH_BYTES] = crate::random_id()?;
        self.secrets().sealing(generation, fresh).ok_or_else(|| self.not_allowed("write"))
    }

    /// With what this key signs and seals an object of the newest generation for every role.
    pub(crate) fn sealing(&self) -> Result<Sealing<'_>> {
        self.sealing_of(self.generation()?)
    }

    /// To what keys of packs of a generation are sealed.
    pub(crate) fn public_key(&self, kind: PackKind, generation: u32) -> Result<&PublicKey> {
        let (config, of) = (self.config(), self.generations().iter().find(|of| of.tag == generation));
        match (kind, generation, of) {
            (PackKind::Data, 0, _) => Ok(&config.data_key),
            (PackKind::Tree, 0, _) => Ok(&config.meta_key),
            (PackKind::Data, _, Some(of)) => Ok(&of.data_key),
            (PackKind::Tree, _, Some(of)) => Ok(&of.meta_key),
            (_, tag, None) => {
                let why = format!("the object of generation {tag:08x} of its secrets isn't there");
                Err(Error::Generation { location: self.store().location(), why })
            }
        }
    }

    /// To what new snapshots are sealed.
    pub(crate) fn recipient(&self) -> Result<Recipient<'_>> {
        let generation = self.generation()?;
        let meta_key = self.public_key(PackKind::Tree, generation)?;
        Ok(Recipient { suite: self.config().suite, generation, meta_key })
    }

    /// Whether the key in use opens packs of this kind and generation.
    pub fn opens(&self, kind: PackKind, generation: u32) -> bool {
        use drumlin_format::generation::MetaKeys;
        match kind {
            PackKind::Data => self.secrets().data_key(generation).is_some(),
            PackKind::Tree => self.secrets().meta_key(generation).is_some(),
        }
    }

    /// All tags that a pack may bear, the newest first.
    pub(crate) fn tags(&self) -> impl Iterator<Item = u32> {
        self.secrets().generations.iter().rev().map(|of| of.tag).chain([0])
    }

    /// Fails if the repository has been given new secrets since it was opened: what is sealed with those can't be read
    /// then, and is not damaged. For whoever draws conclusions from what can't be read; to be asked after everything
    /// was listed.
    ///
    /// # Errors
    /// [`Error::Rekeyed`]; or the storage fails.
    pub fn refuse_rekeyed(&self) -> Result<()> {
        let rekeyed = || Err(Error::Rekeyed { location: self.store().location() });
        if self.met.is_rekeyed.load(Ordering::Relaxed) {
            return rekeyed();
        }
        let mut newer = Vec::new();
        self.store().list(names::GENERATIONS, &mut |listed| {
            newer.extend(names::generation_number(&listed.name).filter(|number| *number > self.generations().newest()));
        })?;
        // What a killed run left before there was any means nothing.
        let of_none = self.generations().expected() == 0;
        if !newer.is_empty() && of_none && Repository::read_config(&**self.store())?.generation == 0 {
            return Ok(());
        }
        for number in newer {
            let twice = twice(&**self.store(), self.config(), number);
            for name in twice.names() {
                if twice.find(&name)?.is_sound() {
                    self.met.is_rekeyed.store(true, Ordering::Relaxed);
                    return rekeyed();
                }
            }
        }
        Ok(())
    }

    /// The same where something can't be opened for want of a generation's secrets. Of any other error nothing is
    /// asked, nor of a generation that there was, or once more of one that has been asked for: many objects may be of
    /// the same.
    pub(crate) fn refuse_if_rekeyed(&self, error: &Error) -> Result<()> {
        let Error::UnknownGeneration { generation, .. } = error else { return Ok(()) };
        if self.generations().iter().any(|of| of.tag == *generation) || lock(&self.met.lost).contains(generation) {
            return Ok(());
        }
        self.refuse_rekeyed()?;
        lock(&self.met.lost).insert(*generation);
        Ok(())
    }

    /// Whether index objects were done without since the repository was opened, because they were made with secrets
    /// that have been given since. What seems to be gone may be where they say.
    pub fn is_behind(&self) -> bool {
        self.met.is_behind.load(Ordering::Relaxed)
    }

    pub(crate) fn note_behind(&self) {
        self.met.is_behind.store(true, Ordering::Relaxed);
    }
}
