//! One entry looked at: `statx`, then what filter, sources and device boundaries say of it.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::dir::Dir;
use crate::filter::{Filter, Origin, Verdict};
use crate::meta::{Kind, Stat};
use crate::sys::{Follow, stat_at};

use super::listing::{Excluded, Raw, Store, WalkError, What};
use super::pending::Heritage;
use super::plan::Plan;

/// A longer name is told and left out: it has no room in a tree. Most file systems have 255 bytes, some of FUSE's and
/// of networks more.
const NAME_BYTES_MAX: usize = 1024;

/// The directory whose entries are looked at.
pub(crate) struct Scene<'a> {
    pub(crate) fd: BorrowedFd<'a>,
    pub(crate) dir: &'a Dir,
    pub(crate) heritage: &'a Heritage,
    pub(crate) filter: &'a Filter,
    pub(crate) one_file_system: bool,
    /// Marked by this tag file: nothing else of it is kept.
    pub(crate) only: Option<&'a [u8]>,
    /// Nothing can be left out here, so nothing need be asked.
    pub(crate) plain: bool,
}

/// What went into a listing besides its entries.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) vanished: u64,
    pub(crate) excluded: Excluded,
    pub(crate) errors: Vec<WalkError>,
    /// Directories on other file systems that are not looked into: absolute paths.
    pub(crate) passed_by: Vec<Vec<u8>>,
}

impl Tally {
    pub(crate) fn add(&mut self, mut more: Tally) {
        self.vanished += more.vanished;
        self.excluded.add(&more.excluded);
        self.errors.append(&mut more.errors);
        self.passed_by.append(&mut more.passed_by);
    }
}

/// What an entry means for the walk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// No entry: left out, failed, or gone.
    Nothing,
    /// An entry, and nothing to descend into.
    Leaf,
    /// A directory to descend into.
    Kid,
    /// A directory of which only the sources below it are covered.
    Special,
}

impl Found {
    /// Whether the walk goes on below it.
    pub(crate) fn descends(self) -> bool {
        matches!(self, Found::Kid | Found::Special)
    }
}

