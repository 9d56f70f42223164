//! `restore`: from a snapshot to a folder.

use super::Context;
use super::backup::memory;
use super::look::is_dir;
use crate::args::restore::Restore;
use crate::exit::{Exit, Failure, Result};
use crate::render::path::shown;
use crate::render::progress::Watch;
use crate::render::size::counted;
use crate::render::summary;
use drumlin_engine::restore::{Options, restore};
use drumlin_engine::select::{find_snapshot, open_reader};
use drumlin_host::filter::{Filter, FilterOptions, Pattern};
use std::io::ErrorKind;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Run it.
///
/// # Errors
/// Nothing was restored, or not all that should have been.
pub fn run(context: &Context, args: Restore) -> Result<Exit> {
    check_patterns(&args)?;
    check_target(&args.target)?;
    let repository = context.open_to_read()?;
    let cache = context.cache(&repository)?;
    let (all, damaged) = repository.snapshots()?;
    for error in damaged {
        context.out.warn(format!("a snapshot is passed over: {error}"));
    }
    let spec = find_snapshot(&all, args.snapshot.as_bytes(), &args.select.filter()?)?;
    let snapshot = spec.snapshot.snapshot;
    let folder = &spec.subfolder;
    if !folder.is_root() && !is_dir(&open_reader(&repository, &cache)?, snapshot.root, folder)? {
        return Err(Failure::failed(format!("'{folder}' is no folder in the snapshot"))
            .hint("a single file is restored as a path of its own, behind the snapshot and a space"));
    }
    if snapshot.partial.is_some() {
        context.out.warn("this snapshot is partial: its backup was interrupted, and what it did not reach is missing");
    }
    if snapshot.summary.unreadable > 0 {
        let entries = counted(snapshot.summary.unreadable, "entry", "entries");
        context
            .out
            .note(format!("{entries} could not be read when this snapshot was made: what was in them is not in it"));
    }
    let picky = !args.include.is_empty() || !args.exclude.is_empty();
    let watch = Watch::new(context.out, "restore");
    let options = Options {
        snapshot,
        subfolder: (!spec.subfolder.is_root()).then(|| spec.subfolder.to_bytes()),
        paths: args.paths.into_iter().map(OsStringExt::into_vec).map(absolute).collect(),
        target: args.target,
        overwrite: args.overwrite.into(),
        delete: args.delete,
        dry_run: args.dry_run,
        include: args.include,
        exclude: args.exclude,
        verify: args.verify,
        numeric_ids: args.numeric_ids,
        thaw: args.thaw.into(),
        workers: args.workers.map_or_else(super::processors, usize::from),
        memory: memory(context, args.memory)?,
    };
    let report = watch.run(|monitor| restore(&repository, &cache, options, monitor))?;
    let c = &report.counts;
    let exit = match () {
        () if report.stopped => Exit::Interrupted,
        () if c.unwritable + c.damaged + c.attributes > 0 => Exit::Incomplete,
        () => Exit::Done,
    };
    if context.out.json() {
        context.out.tell(&summary::restore_json(&report, args.dry_run, exit));
    } else {
        summary::restore_lines(&report, args.dry_run, args.verify).into_iter().for_each(|l| context.out.note(l));
    }
    if picky && c.entries == 0 && exit == Exit::Done {
        context.out.warn("nothing was restored: --include and --exclude left nothing of it");
    }
    match exit {
        Exit::Interrupted => {
            let message = "interrupted; the same command goes on where it ended";
            context.out.failure(&Failure::new(exit, message));
        }
        Exit::Incomplete => context.out.warn("not everything was restored as it was: see above"),
        _ => {}
    }
    Ok(exit)
}

/// Told before anything is unlocked or read.
fn check_patterns(args: &Restore) -> Result<()> {
    let exclude = args.include.iter().chain(&args.exclude).map(Pattern::flag).collect();
    Filter::new(&FilterOptions { exclude, ..FilterOptions::default() })?;
    Ok(())
}

/// A target is a folder, or not there yet.
fn check_target(target: &Path) -> Result<()> {
    let what = match (target.metadata(), target.symlink_metadata()) {
        (Ok(meta), _) if !meta.is_dir() => "is there and is no folder",
        (Err(_), Ok(meta)) if meta.is_symlink() => "is a symbolic link that leads nowhere",
        (Err(e), _) if e.kind() == ErrorKind::NotADirectory => "leads through a file",
        _ => return Ok(()),
    };
    let target = shown(target.as_os_str().as_bytes());
    Err(Failure::failed(format!("cannot restore to '{target}': it {what}"))
        .hint("give --target a folder; one that is not there yet is made"))
}

/// Paths in a snapshot begin at its root, whether the slash is written or not.
fn absolute(path: Vec<u8>) -> Vec<u8> {
    if path.starts_with(b"/") { path } else { [b"/", &path[..]].concat() }
}
