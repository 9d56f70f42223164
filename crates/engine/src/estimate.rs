//! What a backup would save, and how much of it is new: the walk alone, merged with the previous tree; no contents are
//! read. In bounded memory: one listing and one leaf at a time.

use crate::backup::ParentSnapshots;
use crate::convert;
use crate::list::{Entered, Span, Steps, report_damage};
use crate::monitor::{Monitor, Problem, ProblemKind, add};
use crate::unchanged::Unchanged;
use crate::{Error, Result};
use drumlin_format::tree::{Meta, Sums};
use drumlin_host::dir::Dir;
use drumlin_host::filter::Filter;
use drumlin_host::meta::Stat;
use drumlin_host::walk::{self, Crew, Excluded, Listing, Walk, What};
use drumlin_repo::pack::Reader;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

/// What to look at.
pub struct Options {
    /// Absolute paths.
    pub paths: Vec<Vec<u8>>,
    /// What to leave out.
    pub filter: Arc<Filter>,
    /// Don't leave the file systems of the sources.
    pub one_file_system: bool,
    /// Threads that walk.
    pub walkers: Crew,
}

/// What there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// All that would be in the snapshot.
    pub found: Sums,
    /// What the previous snapshot didn't have.
    pub new: Sums,
    /// What differs from it, as it is now.
    pub changed: Sums,
    /// What is as before.
    pub unmodified: Sums,
    /// What only the previous snapshot has.
    pub removed: Sums,
    /// What rules leave out; what is below excluded directories was not looked at.
    pub excluded: Excluded,
    /// Entries that could not be looked at.
    pub unreadable: u64,
    /// Entries that vanished before they could be looked at.
    pub vanished: u64,
}

/// Walk the sources. With `previous`, say what is new and what changed since then; without, all is new.
///
/// # Errors
/// [`Error::NoSource`] if none of the sources could be read; what concerns the repository as a whole. Entries that
/// can't be looked at are told to the monitor and counted.
pub fn estimate(
    options: Options,
    previous: Option<(&Arc<Reader>, &ParentSnapshots)>,
    monitor: &dyn Monitor,
) -> Result<Report> {
    let unchanged = Unchanged::new(&options.paths);
    let walk_options = walk::Options {
        sources: options.paths,
        threads: options.walkers,
        one_file_system: options.one_file_system,
        ..walk::Options::default()
    };
    let mut walk = Walk::start(walk_options, options.filter).map_err(Error::system("start the walk"))?;
    let mut merge =
        Merge { monitor, unchanged, met_a_source: false, old: OldTree::new(previous), report: Report::default() };
    while let Some(mut listing) = walk.next_unless(|| monitor.stop()) {
        merge.listing(&mut listing)?;
    }
    if monitor.stop() {
        return Err(Error::Interrupted);
    }
    while merge.old.peek(monitor)?.is_some() {
        merge.removed();
    }
    if !merge.met_a_source && merge.report.unreadable > 0 {
        return Err(Error::NoSource);
    }
    Ok(merge.report)
}

struct Merge<'a> {
    monitor: &'a dyn Monitor,
    unchanged: Unchanged,
    /// Whether anything was met but directories that only lead to the sources.
    met_a_source: bool,
    old: OldTree<'a>,
    report: Report,
}

impl Merge<'_> {
    fn listing(&mut self, listing: &mut Listing) -> Result<()> {
        let counters = self.monitor.counters();
        self.report.excluded.add(listing.excluded());
        add(&counters.excluded, listing.excluded().files + listing.excluded().dirs);
        self.report.vanished += listing.vanished();
        add(&counters.vanished, listing.vanished());
        for error in listing.take_errors() {
            let (kind, counted, counter) = match error.what {
                What::Vanished => (ProblemKind::Vanished, &mut self.report.vanished, &counters.vanished),
                _ => (ProblemKind::Unreadable, &mut self.report.unreadable, &counters.unreadable),
            };
            *counted += 1;
            add(counter, 1);
            self.monitor.problem(&Problem { path: error.path, kind, cause: error.source.to_string() });
        }
        let mut key = Vec::new();
        listing.dir().key(&mut key);
        let before = self.report.found;
        for entry in listing.iter() {
            self.entry(listing.dir(), &key, entry.name, entry.stat)?;
        }
        let found = self.report.found;
        add(&counters.entries, found.entries - before.entries);
        add(&counters.files, found.files - before.files);
        add(&counters.dirs, found.dirs - before.dirs);
        add(&counters.bytes, found.bytes.saturating_sub(before.bytes));
        Ok(())
    }

    fn entry(&mut self, listed: &Dir, dir: &[u8], name: &[u8], stat: &Stat) -> Result<()> {
        let filesystem = self.unchanged.filesystem(stat);
        self.met_a_source = self.met_a_source || !self.unchanged.is_above(dir, name);
        let sums = loop {
            let Some((old_dir, old_name, old)) = self.old.peek(self.monitor)? else { break &mut self.report.new };
            match (old_dir, old_name).cmp(&(dir, name)) {
                Ordering::Less => self.removed(),
                Ordering::Greater => break &mut self.report.new,
                Ordering::Equal => {
                    let same = self.unchanged.is(old, listed, dir, name, stat, filesystem);
                    self.old.next();
                    break if same { &mut self.report.unmodified } else { &mut self.report.changed };
                }
            }
        };
        let meta = convert::meta(stat, filesystem);
        sums.add_entry(&meta);
        self.report.found.add_entry(&meta);
        Ok(())
    }

    fn removed(&mut self) {
        if let Some((_, _, meta)) = self.old.entry() {
            self.report.removed.add_entry(meta);
            self.old.next();
        }
    }
}

