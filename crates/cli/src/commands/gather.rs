//! What several commands have in common: which paths are saved, of which host, compared with what; and which snapshots
//! are meant.

use super::snapshots::in_words;
use super::whole;
use crate::args::select::{Select, split_tags};
use crate::context::Context;
use crate::exit::{Failure, Result, plain};
use crate::place;
use crate::process::host_name;
use crate::profile::Profile;
use crate::render::path::shown;
use crate::render::size::counted;
use crate::render::time::now;
use crate::sources::{self, Lines};
use drumlin_engine::Error;
use drumlin_engine::backup::Parent;
use drumlin_engine::select::{SnapshotFilter, SnapshotSpec, SourceName, find_snapshot};
use drumlin_repo::{Repository, SnapshotInfo};
use drumlin_store::Location;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// So many of the sources that aren't there are named, if none is.
const MISSING_TOLD: usize = 10;

/// The sources: those given, those in files, else those of the profile; each once, in order.
///
/// # Errors
/// There are none, or one of them makes no sense.
pub fn paths(context: &Context, mut given: Vec<OsString>, files: &[(&Vec<PathBuf>, Lines)]) -> Result<Vec<Vec<u8>>> {
    let mut named = given.clone();
    for (files, lines) in files {
        for file in *files {
            let mut missing = |pattern: &str| {
                // A disk that isn't mounted, for whoever looks at the status alone.
                context.note_doubt();
                context.out.caution(format!("{}: nothing matches '{pattern}'", file.display()));
            };
            given.extend(sources::from_file(file, *lines, &mut missing)?);
        }
    }
    let none_named = given.is_empty() && files.iter().all(|(f, _)| f.is_empty());
    if none_named && let Some(profile) = &context.profile {
        given = sources::of_profile(&profile.sources)?;
        named = given.clone();
    }
    // Of a list that a program has made nobody wants to hear of each link.
    for path in &named {
        if let Some(advice) = sources::saves_itself_alone(&sources::absolute(path)?) {
            context.out.caution(format!("{}: {advice}", shown(path.as_bytes())));
        }
    }
    if given.is_empty() {
        return Err(
            Failure::usage("there is nothing to back up").hint("name the paths, as in 'drumlin backup ~/documents'")
        );
    }
    let mut paths: Vec<_> = given.iter().map(|p| sources::absolute(p)).collect::<Result<_>>()?;
    // In whatever order they are named, it is the same set.
    paths.sort();
    paths.dedup();
    // Told before a repository is made or asked for: a slip, or a mount that isn't there.
    let missing: Option<Vec<String>> = paths.iter().map(|p| missing(p)).collect();
    match missing {
        Some(mut all) => {
            let more = all.len().saturating_sub(MISSING_TOLD);
            all.truncate(MISSING_TOLD);
            let more =
                if more > 0 { format!("; and {}", counted(more as u64, "other", "others")) } else { String::new() };
            Err(Failure::failed(format!("there is nothing to back up: {}{more}", all.join("; "))))
        }
        None => Ok(paths),
    }
}

/// Why there is nothing at a path, if so.
fn missing(path: &[u8]) -> Option<String> {
    let error = Path::new(OsStr::from_bytes(path)).symlink_metadata().err()?;
    Some(match error.kind() {
        std::io::ErrorKind::NotFound => format!("{} is not there", shown(path)),
        _ => format!("{}: {}", shown(path), plain(&error)),
    })
}

/// The host's name: as given, by profile, by environment, or this machine's own.
pub fn host(context: &Context, given: Option<String>) -> String {
    let some = |name: Option<String>| name.filter(|n| !n.is_empty());
    some(given)
        .or_else(|| some(context.profile.as_ref().and_then(|p| p.host.clone())))
        .or_else(|| some(std::env::var_os("DRUMLIN_HOST").map(|n| n.to_string_lossy().into_owned())))
        .unwrap_or_else(host_name)
}

/// What to compare with.
///
/// # Errors
/// There is no such snapshot.
pub fn parent(context: &Context, repository: &Repository, given: Option<&str>) -> Result<Parent> {
    let Some(spec) = given else { return Ok(Parent::Latest) };
    let (all, _) = repository.snapshots()?;
    Ok(Parent::Id(whole(find(context, &all, OsStr::new(spec), &Select::default())?)?.snapshot.id))
}

/// The folders that a backup would change by saving them: the repository, the caches, and what is remembered.
///
/// # Errors
/// What names the repository makes no sense.
pub fn own_folders(context: &Context) -> Result<Vec<PathBuf>> {
    let mut own: Vec<PathBuf> = context.caches().into_iter().chain(place::states().ok()).collect();
    if let Location::Local(path) = context.place()?.location() {
        own.push(path);
    }
    Ok(own)
}

/// A profile's own snapshots: those of its host, of its sources and no others, and with its tags, as far as no others
/// are asked for.
///
/// # Errors
/// A path makes no sense.
pub fn of_profile(context: &Context, profile: &Profile, select: &Select) -> Result<SnapshotFilter> {
    let mut filter = select.filter()?;
    if select.host.is_empty() {
        filter.hosts = vec![host(context, None)];
    }
    if select.path.is_empty() && !profile.sources.is_empty() {
        let paths = sources::of_profile(&profile.sources)?;
        filter.paths = paths.iter().map(|path| sources::absolute(path).map(SourceName::from)).collect::<Result<_>>()?;
        filter.exactly = true;
    }
    let tags = split_tags(&profile.tags);
    if select.tag.is_empty() && !tags.is_empty() {
        filter.tags = vec![tags];
    }
    Ok(filter)
}

/// The snapshot that is meant: `latest` is that of the profile, if there is one.
///
/// # Errors
/// There is none, or several.
pub fn find(context: &Context, all: &[SnapshotInfo], spec: &OsStr, select: &Select) -> Result<SnapshotSpec> {
    let found = find_snapshot(all, spec.as_bytes(), &filter(context, select)?, now().0).map_err(|e| {
        let hint =
            "with a profile, only snapshots of its host, sources and tags count; -H, --path and --tag select others";
        let is_none = matches!(e, Error::NoSnapshot(_)) && spec.as_bytes().starts_with(b"latest");
        if is_none && context.profile.is_some() { Failure::from(e).hint(hint) } else { Failure::from(e) }
    })?;
    if let Some(info) = &found.from_the_future {
        context.note_doubt();
        context.out.caution(format!(
            "{} is passed over: its time is in the future by this machine's clock, so one of the two is wrong; name it by its id if you want it",
            in_words(&info.snapshot)
        ));
    }
    Ok(found)
}

/// What narrows down `latest`.
///
/// # Errors
/// A path makes no sense.
pub fn filter(context: &Context, select: &Select) -> Result<SnapshotFilter> {
    match &context.profile {
        Some(profile) => of_profile(context, profile, select),
        None => select.filter(),
    }
}
