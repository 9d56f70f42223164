//! Objects that stand in the store twice, the same bytes under a name and under that of its copy: small ones, with each
//! of which everything would be lost.
//!
//! | object | without it | put by |
//! |---|---|---|
//! | the config | nobody opens the repository | who makes it, who rekeys |
//! | a key object | its holder doesn't | owners, and who changes what opens it |
//! | a generation of the secrets | what is sealed in it can't be read | who rekeys |
//!
//! Crash order: what is new is put before its copy, so that a creation that was cut short has made it, or nothing. When
//! it is put anew its copy comes first: all that a copy speaks of was there before it, so that it may take the place of
//! an object that is lost later. As long as the object is sound it counts. Repositories of before there were copies get
//! them by a repair.

use crate::{Error, Repository, Result, names};
use drumlin_store::{Kind, Put, Soon, Store};

/// So often it is looked whether somebody else has put the two anew while they were mended.
const LOOKS_MAX: usize = 4;

/// What makes of bytes what they should be.
pub(crate) type Decode<'a, T> = Box<dyn Fn(&[u8]) -> drumlin_format::Result<T> + 'a>;

/// An object and its copy.
pub(crate) struct Twice<'a, T> {
    pub store: &'a dyn Store,
    /// The object's name.
    pub name: String,
    pub decode: Decode<'a, T>,
    /// Which of two that differ, the object and its copy, is to be put in place of the other one.
    pub counts: fn(&T, &T) -> Counts,
    /// There always was a copy: that there is none is wrong.
    pub copy_is_owed: bool,
}

/// Of two that differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    Object,
    Copy,
    /// That is for somebody else to say.
    Neither,
}

/// An object of which there are two, as it was found.
pub struct Examined<T> {
    /// The object, if it or its copy is sound.
    pub object: Option<T>,
    /// What is wrong with either, by their names.
    pub troubles: Vec<(String, String)>,
    /// There is no copy, which is not wrong: older programs made none.
    pub lacks_copy: bool,
}

/// What became of objects that were to be put right.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mended {
    /// How many of the two of each were put, all in all.
    pub put: u64,
    /// Those of which neither the object nor its copy is sound, by their names: nothing makes them again.
    pub lost: Vec<String>,
}

impl Mended {
    fn and(mut self, other: Mended) -> Mended {
        self.put += other.put;
        self.lost.extend(other.lost);
        self
    }
}

/// How an object stands when it has been put right, as far as can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stand {
    Sound,
    /// As a newer program has written it, or its copy.
    Newer,
    /// There is nothing to make it of.
    Lost,
}

/// What came of reading one of the two.
pub(crate) enum Found<T> {
    /// What it should be, and its bytes.
    Sound(T, Vec<u8>),
    /// Nothing.
    Gone,
    /// Something else, and what is wrong with it.
    Unsound(String),
    /// What a newer program has written.
    Newer(String),
    /// The storage doesn't give it out.
    Unread(Error),
}

impl<T> Found<T> {
    fn sound(&self) -> Option<(&T, &[u8])> {
        match self {
            Found::Sound(object, bytes) => Some((object, bytes)),
            _ => None,
        }
    }

    pub fn is_sound(&self) -> bool {
        self.sound().is_some()
    }

    /// What is wrong with it; `None` if it is sound or gone.
    pub fn cause(&self) -> Option<String> {
        match self {
            Found::Sound(..) | Found::Gone => None,
            Found::Unsound(cause) | Found::Newer(cause) => Some(cause.clone()),
            Found::Unread(e) => Some(e.cause()),
        }
    }
}