impl Scene<'_> {
    fn plan(&self) -> Option<&Plan> {
        self.heritage.plan.as_deref().filter(|p| !p.children.is_empty())
    }

    /// Sets `plain`.
    pub(crate) fn settle(mut self) -> Self {
        self.plain = self.only.is_none() && !self.filter.has_rules() && self.plan().is_none();
        self
    }

    pub(crate) fn error(&self, name: &[u8], errno: Errno) -> WalkError {
        let mut path = Vec::new();
        self.dir.path_of(name, &mut path);
        WalkError::new(path, errno)
    }

    /// Looks at one entry and appends it to `store`. `path` is scratch.
    #[inline]
    pub(crate) fn look(&self, name_nul: &[u8], store: &mut Store, tally: &mut Tally, path: &mut Vec<u8>) -> Found {
        if bare(name_nul).len() > NAME_BYTES_MAX {
            self.failed(name_nul, Errno::NAMETOOLONG, tally);
            return Found::Nothing;
        }
        match stat_at(self.fd, name_nul, Follow::No) {
            Ok(stat) if self.plain => {
                push(store, name_nul, &stat);
                self.whole(name_nul, &stat, tally)
            }
            Ok(stat) => self.judge(name_nul, &stat, store, tally, path),
            Err(errno) => {
                self.failed(name_nul, errno, tally);
                Found::Nothing
            }
        }
    }

    #[cold]
    fn failed(&self, name_nul: &[u8], errno: Errno, tally: &mut Tally) {
        let name = bare(name_nul);
        if let Some(planned) = self.plan().and_then(|p| p.children.get(name)) {
            self.missing(name, planned, errno, tally);
        } else if errno == Errno::NOENT {
            tally.vanished += 1;
        } else {
            tally.errors.push(self.error(name, errno));
        }
    }

    /// Reports the sources below this directory that it has no entry for.
    pub(crate) fn report_missing(&self, known: impl Fn(&[u8]) -> bool, tally: &mut Tally) {
        for (name, planned) in self.plan().iter().flat_map(|p| &p.children) {
            if !known(name) {
                self.missing(name, planned, Errno::NOENT, tally);
            }
        }
    }

    /// Reports the sources at and below a name that leads nowhere.
    pub(crate) fn missing(&self, name: &[u8], planned: &Plan, errno: Errno, tally: &mut Tally) {
        let mut path = Vec::new();
        self.dir.path_of(name, &mut path);
        let mut sources = Vec::new();
        planned.sources(&path, &mut sources);
        // Whatever the reason: a disk that isn't there, one that is dead, a server that is gone.
        let not_there = |path| WalkError { what: What::NoSource, ..WalkError::new(path, errno) };
        tally.errors.extend(sources.into_iter().map(not_there));
    }

    fn judge(&self, name_nul: &[u8], stat: &Stat, store: &mut Store, tally: &mut Tally, path: &mut Vec<u8>) -> Found {
        let name = bare(name_nul);
        let is_wanted = self.heritage.full && self.only.is_none_or(|only| only == name);
        let verdict = match is_wanted && self.filter.has_rules() {
            true => {
                path.clear();
                self.dir.path_of(name, path);
                self.filter.verdict(path, stat.kind, stat.size)
            }
            false => Verdict::Include,
        };
        let ordinary = is_wanted && matches!(verdict, Verdict::Include);
        if let Some(planned) = self.plan().and_then(|p| p.children.get(name)) {
            return self.judge_planned(name_nul, planned, stat, ordinary, store, tally);
        }
        if !ordinary {
            if matches!(verdict, Verdict::Exclude(rule) if rule.origin == Origin::BuiltIn) {
                // What the program has for itself is no loss to anybody.
            } else if stat.kind == Kind::Dir {
                tally.excluded.dirs += 1;
            } else {
                tally.excluded.files += 1;
                tally.excluded.bytes += if stat.kind == Kind::File { stat.size } else { 0 };
            }
            return Found::Nothing;
        }
        push(store, name_nul, stat);
        self.whole(name_nul, stat, tally)
    }

    /// What an entry means of which everything is wanted.
    #[inline]
    fn whole(&self, name_nul: &[u8], stat: &Stat, tally: &mut Tally) -> Found {
        match stat.kind {
            Kind::Dir if self.within(stat) => Found::Kid,
            Kind::Dir => {
                self.pass_by(name_nul, tally);
                Found::Leaf
            }
            _ => Found::Leaf,
        }
    }

    /// Notes a directory of which nobody knows what is in it.
    #[cold]
    fn pass_by(&self, name_nul: &[u8], tally: &mut Tally) {
        let mut path = Vec::new();
        self.dir.path_of(bare(name_nul), &mut path);
        tally.passed_by.push(path);
    }

    fn within(&self, stat: &Stat) -> bool {
        !self.one_file_system || stat.dev == self.heritage.dev
    }

    /// A source, or an entry on the way to one: no rule keeps it out.
    fn judge_planned(
        &self,
        name_nul: &[u8],
        planned: &Plan,
        stat: &Stat,
        ordinary: bool,
        store: &mut Store,
        tally: &mut Tally,
    ) -> Found {
        let mut target = *stat;
        if stat.kind == Kind::Symlink && planned.follow() {
            match stat_at(self.fd, name_nul, Follow::Yes) {
                Ok(stat) => target = stat,
                Err(errno) => {
                    self.missing(bare(name_nul), planned, errno, tally);
                    return Found::Nothing;
                }
            }
        }
        push(store, name_nul, &target);
        if target.kind != Kind::Dir {
            for (name, below) in &planned.children {
                let name = [bare(name_nul), b"/", name].concat();
                self.missing(&name, below, Errno::NOTDIR, tally);
            }
            return Found::Leaf;
        }
        // Of what would have been saved with all that is in it only what leads to the source is.
        if self.heritage.full && !ordinary && !planned.source {
            tally.excluded.dirs += 1;
        }
        match ordinary && stat.kind == Kind::Dir {
            true if self.within(stat) => return Found::Kid,
            // Of what is mounted there only the sources are saved.
            true if !planned.source => self.pass_by(name_nul, tally),
            _ => {}
        }
        Found::Special
    }
}

fn bare(name_nul: &[u8]) -> &[u8] {
    &name_nul[..name_nul.len().saturating_sub(1)]
}

#[inline]
fn push(store: &mut Store, name_nul: &[u8], stat: &Stat) {
    // A batch holds one run of listings: far less than 4 GiB of names.
    let name_at = store.names.len() as u32;
    store.names.extend_from_slice(name_nul);
    store.entries.push(Raw { stat: *stat, name_at, name_len: name_nul.len() as u32 - 1 });
}
