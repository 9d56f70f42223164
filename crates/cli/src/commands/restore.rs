//! `restore`: from a snapshot to a folder.

use super::backup::memory;
use super::gather;
use super::look::is_dir;
use super::snapshots::in_words;
use crate::args::excludes::Excludes;
use crate::args::restore::{Overwrite, Restore};
use crate::context::{Context, Looked};
use crate::exit::{Exit, Failure, Result, without_number};
use crate::place;
use crate::render::path::shown;
use crate::render::progress::Watch;
use crate::render::size::counted;
use crate::render::summary;
use crate::rules;
use drumlin_engine::restore::{Options, Report, restore};
use drumlin_engine::select::open_reader;
use drumlin_engine::{Error, LATE};
use drumlin_format::snapshot::Snapshot;
use drumlin_host::filter::{Filter, FilterOptions, Pattern};
use drumlin_repo::{SnapshotInfo, Trust};
use drumlin_store::Location;
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Run it.
///
/// # Errors
/// Nothing was restored, or not all that should have been.
pub fn run(context: &Context, args: Restore) -> Result<Exit> {
    let exclude = check_patterns(&args)?;
    check_target(&args.target)?;
    let Looked { repository, cache, snapshots: all, damaged } = context.open_to_look(args.paths.is_empty())?;
    let is_passed_over = tell_of_damaged(context, &args, damaged);
    let spec = gather::find(context, &all, &args.snapshot, &args.select)?;
    let snapshot = spec.snapshot.snapshot;
    let folder = &spec.subfolder;
    if !folder.is_root() && !is_dir(&open_reader(&repository, &cache)?, snapshot.root, folder)? {
        return Err(Failure::failed(format!("'{folder}' is not a folder in the snapshot"))
            .hint("to restore a single file, give its path as a separate argument after the snapshot"));
    }
    context.out.note(format!("from:     {}, host {}", in_words(&snapshot), shown(snapshot.host.as_bytes())));
    tell_of_others(context, &args, &all, &snapshot, folder.is_root())?;
    tell_what_it_lacks(context, &snapshot);
    let unsaved = spare_unseen(context, &args, &snapshot)?;
    let repository_folder = match context.place()?.location() {
        Location::Local(path) => Some(path),
        _ => None,
    };
    check_outside(&args.target, repository_folder.as_deref())?;
    let restored = summary::Restored { id: snapshot.id, partial: snapshot.partial.is_some() };
    let told = Told {
        restored,
        is_passed_over,
        is_picky: !args.include.is_empty() || !args.exclude.is_empty(),
        keeps: matches!(args.overwrite, Overwrite::IfNewer | Overwrite::Never),
        dry_run: args.dry_run,
        verify: args.verify,
    };
    let watch = Watch::new(context.out, "restore");
    let options = Options {
        snapshot,
        subfolder: (!spec.subfolder.is_root()).then(|| spec.subfolder.to_bytes()),
        paths: args.paths.into_iter().map(OsStringExt::into_vec).map(absolute).collect::<Result<_>>()?,
        target: args.target,
        overwrite: args.overwrite.into(),
        delete: args.delete,
        repository: repository_folder,
        spared: context.own_files(),
        guarded: context.guarded_files(),
        remembered: place::states().into_iter().collect(),
        dry_run: args.dry_run,
        include: args.include,
        exclude,
        unsaved,
        verify: args.verify,
        numeric_ids: args.numeric_ids,
        thaw: args.thaw.into(),
        workers: args.workers.map_or_else(super::processors, usize::from),
        late: LATE,
        memory: memory(context, args.memory)?,
    };
    let target = options.target.clone();
    let restored_so_far = |error| match error {
        Error::Place(e) if e.is_full() => {
            let so_far = counted(watch.counts().restored, "entry", "entries");
            let (target, why) = (shown(target.as_os_str().as_bytes()), e.to_string());
            Failure::failed(format!("'{target}' is full: {}; {so_far} restored so far", without_number(&why)))
                .hint("make room there and run the same command again: it continues from what is there")
        }
        other => other.into(),
    };
    let report = watch.run(|monitor| restore(&repository, &cache, options, monitor)).map_err(restored_so_far)?;
    Ok(told.tell(context, &report))
}

/// Tell of snapshots that can't be read, and whether one of them may be the latest, and the latest is what is wanted:
/// who names another one by its id has that.
fn tell_of_damaged(context: &Context, args: &Restore, damaged: Vec<drumlin_repo::Error>) -> bool {
    let is_passed_over = !damaged.is_empty() && args.snapshot.as_bytes().starts_with(b"latest");
    for error in damaged {
        match is_passed_over {
            true => {
                context.out.trouble_with("restore", &format!("a snapshot is passed over, perhaps the latest: {error}"))
            }
            false => context.out.warn(format!("a snapshot is passed over: {error}")),
        }
    }
    is_passed_over
}

