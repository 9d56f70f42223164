//! `backup`: from arguments and profile to a snapshot.

use super::init::make_default;
use super::snapshots::in_words;
use super::{gather, walkers};
use crate::args::backup::{Backup, IndexKind};
use crate::args::select::split_tags;
use crate::context::{Context, Place};
use crate::exit::{Exit, Failure, Result};
use crate::hooks::{self, When};
use crate::process::user_name;
use crate::render::progress::Watch;
use crate::render::size::counted;
use crate::render::summary::{self, Extra};
use crate::render::time::local;
use crate::signals::{Signals, is_stopped};
use crate::sources::Lines;
use crate::stream::{self, Interruptible, Program};
use crate::{lock, rules, unlock};
use drumlin_engine::Error;
use drumlin_engine::LATE;
use drumlin_engine::backup::{Compression, Options, Report, Source, backup};
use drumlin_repo::{Cache, CreateOptions, IndexMode, NewLock, Repository, random_secret};
use drumlin_store::{DiscardStore, MemoryStore, Soon};
use std::ffi::OsString;
use std::sync::Arc;

/// Memory to use unless the user says otherwise.
pub const MEMORY: usize = 128 << 20;
/// Bytes of a host name, as DNS has them at most.
const HOST_MAX: usize = 255;

/// Run it, with the profile's hooks around it.
///
/// # Errors
/// No snapshot was made.
pub fn run(context: &Context, args: Backup) -> Result<Exit> {
    let Some(profile) = context.profile.as_ref().filter(|_| !args.dry_run) else {
        return save(context, args).map(|d| d.exit);
    };
    // From here on a signal is for the hooks to know of, too.
    Signals::heed();
    let before = hooks::run(profile, When::Before).and_then(|()| go_on());
    let saved = before.and_then(|()| save(context, args)).map_err(super::if_stopped);
    context.close();
    match saved {
        Ok(done) if done.exit != Exit::Interrupted => {
            match hooks::run(profile, When::After { exit: done.exit, snapshot: done.snapshot.as_deref() }) {
                // What the backup itself came to says more.
                Err(failure) if done.exit != Exit::Done => context.out.trouble_with("hook", &failure.message),
                other => other?,
            }
            Ok(done.exit)
        }
        Ok(done) => {
            hooks::on_failure(context.out, profile, done.exit, "interrupted");
            Ok(done.exit)
        }
        Err(failure) => {
            hooks::on_failure(context.out, profile, failure.exit, &failure.message);
            Err(failure)
        }
    }
}

/// Whether nobody has asked for an end so far.
fn go_on() -> Result<()> {
    match is_stopped() {
        true => Err(Failure::new(Exit::Interrupted, "interrupted; no snapshot was made")),
        false => Ok(()),
    }
}

/// What came of it.
struct Done {
    exit: Exit,
    snapshot: Option<String>,
}

/// What to save, as the arguments have it.
enum What {
    Paths(Vec<Vec<u8>>),
    Stdin(Vec<u8>),
    Command(Vec<u8>, Vec<OsString>),
}

impl What {
    /// Its names, by which its snapshots are recognised.
    fn paths(&self) -> Vec<Vec<u8>> {
        match self {
            What::Paths(paths) => paths.clone(),
            What::Stdin(name) | What::Command(name, _) => vec![name.clone()],
        }
    }
}