impl<T> Twice<'_, T> {
    /// Their names: the object's, its copy's.
    pub fn names(&self) -> [String; 2] {
        [self.name.clone(), names::copy_of(&self.name)]
    }

    /// Read it, and tell whether it was the copy that was read: the object is gone, damaged, or not given out by the
    /// storage.
    ///
    /// # Errors
    /// What is wrong with the object, if the copy is worth no more; with the copy, if the object is gone.
    pub fn read(&self) -> Result<(T, bool)> {
        let why = match self.load(&self.name) {
            Ok((object, _)) => return Ok((object, false)),
            // What a newer program has written is not damaged: an older copy must not hide it.
            Err(e) if e.is_of_one_object() && !e.is_newer() => e,
            Err(e) => return Err(e),
        };
        match self.load(&names::copy_of(&self.name)) {
            Ok((object, _)) => Ok((object, true)),
            Err(copy) if copy.is_newer() || !copy.is_of_one_object() => Err(copy),
            Err(copy) if why.is_missing() && !copy.is_missing() => Err(copy),
            Err(_) => Err(why),
        }
    }

    fn load(&self, name: &str) -> Result<(T, Vec<u8>)> {
        let bytes = self.store.get(name)?;
        let object = (self.decode)(&bytes).map_err(Error::damaged(name))?;
        Ok((object, bytes))
    }

    /// What is under one of the names.
    ///
    /// # Errors
    /// The storage fails.
    pub fn find(&self, name: &str) -> Result<Found<T>> {
        let e = match self.load(name) {
            Ok((object, bytes)) => return Ok(Found::Sound(object, bytes)),
            Err(e) => e,
        };
        let is_unread = matches!(&e, Error::Store(e) if e.kind != Kind::Truncated);
        Ok(match e {
            e if e.is_missing() => Found::Gone,
            e if e.is_newer() => Found::Newer(e.cause()),
            e if e.is_of_one_object() && is_unread => Found::Unread(e),
            e if e.is_of_one_object() => Found::Unsound(e.cause()),
            e => return Err(e),
        })
    }

    /// See what there is of it.
    ///
    /// # Errors
    /// The storage fails.
    pub fn examine(&self) -> Result<Examined<T>> {
        let [name, copy_name] = self.names();
        let (first, copy) = (self.find(&name)?, self.find(&copy_name)?);
        let mut troubles = Vec::new();
        for (name, found, other, is_owed) in
            [(&name, &first, &copy, true), (&copy_name, &copy, &first, self.copy_is_owed)]
        {
            let cause = match found {
                Found::Gone if is_owed => "it isn't there".to_owned(),
                found => match found.cause() {
                    Some(cause) => cause,
                    None => continue,
                },
            };
            let hope = if other.is_sound() { "; its other copy is sound" } else { "" };
            troubles.push((name.clone(), format!("{cause}{hope}")));
        }
        if let (Some((object, bytes)), Some((other, others))) = (first.sound(), copy.sound())
            && bytes != others
        {
            troubles.push(match (self.counts)(object, other) {
                Counts::Object => (copy_name, format!("it isn't the same as '{name}'")),
                side => {
                    let why =
                        "it is older than its copy: a change was interrupted, or the storage gives back an older state";
                    let then = if side == Counts::Neither { "; the next 'drumlin key rekey' ends that" } else { "" };
                    (name, format!("{why}{then}"))
                }
            });
        }
        let lacks_copy = matches!(copy, Found::Gone);
        let sound = |found| match found {
            Found::Sound(object, _) => Some(object),
            _ => None,
        };
        Ok(Examined { object: [first, copy].into_iter().find_map(sound), troubles, lacks_copy })
    }

    /// Put each right by the other one, and look again: had somebody put them anew meanwhile (a revocation, say), an
    /// old state would now stand in one of the two. How many were put, and how the object stands now.
    ///
    /// # Errors
    /// The storage fails, gives out neither, or refuses one of them to this user.
    pub fn mend(&self) -> Result<(u64, Stand)> {
        let [name, copy_name] = self.names();
        let mut mended = 0;
        for _ in 0..LOOKS_MAX {
            let (first, copy) = (self.given_out(&name)?, self.given_out(&copy_name)?);
            // What a newer program has written is not ours to replace.
            if [&first, &copy].iter().any(|found| matches!(found, Found::Newer(_))) {
                return Ok((mended, if first.is_sound() { Stand::Sound } else { Stand::Newer }));
            }
            let (to, bytes) = match (first.sound(), copy.sound()) {
                (Some((_, bytes)), Some((_, others))) if bytes == others => return Ok((mended, Stand::Sound)),
                (Some((object, bytes)), Some((other, others))) => match (self.counts)(object, other) {
                    Counts::Object => (&copy_name, bytes),
                    Counts::Copy => (&name, others),
                    Counts::Neither => return Ok((mended, Stand::Sound)),
                },
                (Some((_, bytes)), None) => (&copy_name, bytes),
                (None, Some((_, others))) => (&name, others),
                (None, None) => match [first, copy].into_iter().find_map(unread) {
                    Some(e) => return Err(e),
                    None => return Ok((mended, Stand::Lost)),
                },
            };
            self.store.put(to, bytes, Put::Replace)?;
            mended += 1;
        }
        Ok((mended, Stand::Sound))
    }

    /// What is under a name, asked for once more where the storage fails to read it: it may another time.
    fn given_out(&self, name: &str) -> Result<Found<T>> {
        match self.find(name)? {
            Found::Unread(e) if !e.is_unread() => Err(e),
            Found::Unread(_) => self.find(name),
            found => Ok(found),
        }
    }
}