/// Of several machines' snapshots the latest may be another machine's than the user thinks of, and of one machine's it
/// may be of other sources: `whole`, all of it is wanted.
fn tell_of_others(
    context: &Context,
    args: &Restore,
    all: &[SnapshotInfo],
    snapshot: &Snapshot,
    whole: bool,
) -> Result<()> {
    if !args.snapshot.as_bytes().starts_with(b"latest") {
        return Ok(());
    }
    let filter = gather::filter(context, &args.select)?;
    let is_elsewhere = |info: &&SnapshotInfo| {
        let is_in = |path: &Vec<u8>| snapshot.paths.iter().any(|of| covers(of, path));
        let counts = matches!(info.trust, Trust::Signed(_)) && info.snapshot.partial.is_none();
        let has_more = info.snapshot.host == snapshot.host && !info.snapshot.paths.iter().all(is_in);
        counts && has_more && filter.matches(&info.snapshot)
    };
    if let Some(other) =
        all.iter().rev().find(is_elsewhere).filter(|_| whole && filter.paths.is_empty() && args.paths.is_empty())
    {
        let [this, other] = [&snapshot.paths, &other.snapshot.paths].map(|paths| sources(paths));
        context.out.warn(format!(
            "'{}' is a snapshot of {this} alone, and there are others of this host, as of {other}: --path names the one that is meant",
            args.snapshot.display()
        ));
    }
    if snapshot.host == gather::host(context, None) {
        return Ok(());
    }
    let is_other = |info: &&SnapshotInfo| info.snapshot.host != snapshot.host && filter.matches(&info.snapshot);
    if let Some(other) = all.iter().find(is_other).filter(|_| filter.hosts.is_empty()) {
        let [this, other] = [&snapshot.host, &other.snapshot.host].map(|host| shown(host.as_bytes()).to_string());
        context.out.caution(format!(
            "the latest snapshot is one of host {this}, and there are others', as of {other}: --host names the one that is meant"
        ));
    }
    Ok(())
}

/// Whether a source is the other one, or has it in it.
fn covers(source: &[u8], other: &[u8]) -> bool {
    let [source, other] = [source, other].map(|path| path.strip_suffix(b"/").unwrap_or(path));
    other.strip_prefix(source).is_some_and(|rest| matches!(rest, [] | [b'/', ..]))
}

/// The first of a snapshot's sources, and how many more there are.
fn sources(paths: &[Vec<u8>]) -> String {
    let first = paths.first().map_or_else(String::new, |path| shown(path).to_string());
    match paths.len() {
        0 | 1 => first,
        more => format!("{first} and {} more", more - 1),
    }
}

/// What no restore of this snapshot can bring back.
fn tell_what_it_lacks(context: &Context, snapshot: &Snapshot) {
    if snapshot.partial.is_some() {
        context
            .out
            .caution("this snapshot is partial: its backup was interrupted, and what it did not reach is missing");
    }
    if let Some(absent) = snapshot.summary.absent {
        let sources = counted(absent, "source was", "sources were");
        context.out.caution(format!("{sources} not there or not readable when this snapshot was made"));
    }
    if snapshot.summary.changed_while_read > 0 {
        let files = counted(snapshot.summary.changed_while_read, "file", "files");
        context.out.caution(format!("{files} changed while this snapshot was made, and may be inconsistent in it"));
    }
    let unreadable = snapshot.summary.unreadable.saturating_sub(snapshot.summary.absent.unwrap_or_default());
    if unreadable > 0 {
        let entries = counted(unreadable, "entry", "entries");
        context.out.caution(format!(
            "{entries} could not be read when this snapshot was made: what could not be read is not in it"
        ));
    }
}

/// Nothing is written over the repository that is read.
fn check_outside(target: &Path, repository: Option<&Path>) -> Result<()> {
    if let Some(folder) = repository.and_then(|folder| folder.canonicalize().ok())
        && real(target).is_some_and(|target| target.starts_with(&folder))
    {
        let target = shown(target.as_os_str().as_bytes());
        return Err(Failure::failed(format!("cannot restore to '{target}': it lies in the repository that is read"))
            .hint("give --target another folder"));
    }
    Ok(())
}

/// What the report of a restore depends on besides the restore.
struct Told {
    restored: summary::Restored,
    /// Perhaps another snapshot should have been restored.
    is_passed_over: bool,
    /// Only what patterns say was wanted.
    is_picky: bool,
    /// What differs may be kept.
    keeps: bool,
    dry_run: bool,
    verify: bool,
}

