//! The commands that look into snapshots. They share how a snapshot is found and how an entry is shown.

pub mod diff;
pub mod du;
pub mod dump;
pub mod entry;
pub mod find;
pub mod ls;
mod output;

use super::gather;
use crate::args::select::Select;
use crate::context::{Context, Looked};
use crate::exit::{Exit, Failure, Result};
use crate::render::progress::Watch;
use drumlin_engine::list::find_entry;
use drumlin_engine::select::{SnapshotSpec, TreePath, open_reader};
use drumlin_format::snapshot::Root;
use drumlin_format::tree::Kind;
use drumlin_repo::SnapshotInfo;
use drumlin_repo::pack::Reader;
use std::ffi::OsStr;
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// An open repository with its snapshots.
pub struct Look<'a> {
    /// All snapshots, oldest first.
    pub snapshots: Vec<SnapshotInfo>,
    /// Reads trees and contents.
    pub reader: Arc<Reader>,
    /// All snapshots could be read.
    is_whole: bool,
    /// Hears of damage.
    pub watch: Watch<'a>,
}

impl<'a> Look<'a> {
    /// Open the repository and read the list of its snapshots.
    ///
    /// # Errors
    /// It can't be read with this key.
    pub fn open(context: &Context<'a>, during: &'static str) -> Result<Self> {
        let Looked { repository, cache, snapshots, damaged } = context.open_to_look(false)?;
        for error in &damaged {
            context.out.trouble_with(during, &error.to_string());
        }
        let reader = open_reader(&repository, &cache)?;
        Ok(Look { snapshots, is_whole: damaged.is_empty(), reader, watch: Watch::new(context.out, during) })
    }

    /// The snapshot that the user means.
    ///
    /// # Errors
    /// There is none, or several.
    pub fn find(&self, context: &Context, spec: &OsStr, select: &Select) -> Result<SnapshotSpec> {
        gather::find(context, &self.snapshots, spec, select)
    }

    /// What the command exits with, if nothing else is wrong.
    pub fn exit(&self) -> Exit {
        if self.watch.counts().damaged > 0 || !self.is_whole { Exit::Incomplete } else { Exit::Done }
    }
}

/// Whether a path of a snapshot is a directory.
///
/// # Errors
/// There is no such path, or damage on the way to it.
pub fn is_dir(reader: &Arc<Reader>, root: Option<Root>, path: &TreePath) -> Result<bool> {
    Ok(path.is_root() || find_entry(reader, root, path, |e| Ok(e.meta().kind))? == Kind::Dir)
}

/// The paths that the user means in a folder of a snapshot; the folder itself if none is named.
///
/// # Errors
/// No snapshot can hold such a path.
pub fn paths(folder: &TreePath, given: &[impl AsRef<OsStr>]) -> Result<Vec<TreePath>> {
    if given.is_empty() {
        return Ok(vec![folder.clone()]);
    }
    if given.iter().any(|path| path.as_ref().is_empty()) {
        return Err(Failure::usage("one of the paths is empty").hint("give '/', or no path, for the whole snapshot"));
    }
    let below = |path: &OsStr| TreePath::parse(&[&folder.to_bytes()[..], b"/", path.as_bytes()].concat());
    given.iter().map(|p| Ok(below(p.as_ref())?)).collect()
}

/// Keeps the first failure to write, which the engine knows nothing of, and ends its operation.
#[derive(Default)]
pub struct Written(Option<Failure>);

impl Written {
    /// Go on unless it failed.
    pub fn heed(&mut self, written: Result<()>) -> drumlin_engine::Result<ControlFlow<()>> {
        Ok(match written {
            Ok(()) => ControlFlow::Continue(()),
            Err(failure) => {
                self.0 = Some(failure);
                ControlFlow::Break(())
            }
        })
    }

    /// Whether all was written.
    ///
    /// # Errors
    /// It was not.
    pub fn check(self) -> Result<()> {
        self.0.map_or(Ok(()), Err)
    }
}