fn save(context: &Context, mut args: Backup) -> Result<Done> {
    let profile = context.profile.as_ref();
    let what = what(context, &mut args)?;
    let host = gather::host(context, args.host.take());
    if host.len() > HOST_MAX {
        return Err(Failure::usage(format!("the host name has {} bytes; {HOST_MAX} are the most", host.len())));
    }
    let (repository, cache) = open(context, args.dry_run)?;
    go_on()?;
    if args.dry_run && repository.may_read().is_err() {
        context.out.caution(
            "this key can't read the repository, and a dry run doesn't use the cache instead: everything counts as new; 'drumlin estimate' shows what has changed",
        );
    }
    let paths = what.paths();
    let _lock = match context.caches().filter(|_| !args.dry_run) {
        Some(caches) => lock::sources(&caches, &repository.config().id, &host, &paths)?,
        None => None,
    };
    let parent = gather::parent(context, &repository, args.parent.as_deref())?;
    // Before anything is started that would have to be ended again.
    let filter = match &what {
        What::Paths(paths) => Some(filter(context, &args, paths)?),
        _ => None,
    };

    let is_of_files = matches!(what, What::Paths(_));
    let watch = Watch::new(context.out, "backup");
    let (source, program) = source(what, filter, one_file_system(context, &args), watch.signals())?;
    let processors = super::processors();
    let memory = memory(context, args.memory)?;
    let options = Options {
        source,
        host,
        user: user_name(),
        tags: split_tags(&[profile.map_or(&[][..], |p| &p.tags), &args.tag].concat()),
        time: args.time,
        parent,
        force: args.force,
        compression: match (args.compression, profile) {
            (Some(given), _) => given,
            (None, Some(profile)) => profile.compression().map_err(Failure::failed)?.unwrap_or(Compression::Auto),
            (None, None) => Compression::Auto,
        },
        workers: args.workers.or(profile.and_then(|p| p.workers)).map_or(processors, usize::from),
        walkers: args.walkers.map_or_else(walkers, |n| usize::from(n).into()),
        late: LATE,
        memory,
        index: match args.index {
            IndexKind::Auto => IndexMode::Auto(memory / 4),
            IndexKind::Exact => IndexMode::Exact,
            IndexKind::Sparse => IndexMode::Sparse,
        },
        checkpoint_bytes: if args.dry_run { 0 } else { args.checkpoint },
        skip_unchanged: is_of_files && (args.skip_if_unchanged || profile.is_some_and(|p| p.skip_if_unchanged)),
        program: concat!("drumlin ", env!("CARGO_PKG_VERSION")).into(),
    };
    // On the side: a storage that is far away takes its time to list what it has.
    let looking = context.look(&repository);
    let outcome = watch.run(|monitor| backup(&repository, &cache, options, monitor));
    context.heard(looking);
    if let Some(program) = program {
        program.end();
    }
    let report = match outcome {
        Ok(report) => report,
        // Whatever it failed of: the user wanted it to end.
        Err(Error::Stream(_) | Error::Interrupted) if watch.signals().stop() => {
            return Err(Failure::new(Exit::Interrupted, "interrupted; no snapshot was made"));
        }
        Err(e) => return Err(e.into()),
    };
    if let (Some(memory), Some(snapshot), false) = (repository.memory(), &report.snapshot, args.dry_run) {
        memory.made(snapshot.id, &report.indexes);
    }
    finish(context, &report, args.dry_run)
}

/// The end of a run that made a snapshot, or needed none: what it did, and whether that is all that it should have
/// done.
fn finish(context: &Context, report: &Report, dry_run: bool) -> Result<Done> {
    let snapshot = report.snapshot.as_ref().filter(|_| !dry_run);
    let exit = match () {
        () if report.stopped => Exit::Interrupted,
        () if report.counts.unreadable > 0 => Exit::Incomplete,
        () => Exit::Done,
    };
    let exit = context.outcome(exit);
    if context.out.json() {
        context.out.tell(&summary::json(report, Extra { dry_run, exit }));
    } else {
        summary::lines(report, dry_run).into_iter().for_each(|l| context.out.note(l));
        match snapshot {
            Some(s) => context.out.note(format!("saved {}", in_words(s))),
            None if dry_run => context.out.note("a dry run: nothing was stored"),
            None => {
                let same =
                    report.parent.as_ref().map_or_else(String::new, |parent| format!(" since {}", in_words(parent)));
                context.out.note(format!("nothing has changed{same}: no snapshot was made"));
            }
        }
    }
    // Each was told, but not to who wants little told.
    if report.counts.changed_while_read > 0 && context.out.quiet() {
        let files = counted(report.counts.changed_while_read, "file", "files");
        context.out.caution(format!("{files} changed while being read; what was saved of them may be inconsistent"));
    }
    if let Some((made, seconds)) = snapshot.and_then(|s| Some((s, s.summary.behind?))) {
        let known = (made.time.0.saturating_add_unsigned(seconds), 0);
        context.out.caution(format!(
            "this machine's clock says {}, but by earlier backups it is past {}: one of the two is wrong. See that the clock is set; until \
             there are seven newer ones, rules of 'forget' leave this snapshot alone",
            local(made.time),
            local(known),
        ));
    }
    let done = Done { exit, snapshot: snapshot.map(|s| s.id.to_string()) };
    match exit {
        Exit::Interrupted => {
            let kept = if snapshot.is_some() { "; the next run goes on from the partial snapshot" } else { "" };
            context.out.failure(&Failure::new(exit, format!("interrupted{kept}")));
        }
        _ if report.counts.absent > 0 && !context.out.json() => {
            let sources = counted(report.counts.absent, "source was", "sources were");
            context.out.caution(format!(
                "{sources} not there or not readable: rules of 'forget' count this snapshot apart from those that have all of them"
            ));
        }
        _ if report.counts.unreadable > 0 && !context.out.json() && !context.out.quiet() => {
            context.out.warn("part of the source could not be read: see above");
        }
        _ => {}
    }
    Ok(done)
}

