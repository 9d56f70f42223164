//! The commands: from arguments to a call of the engine to a report. One file a command.

mod about;
mod backup;
mod cache;
mod check;
mod copy;
mod count;
mod forget;
mod gather;
mod init;
mod key;
mod look;
mod parity;
mod prune;
mod repair;
mod restore;
mod snapshots;
mod undelete;
mod why;

use crate::args::{Cli, Command};
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use crate::hooks;
use crate::render::Out;
use crate::signals;
use drumlin_engine::select::SnapshotSpec;
use drumlin_host::walk::Crew;
use drumlin_repo::SnapshotInfo;

/// Run a command.
///
/// # Errors
/// Whatever ends it as a whole.
pub fn run(cli: Cli, out: &Out) -> Result<Exit> {
    let context = Context::new(cli.global, out)?;
    let repairs = matches!(cli.command, Command::Repair(_));
    if context.global.as_of.is_some() && !only_looks(&cli.command) {
        return Err(Failure::usage(
            "--as-of shows an earlier state, which can't be changed, and this command doesn't only read",
        )
        .hint("restore from that state, or copy it to another repository with 'drumlin copy'"));
    }
    let needs = needs_repository(&cli.command);
    let Some(profile) = context.profile.as_ref().filter(|_| needs) else {
        return ended(&context, command(&context, cli.command), repairs);
    };
    // Another one's hooks would undo what this one's make ready.
    let _alone = match &cli.command {
        Command::Backup(args) if !args.dry_run => hooks::alone(profile, out)?,
        _ => None,
    };
    let opened = hooks::open(profile, out).inspect_err(|failure| {
        if matches!(&cli.command, Command::Backup(args) if !args.dry_run) {
            hooks::on_failure(out, profile, failure.exit, &failure.message);
        }
    })?;
    let done = ended(&context, command(&context, cli.command), repairs);
    let Some(opened) = opened else { return done };
    context.let_go();
    let closed = opened.close(done.as_ref().map_or_else(|failure| failure.exit, |exit| *exit));
    match (&done, closed) {
        // What the command itself came to says more.
        (Err(_) | Ok(Exit::Incomplete | Exit::Unexplained | Exit::Interrupted), Err(failure)) => {
            out.trouble_with("hook", &failure.message);
        }
        (_, closed) => closed?,
    }
    done
}

/// Tell what is to be told at the end, and with what to exit.
fn ended(context: &Context, done: Result<Exit>, repairs: bool) -> Result<Exit> {
    context.keep();
    if !repairs {
        context.tell_healed();
    }
    done.map(|exit| context.outcome(exit)).map_err(if_stopped)
}

/// A failure of who was asked to end: whatever it failed of, that was wanted.
fn if_stopped(failure: Failure) -> Failure {
    match failure.exit {
        Exit::Failed if signals::is_stopped() => {
            Failure { exit: Exit::Interrupted, message: format!("interrupted: {}", failure.message), ..failure }
        }
        _ => failure,
    }
}

/// Whether a command looks at the repository.
fn needs_repository(command: &Command) -> bool {
    use Command::{Cache, Completions, Man, Version, Why};
    !matches!(command, Cache(_) | Completions(_) | Man(_) | Version(_) | Why(_))
}

/// Whether a command changes nothing in the repository that it is run on.
fn only_looks(command: &Command) -> bool {
    use Command::{Check, Copy, Diff, Du, Dump, Find, Ls, Restore, Snapshots, Stats};
    matches!(
        command,
        Restore(_) | Copy(_) | Snapshots(_) | Ls(_) | Find(_) | Diff(_) | Du(_) | Dump(_) | Stats(_) | Check(_)
    )
}

fn command(context: &Context, command: Command) -> Result<Exit> {
    match command {
        Command::Init(args) => init::run(context, &args),
        Command::Backup(args) => backup::run(context, *args),
        Command::Restore(args) => restore::run(context, *args),
        Command::Copy(args) => copy::run(context, &args),
        Command::Prune(args) => prune::run(context, &args),
        Command::Repair(args) => repair::run(context, &args),
        Command::Parity(args) => parity::run(context, &args),
        Command::Snapshots(args) => snapshots::run(context, &args),
        Command::Forget(args) => forget::run(context, &args),
        Command::Undelete(args) => undelete::run(context, &args),
        Command::Ls(args) => look::ls::run(context, &args),
        Command::Find(args) => look::find::run(context, &args),
        Command::Diff(args) => look::diff::run(context, &args),
        Command::Du(args) => look::du::run(context, &args),
        Command::Dump(args) => look::dump::run(context, &args),
        Command::Stats(args) => count::stats(context, &args),
        Command::Estimate(args) => count::run_estimate(context, *args),
        Command::Check(args) => check::run(context, &args),
        Command::Key(args) => key::run(context, &args),
        Command::Why(args) => why::run(context, &args),
        Command::Cache(args) => cache::run(context, &args),
        Command::Completions(args) => about::completions(context, &args),
        Command::Man(args) => about::man(context, &args),
        Command::Version(_) => about::version(context),
    }
}

/// A snapshot where a folder of it makes no sense.
///
/// # Errors
/// A folder was given.
pub fn whole(spec: SnapshotSpec) -> Result<SnapshotInfo> {
    if spec.subfolder.is_root() {
        return Ok(spec.snapshot);
    }
    Err(Failure::usage(format!("this command needs a whole snapshot: leave out ':{}'", spec.subfolder)))
}

/// Add a snapshot that was named, unless it was named before: by another name, perhaps.
pub fn add_once(named: &mut Vec<SnapshotInfo>, info: SnapshotInfo) {
    if named.iter().all(|known| known.snapshot.id != info.snapshot.id) {
        named.push(info);
    }
}

/// How many threads can run at once.
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// So many threads list directories where they mostly wait, for a disk that seeks or a server that answers.
const WALKERS_MOST: usize = 64;

/// How many threads list directories.
pub fn walkers() -> Crew {
    Crew { first: processors().max(2), most: WALKERS_MOST }
}
