//! `cache`: where the caches are, how large, and away with them.

use crate::args::about::{Cache, CacheAction};
use crate::context::{Context, Place};
use crate::exit::{Exit, Failure, Result};
use crate::lock;
use crate::render::size::bytes;
use crate::render::table::Table;
use crate::render::time::{Time, local, rfc3339};
use drumlin_format::RepositoryId;
use drumlin_repo::Repository;
use serde::Serialize;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

struct Found {
    repository: RepositoryId,
    path: PathBuf,
    bytes: u64,
    used: Time,
}

#[derive(Serialize)]
struct JsonCache {
    message_type: &'static str,
    repository: String,
    path: String,
    bytes: u64,
    last_used: String,
}

/// Run it.
///
/// # Errors
/// The caches can't be read, or a backup uses one that is to be deleted.
pub fn run(context: &Context, args: &Cache) -> Result<Exit> {
    let Some(folder) = context.caches() else {
        return Err(Failure::failed("there is no folder for caches: neither HOME nor XDG_CACHE_HOME says where"));
    };
    let found = all(context, &folder)?;
    match args.action {
        None => show(context, &folder, &found)?,
        Some(CacheAction::Clear) => clear(context, &folder, found)?,
    }
    Ok(Exit::Done)
}

fn all(context: &Context, folder: &Path) -> Result<Vec<Found>> {
    let entries = match std::fs::read_dir(folder) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(Failure::file("list", folder))?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let entry = entry.map_err(Failure::file("list", folder))?;
        let Some(repository) = entry.file_name().to_str().and_then(RepositoryId::parse) else { continue };
        // The user may have named a folder in which other things are, too.
        if !drumlin_repo::Cache::is_at(&entry.path()) {
            if drumlin_repo::Cache::is_among_others_at(&entry.path()) {
                let path = entry.path();
                context.out.warn(format!("'{}' holds more than a cache, and is left alone", path.display()));
            }
            continue;
        }
        let mut cache = Found { repository, path: entry.path(), bytes: 0, used: (0, 0) };
        measure(&entry.path(), &mut cache);
        found.push(cache);
    }
    found.sort_by_key(|c| std::cmp::Reverse(c.used));
    Ok(found)
}

/// Files that go away meanwhile take no room.
fn measure(folder: &Path, cache: &mut Found) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        cache.used = cache.used.max((meta.mtime(), 0));
        if meta.is_dir() {
            measure(&entry.path(), cache);
        } else {
            cache.bytes += meta.blocks() * 512;
        }
    }
}

fn show(context: &Context, folder: &Path, found: &[Found]) -> Result<()> {
    let out = context.out;
    if out.json() {
        return found.iter().try_for_each(|c| {
            out.object(&JsonCache {
                message_type: "cache",
                repository: c.repository.to_string(),
                path: c.path.display().to_string(),
                bytes: c.bytes,
                last_used: rfc3339(c.used),
            })
        });
    }
    out.line(format!("caches are kept in {}", folder.display()))?;
    if found.is_empty() {
        return out.line("there are none");
    }
    let mut table = Table::new(&["Repository", ">Size", "Last used"]);
    for cache in found {
        table.row(vec![cache.repository.to_string(), bytes(cache.bytes), local(cache.used)]);
    }
    table.lines().into_iter().try_for_each(|l| out.line(l))
}

fn clear(context: &Context, folder: &Path, mut found: Vec<Found>) -> Result<()> {
    let chosen = match context.place() {
        // No key is needed to know which one it is.
        Ok(place @ Place::Named(_)) => Some(Repository::read_config(&*context.store(&place)?)?.id),
        Ok(Place::Default(_)) => None,
        Err(e) => return Err(e),
    };
    if lock::at_work(folder, chosen.as_ref()) {
        return Err(Failure::new(Exit::Busy, "a backup is at work that uses the cache").hint("wait for its end"));
    }
    found.retain(|c| chosen.is_none_or(|id| c.repository == id));
    let total = found.iter().map(|c| c.bytes).sum();
    for cache in &found {
        drumlin_repo::Cache::remove_at(&cache.path).map_err(Failure::file("delete", &cache.path))?;
    }
    context.out.note(format!("deleted {} of caches", bytes(total)));
    Ok(())
}