fn what(context: &Context, args: &mut Backup) -> Result<What> {
    if let Some(name) = &args.command {
        if args.paths.is_empty() {
            return Err(Failure::usage("--command needs a program: --command NAME -- PROGRAM ARGUMENTS..."));
        }
        return Ok(What::Command(stream::name(name)?, std::mem::take(&mut args.paths)));
    }
    let files = [
        (&args.files_from, Lines::Patterns),
        (&args.files_from_verbatim, Lines::Verbatim),
        (&args.files_from_raw, Lines::Raw),
    ];
    let named = args.stdin_filename.as_ref().or(args.stdin.as_ref());
    if let Some(name) = named {
        if !args.paths.is_empty() || files.iter().any(|(f, _)| !f.is_empty()) {
            return Err(Failure::usage("--stdin saves only standard input; save paths with another backup")
                .hint("the name of the stream comes right after --stdin"));
        }
        return Ok(What::Stdin(stream::name(name)?));
    }
    gather::paths(context, std::mem::take(&mut args.paths), &files).map(What::Paths)
}

fn one_file_system(context: &Context, args: &Backup) -> bool {
    args.excludes.one_file_system || context.profile.as_ref().is_some_and(|p| p.one_file_system)
}

/// Memory to use, by argument, by profile, or by default.
pub fn memory(context: &Context, given: Option<usize>) -> Result<usize> {
    let of_profile = context.profile.as_ref().map_or(Ok(None), |p| p.memory()).map_err(Failure::failed)?;
    Ok(given.or(of_profile).unwrap_or(MEMORY))
}

fn filter(context: &Context, args: &Backup, paths: &[Vec<u8>]) -> Result<Arc<drumlin_host::filter::Filter>> {
    let own = gather::own_folders(context)?;
    rules::filter(&args.excludes, context.profile.as_ref(), &own, paths).map(Arc::new)
}

fn source(
    what: What,
    filter: Option<Arc<drumlin_host::filter::Filter>>,
    one_file_system: bool,
    signals: &Signals,
) -> Result<(Source, Option<Program>)> {
    Ok(match what {
        What::Paths(paths) => {
            let filter = filter.unwrap_or_else(|| Arc::new(drumlin_host::filter::Filter::none()));
            (Source::Paths { paths, filter, one_file_system }, None)
        }
        What::Stdin(name) => {
            let reader = Box::new(Interruptible::stdin(signals)?);
            (Source::Stream { name, reader, outcome: Box::new(|| Ok(())) }, None)
        }
        What::Command(name, args) => {
            let (program, reader) = Program::start(&args, signals)?;
            let waits = program.clone();
            let outcome = Box::new(move || waits.outcome());
            (Source::Stream { name, reader: Box::new(reader), outcome }, Some(program))
        }
    })
}

/// The repository to write to: made first if it is the one used when none is named; for a dry run, one that takes
/// everything and keeps nothing.
fn open(context: &Context, dry_run: bool) -> Result<(Repository, Arc<Cache>)> {
    let place = context.place()?;
    let given = unlock::given(&context.global, context.profile.as_ref())?;
    let is_new = matches!(&place, Place::Default(path) if !path.exists());
    if dry_run {
        let repository = if is_new {
            // It isn't made now; the run is measured against an empty one.
            let (memory, lock) = (Arc::new(MemoryStore::new()), NewLock::File(random_secret()?));
            Repository::create(memory, CreateOptions::default(), lock, "dry run", 0)?.0
        } else {
            let store = Arc::new(DiscardStore::new(context.store(&place)?));
            context.remembered(unlock::open(store, given)?)
        };
        let cache = Cache::open(&repository, None, &std::env::temp_dir())?;
        return Ok((repository, Arc::new(cache)));
    }
    let repository = match place {
        Place::Default(path) if is_new => match make_default(&path, given) {
            Ok(made) => {
                made.report(context)?;
                made.insist(context);
                context.remembered(made.repository)
            }
            // Somebody else's first backup was faster: theirs is as good.
            Err(_) if path.exists() => context.open_to_remove()?,
            Err(e) => return Err(e),
        },
        place => {
            let store = context.store(&place)?;
            // Its session, before anything else.
            store.expect(Soon::Put);
            context.remembered(unlock::open(store, given)?)
        }
    };
    let cache = context.cache(&repository)?;
    if !cache.is_kept() && !context.global.no_cache && repository.may_read().is_err() {
        context.out.warn(
            "this key can't read the repository, and no cache is kept here of what was saved before: each backup reads all files",
        );
    }
    Ok((repository, cache))
}
