//! `check`: is the repository sound?

use super::{Context, processors};
use crate::args::check::Check;
use crate::exit::{Exit, Failure, Result};
use crate::render::check::{JsonCheck, JsonDamage, damage, lines};
use crate::render::progress::Watch;
use crate::render::size::counted;
use drumlin_engine::check::{Options, Part, check};

/// Run it.
///
/// # Errors
/// The repository can't be read, or it is damaged.
pub fn run(context: &Context, args: &Check) -> Result<Exit> {
    if matches!(args.read_data, Some(Part::Share(_))) && context.global.no_cache {
        let message = "--no-cache and a share of the packs don't go together: the cache remembers which were read";
        return Err(Failure::usage(message).hint("read parts by their number, such as --read-data=1/10"));
    }
    let repository = context.open_to_read()?;
    let cache = context.cache(&repository)?;
    let watch = Watch::new(context.out, "check");
    let options = Options { read: args.read_data, workers: processors() };
    let report = watch.run(|monitor| check(&repository, &cache, options, monitor))?;
    let exit = match (report.stopped, report.findings.is_empty()) {
        (true, _) => Exit::Interrupted,
        (false, true) => Exit::Done,
        (false, false) => Exit::Failed,
    };
    let out = context.out;
    if out.json() {
        report.findings.iter().try_for_each(|finding| out.object(&JsonDamage::from(finding)))?;
        out.object(&JsonCheck::new(&report, exit))?;
    } else {
        report.findings.iter().flat_map(damage).try_for_each(|line| out.line(line))?;
        lines(&report, repository.role()).iter().for_each(|line| out.note(line));
    }
    match exit {
        Exit::Failed => {
            let objects = report.findings.len() as u64;
            let damaged = counted(objects, "object is not as it should be", "objects are not as they should be");
            Err(Failure::failed(format!("the repository is damaged: {damaged}")))
        }
        other => Ok(other),
    }
}