impl Told {
    /// Tell how it went, and find the status.
    fn tell(self, context: &Context, report: &Report) -> Exit {
        let c = &report.counts;
        let is_lacking = c.unwritable + c.damaged + c.attributes > 0;
        let exit = match () {
            () if report.stopped => Exit::Interrupted,
            () if is_lacking || self.is_passed_over => Exit::Incomplete,
            () => Exit::Done,
        };
        let exit = context.outcome(exit);
        if context.out.json() {
            context.out.tell(&summary::restore_json(report, self.restored, self.dry_run, exit));
        } else {
            summary::restore_lines(report, self.dry_run, self.verify, self.keeps)
                .into_iter()
                .for_each(|l| context.out.note(l));
        }
        if self.is_picky && c.entries == 0 && exit == Exit::Done {
            context.out.caution("nothing was restored: --include and --exclude left nothing of it");
        }
        if exit == Exit::Interrupted {
            let message = "interrupted; run the same command again to go on";
            context.out.failure(&Failure::new(exit, message));
        } else if is_lacking && !context.out.json() {
            // Whatever else the status is about; of that it was told where it was met.
            context.out.warn("not everything was restored as it was: see above");
            if report.spoiled > 0 {
                context.out.advise(
                    "'drumlin check --read-data' lists what is damaged; 'drumlin repair --read-data' heals what can be healed, and the next backup \
                     stores again what is still there: then run the same command again",
                );
            }
        }
        exit
    }
}

/// Where a folder is that need not be there yet.
fn real(path: &Path) -> Option<PathBuf> {
    let path = std::path::absolute(path).ok()?;
    path.ancestors().find_map(|above| above.canonicalize().ok())
}

/// What rules left out of a backup, or what it could not read, was never compared with anything: --delete is no word
/// about it. Gives the rules, if they are given again, by the profile and the command line.
fn spare_unseen(context: &Context, args: &Restore, snapshot: &Snapshot) -> Result<Option<Arc<Filter>>> {
    if !args.delete || args.delete_excluded {
        return Ok(None);
    }
    let given = Excludes { rules: args.exclude.clone(), ..Excludes::default() };
    let given = rules::filter(&given, context.profile.as_ref(), &[], &[])?;
    let is_the_same = given.digest().is_some() && given.digest() == snapshot.summary.rules;
    let rules = is_the_same.then(|| Arc::new(given));
    let entries = |n| counted(n, "entry", "entries");
    let (message, hint) = match () {
        () if snapshot.summary.unreadable > 0 => (
            format!(
                "{} could not be read when this snapshot was made, and --delete would delete them from the target",
                entries(snapshot.summary.unreadable)
            ),
            "restore without --delete, or add --delete-excluded; --dry-run shows what would be deleted",
        ),
        () if snapshot.summary.excluded > 0 && rules.is_none() => (
            format!(
                "rules left {} out of this snapshot, and --delete would delete them from the target",
                entries(snapshot.summary.excluded)
            ),
            "give the same rules (the --profile, and the same --exclude): then all of that stays; or name what is to stay with --exclude, and add \
             --delete-excluded for all else; --dry-run shows what would be deleted",
        ),
        () => return Ok(rules),
    };
    match args.dry_run {
        true => context.out.warn(message),
        false => return Err(Failure::failed(message).hint(hint)),
    }
    Ok(rules)
}

/// Told before anything is unlocked or read.
fn check_patterns(args: &Restore) -> Result<Vec<Pattern>> {
    let exclude = rules::patterns(&args.exclude)?;
    let all = args.include.iter().map(Pattern::flag).chain(exclude.iter().cloned()).collect();
    Filter::new(&FilterOptions { exclude: all, ..FilterOptions::default() })?;
    Ok(exclude)
}

/// A target is a folder, or not there yet.
fn check_target(target: &Path) -> Result<()> {
    let what = match (target.metadata(), target.symlink_metadata()) {
        (Ok(meta), _) if !meta.is_dir() => "is there and is not a folder",
        (Err(_), Ok(meta)) if meta.is_symlink() => "is a symbolic link that leads nowhere",
        (Err(e), _) if e.kind() == ErrorKind::NotADirectory => "leads through a file",
        _ => return Ok(()),
    };
    let target = shown(target.as_os_str().as_bytes());
    Err(Failure::failed(format!("cannot restore to '{target}': it {what}"))
        .hint("give a folder as --target; it is made if it is not there yet"))
}

/// Paths in a snapshot begin at its root, whether the slash is written or not.
///
/// # Errors
/// It is empty: a variable that isn't set, most likely, and not all that there is.
fn absolute(path: Vec<u8>) -> Result<Vec<u8>> {
    match path.first() {
        None => Err(Failure::usage("one of the paths is empty").hint("give '/', or no path, for the whole snapshot")),
        Some(b'/') => Ok(path),
        Some(_) => Ok([b"/", &path[..]].concat()),
    }
}
