//! `dump`: a file of a snapshot, or an archive of a directory, to standard output or to a file.

use super::output::Output;
use super::{Look, is_dir, paths};
use crate::args::look::{Archive, Dump};
use crate::commands::processors;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result, plain};
use crate::render::path::shown;
use drumlin_engine::Error;
use drumlin_engine::dump::{Format, Options, dump_archive, dump_file};
use drumlin_engine::select::TreePath;
use std::io::{self, ErrorKind, IsTerminal};
use std::os::unix::ffi::OsStrExt;

/// Run it.
///
/// # Errors
/// There is no such path, it is damaged, or it can't be written.
pub fn run(context: &Context, args: &Dump) -> Result<Exit> {
    let look = Look::open(context, "dump")?;
    let spec = look.find(context, &args.snapshot, &args.select)?;
    let root = spec.snapshot.snapshot.root;
    let path = paths(&spec.subfolder, std::slice::from_ref(&args.entry))?.swap_remove(0);
    let is_dir = is_dir(&look.reader, root, &path)?;
    let archive = match args.archive {
        Some(Archive::Zip) => Some(Format::Zip),
        Some(Archive::Tar) => Some(Format::Tar),
        None => is_dir.then_some(Format::Tar),
    };
    let mut out = output(args, archive.is_some())?;
    let workers = args.workers.map_or_else(processors, usize::from);
    let dumped = look.watch.plainly(|monitor| match archive {
        None => dump_file(&look.reader, root, &path, workers, monitor, &mut out),
        Some(format) => {
            let options = Options { relative_to: above(&path), path, workers };
            dump_archive(&look.reader, root, &options, format, monitor, &mut out)
        }
    });
    if dumped.is_err()
        && let Some(path) = &args.target
    {
        // Half of it is of no use, and would be in the way of the next try.
        let _ = std::fs::remove_file(path);
    }
    match (out.failed(), dumped) {
        // Whoever read it has had enough.
        (Some(ErrorKind::BrokenPipe), _) => return Err(Failure::silent()),
        (_, Err(Error::System { source, .. })) if args.target.is_some() => {
            return Err(Failure::failed(format!("cannot write the dump{}: {}", to(args), plain(&source))));
        }
        (_, Err(e)) => return Err(e.into()),
        (_, Ok(report)) => {
            if report.skipped > 0 {
                let n = crate::render::size::counted(report.skipped, "entry", "entries");
                context.out.warn(format!("{n} left out: this kind of archive has no place for them"));
            }
            out.finish().map_err(|e| {
                if let Some(path) = &args.target {
                    let _ = std::fs::remove_file(path);
                }
                let cause = plain(&e);
                Failure::failed(format!("cannot write the dump{}: {cause}; what is there of it is of no use", to(args)))
            })?;
        }
    }
    Ok(look.exit())
}

/// Names in an archive begin with the directory's own.
fn above(path: &TreePath) -> TreePath {
    match path.entry() {
        Some((dir, _)) if !dir.is_empty() => {
            let bytes: Vec<u8> = dir.iter().map(|b| if *b == 0 { b'/' } else { *b }).collect();
            TreePath::parse(&bytes).unwrap_or_default()
        }
        _ => TreePath::root(),
    }
}

fn output(args: &Dump, archive: bool) -> Result<Output> {
    if let Some(path) = &args.target {
        return Output::create(path).map_err(Failure::file("make the new file", path));
    }
    if archive && io::stdout().is_terminal() {
        return Err(
            Failure::usage("an archive is not for a terminal").hint("send it to a file or a program, or use --target")
        );
    }
    Output::stdout().map_err(|e| Failure::failed(format!("cannot write to standard output: {}", plain(&e))))
}

/// Where a dump goes, if that has a name.
fn to(args: &Dump) -> String {
    args.target.as_ref().map_or_else(String::new, |path| format!(" to '{}'", shown(path.as_os_str().as_bytes())))
}