/// An entry of the previous tree: directory, name and meta.
type Old<'a> = (&'a [u8], &'a [u8], &'a Meta);

/// The previous tree as one stream of entries. Of several snapshots each is read up to where it got, and the next from
/// there on: first a partial one, then the whole one that it was compared with.
struct OldTree<'a> {
    reader: Option<&'a Arc<Reader>>,
    snapshots: VecDeque<(Option<drumlin_format::snapshot::Root>, Span)>,
    steps: Option<Steps>,
    leaf: Option<Entered>,
}

impl<'a> OldTree<'a> {
    fn new(previous: Option<(&'a Arc<Reader>, &ParentSnapshots)>) -> Self {
        let mut snapshots = VecDeque::new();
        let mut start = (Vec::new(), Vec::new());
        for snapshot in previous.iter().flat_map(|(_, parents)| &parents.0) {
            snapshots.push_back((snapshot.root, Span { start: start.clone(), end: None }));
            // What comes right after the entry that was reached.
            match &snapshot.partial {
                // The older of two that were interrupted may have got less far.
                Some(reached) => start = start.max((reached.dir.clone(), [&reached.name[..], &[0]].concat())),
                None => break,
            }
        }
        OldTree { reader: previous.map(|(reader, _)| reader), snapshots, steps: None, leaf: None }
    }

    /// The entry to come.
    fn peek(&mut self, monitor: &dyn Monitor) -> Result<Option<Old<'_>>> {
        while self.leaf.is_none() {
            let Some(steps) = &mut self.steps else {
                let (Some(reader), Some((root, span))) = (self.reader, self.snapshots.pop_front()) else {
                    return Ok(None);
                };
                self.steps = Some(Steps::new(reader, root, span));
                continue;
            };
            let Some(head) = steps.head() else {
                self.steps = None;
                continue;
            };
            let child = head.child.clone();
            match steps.enter() {
                Ok(entered) => self.leaf = entered.filter(|e| !e.within.is_empty()),
                Err(e) => report_damage(monitor, &child, e)?,
            }
        }
        Ok(self.entry())
    }

    fn entry(&self) -> Option<Old<'_>> {
        self.leaf.as_ref().map(|e| e.leaf.get(e.within.start))
    }

    fn next(&mut self) {
        if let Some(entered) = &mut self.leaf {
            entered.within.start += 1;
            if entered.within.is_empty() {
                self.leaf = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::Parent;
    use crate::list::fixture::Fixture;
    use crate::monitor::Quiet;
    use drumlin_host::filter::{FilterOptions, Pattern};
    use drumlin_testkit::tree;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;

    fn options(path: &Path, exclude: &[&str]) -> Options {
        let exclude = exclude.iter().map(|text| Pattern::flag(*text)).collect();
        let filter = Filter::new(&FilterOptions { exclude, ..FilterOptions::default() }).unwrap();
        let paths = vec![path.as_os_str().as_bytes().to_vec()];
        Options { paths, filter: Arc::new(filter), one_file_system: false, walkers: 2.into() }
    }

    fn parents(fixture: &Fixture) -> ParentSnapshots {
        let id = Parent::Id(fixture.snapshots.last().unwrap().id);
        ParentSnapshots::find(&fixture.repository, &[], &id, "host", &[], &drumlin_repo::collection::Known::default())
            .unwrap()
    }

    #[test]
    fn says_what_a_backup_then_finds() {
        let source = tempfile::tempdir().unwrap();
        tree::random(source.path(), 5, 900).unwrap();
        let first = estimate(options(source.path(), &[]), None, &Quiet::default()).unwrap();
        let mut fixture = Fixture::new();
        let saved = fixture.backup(source.path()).clone();
        assert_eq!(first.found, saved.root.unwrap().sums);
        assert_eq!((first.new, first.unmodified), (first.found, Sums::default()));

        // Old enough to be told from later changes.
        std::thread::sleep(std::time::Duration::from_millis(30));
        fixture.backup(source.path());
        tree::mutate(source.path(), 5).unwrap();
        std::fs::write(source.path().join("a new file"), b"12345").unwrap();
        let reader = fixture.reader();
        let before = parents(&fixture);
        let monitor = Quiet::default();
        let report = estimate(options(source.path(), &[]), Some((&reader, &before)), &monitor).unwrap();
        let snapshot = fixture.backup(source.path());
        let summary = snapshot.summary;
        assert_eq!(report.found, snapshot.root.unwrap().sums);
        assert_eq!(
            (report.new.entries, report.changed.entries, report.unmodified.entries),
            (summary.new, summary.changed, summary.unmodified)
        );
        assert!(report.new.entries > 0 && report.changed.entries > 0 && report.unmodified.entries > 0);
        let removed = before.0[0].root.unwrap().sums.entries + report.new.entries - report.found.entries;
        assert_eq!(report.removed.entries, removed);
        assert_eq!(monitor.counters().get().entries, report.found.entries);
    }

    #[test]
    fn excluded_and_unreadable_are_counted() {
        let source = tempfile::tempdir().unwrap();
        std::fs::write(source.path().join("a.tmp"), b"123").unwrap();
        std::fs::write(source.path().join("b"), b"12").unwrap();
        let report = estimate(options(source.path(), &["*.tmp"]), None, &Quiet::default()).unwrap();
        assert_eq!((report.excluded.files, report.excluded.bytes, report.found.bytes), (1, 3, 2));
        let monitor = Quiet::default();
        let none = estimate(options(&source.path().join("none"), &[]), None, &monitor);
        assert!(matches!(none, Err(Error::NoSource)), "{none:?}");
        assert_eq!(monitor.problems().len(), 1);
    }
}