fn unread<T>(found: Found<T>) -> Option<Error> {
    match found {
        Found::Unread(e) => Some(e),
        _ => None,
    }
}

/// A hint that an object and its copy will be put.
pub(crate) fn expect(store: &dyn Store, name: &str, bytes: &[u8]) {
    store.expect(Soon::Bytes { name, bytes });
    store.expect(Soon::Bytes { name: &names::copy_of(name), bytes });
}

/// Put an object and its copy.
pub(crate) fn put(store: &dyn Store, name: &str, bytes: &[u8], how: Put) -> drumlin_store::Result<()> {
    let copy = names::copy_of(name);
    let [first, second] = if how == Put::Create { [name, &copy] } else { [&copy, name] };
    store.put(first, bytes, how)?;
    store.put(second, bytes, how)
}

/// Remove an object and its copy again, as far as they are these bytes and it can be done: for who could not put all
/// that he had to. Whether neither is there for sure.
pub(crate) fn take_back(store: &dyn Store, name: &str, bytes: &[u8]) -> bool {
    let taken = [name, &names::copy_of(name)].map(|name| match store.get(name) {
        Ok(there) => there != bytes || store.delete(name).is_ok(),
        Err(e) => e.kind == Kind::Missing,
    });
    store.sync().is_ok() && taken == [true; 2]
}

impl Repository {
    /// Read an object that stands there twice; that it was the copy is noted.
    pub(crate) fn read_twice<T>(&self, twice: &Twice<'_, T>) -> Result<T> {
        let (object, is_copy) = twice.read()?;
        if is_copy {
            self.note_healed(&twice.name);
        }
        Ok(object)
    }

    /// Put an object that stands there twice right.
    pub(crate) fn mend_twice<T>(&self, twice: &Twice<'_, T>) -> Result<Mended> {
        let (put, stand) = twice.mend()?;
        if stand == Stand::Sound {
            self.note_mended(&twice.name);
        }
        Ok(Mended { put, lost: if stand == Stand::Lost { vec![twice.name.clone()] } else { Vec::new() } })
    }

    /// Put several objects that stand there twice right, one after the other.
    pub(crate) fn mend_each<'a, T>(&self, all: impl Iterator<Item = Twice<'a, T>>) -> Result<Mended> {
        all.map(|twice| self.mend_twice(&twice)).try_fold(Mended::default(), |sum, one| Ok(sum.and(one?)))
    }

    /// Put all objects that stand there twice right, each by the other one: [`Repository::mend_config`],
    /// [`Repository::mend_keys`], [`Repository::mend_generations`].
    ///
    /// # Errors
    /// The storage fails, or this user may not.
    pub fn mend_copies(&self) -> Result<Mended> {
        Ok(self.mend_config()?.and(self.mend_keys()?).and(self.mend_generations()?))
    }
}
