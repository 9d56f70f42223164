//! Which snapshots are meant.

use crate::exit::Result;
use crate::render::time;
use clap::Args;
use drumlin_engine::select::{SnapshotFilter, SourceName};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Narrows down which snapshots are meant, `latest` too.
#[derive(Args, Clone, Debug, Default)]
pub struct Select {
    /// Only snapshots of this host (may be repeated)
    #[arg(short = 'H', long, value_name = "HOST")]
    pub host: Vec<String>,

    /// Only snapshots that have all these tags. Given several times: any one list is enough. '' means untagged
    #[arg(long, value_name = "TAG[,TAG...]")]
    pub tag: Vec<String>,

    /// Only snapshots of this source, a path or the name of a stream (may be repeated: only snapshots of all of them)
    #[arg(long, value_name = "PATH")]
    pub path: Vec<PathBuf>,

    /// Only snapshots taken before TIME: 'latest' is then the state at that time
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub before: Option<(i64, u32)>,

    /// Only snapshots taken at TIME or later
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    pub after: Option<(i64, u32)>,
}

impl Select {
    /// As the engine takes it.
    ///
    /// # Errors
    /// A path makes no sense.
    pub fn filter(&self) -> Result<SnapshotFilter> {
        let set = |tags: &String| split_tags(std::slice::from_ref(tags));
        Ok(SnapshotFilter {
            hosts: self.host.clone(),
            tags: self.tag.iter().map(set).collect(),
            paths: self.path.iter().map(|p| source(p.as_os_str())).collect::<Result<_>>()?,
            exactly: false,
            after: self.after,
            before: self.before,
        })
    }
}

/// A source as it is named: what has no slash may be the name of a stream.
fn source(given: &OsStr) -> Result<SourceName> {
    let stream = (!given.as_bytes().contains(&b'/')).then(|| given.as_bytes().to_vec());
    Ok(SourceName { path: crate::sources::absolute(given)?, stream })
}

/// The tags of lists with commas, each once, in order.
pub fn split_tags(lists: &[String]) -> Vec<String> {
    let mut tags: Vec<String> = Vec::new();
    for tag in lists.iter().flat_map(|l| l.split(',')).map(str::trim).filter(|t| !t.is_empty()) {
        if !tags.iter().any(|t| t == tag) {
            tags.push(tag.to_owned());
        }
    }
    tags
}
