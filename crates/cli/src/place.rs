//! Where things are by default: the XDG folders and what lies in them (XDG Base Directory Specification 0.8).
//!
//! ```text
//! $XDG_DATA_HOME/drumlin/repository          the repository used when none is named
//! $XDG_CONFIG_HOME/drumlin/profiles.toml     profiles
//! $XDG_CONFIG_HOME/drumlin/keys/<id>.key     key files, by the id of their repository
//! $XDG_STATE_HOME/drumlin/<id>/seen          what was seen of a repository
//! $XDG_CACHE_HOME/drumlin/<id>/              caches, by the id of their repository
//! $XDG_CACHE_HOME/drumlin/locks/             what is at work
//! ```

use crate::exit::{Failure, Result};
use drumlin_format::RepositoryId;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

/// A folder of the user's: `variable` if it is an absolute path, else `fallback` in the home folder.
fn xdg(variable: &str, fallback: &str) -> Result<PathBuf> {
    let set = |v: OsString| Some(PathBuf::from(v)).filter(|p| p.is_absolute());
    let base = match std::env::var_os(variable).and_then(set) {
        Some(base) => base,
        None => home()
            .ok_or_else(|| {
                Failure::failed(format!("there is no home folder: neither HOME nor {variable} says where to look"))
            })?
            .join(fallback),
    };
    Ok(base.join("drumlin"))
}

/// The home folder.
pub fn home() -> Option<PathBuf> {
    std::env::home_dir().filter(|p| p.is_absolute())
}

/// The repository that is used when none is named.
pub fn default_repository() -> Result<PathBuf> {
    Ok(xdg("XDG_DATA_HOME", ".local/share")?.join("repository"))
}

/// The folder of key files.
pub fn keys() -> Result<PathBuf> {
    Ok(xdg("XDG_CONFIG_HOME", ".config")?.join("keys"))
}

/// The key file of a repository.
pub fn key_file(id: &RepositoryId) -> Result<PathBuf> {
    Ok(keys()?.join(format!("{id}.key")))
}

/// The file of profiles.
pub fn profiles() -> Result<PathBuf> {
    Ok(xdg("XDG_CONFIG_HOME", ".config")?.join("profiles.toml"))
}

/// The folder of caches.
pub fn caches() -> Result<PathBuf> {
    xdg("XDG_CACHE_HOME", ".cache")
}

/// The folder of what is remembered and is no cache.
pub fn states() -> Result<PathBuf> {
    xdg("XDG_STATE_HOME", ".local/state")
}

/// A path with a leading `~/` replaced by the home folder.
pub fn expand(path: &str) -> Result<PathBuf> {
    let at_home = match path.strip_prefix('~') {
        Some("") => Some(""),
        Some(rest) => rest.strip_prefix('/'),
        None => None,
    };
    match at_home {
        None => Ok(path.into()),
        Some(rest) => match home() {
            Some(home) => Ok(home.join(rest)),
            None => Err(Failure::failed(format!("there is no home folder to find '{path}' in"))),
        },
    }
}

/// Make a folder for its owner alone, with its parents.
pub fn make_folder(path: &Path) -> Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(Failure::file("make", path))
}

/// The same for what must last: durably, with those of its parents that are new.
pub fn make_lasting_folder(path: &Path) -> Result<()> {
    let new: Vec<&Path> = path.ancestors().take_while(|folder| !folder.exists()).collect();
    make_folder(path)?;
    new.iter().filter_map(|folder| folder.parent()).try_for_each(sync_folder)
}

/// Make the names in a folder durable.
pub fn sync_folder(path: &Path) -> Result<()> {
    File::open(path).and_then(|f| f.sync_all()).map_err(Failure::file("sync", path))
}
