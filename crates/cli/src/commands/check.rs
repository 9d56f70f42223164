//! `check`: is the repository sound?

use super::processors;
use crate::args::check::Check;
use crate::context::Context;
use crate::exit::{Exit, Failure, Result};
use crate::render::check::{JsonCheck, JsonDamage, damage, lines};
use crate::render::missing;
use crate::render::progress::Watch;
use crate::render::size::counted;
use crate::render::time::now;
use drumlin_engine::check::{Options, Part, check};

/// Run it.
///
/// # Errors
/// The repository can't be read, or it is damaged.
pub fn run(context: &Context, args: &Check) -> Result<Exit> {
    let global = &context.global;
    if matches!(args.read_data, Some(Part::Share(_))) && (global.no_cache || global.as_of.is_some()) {
        let option = if global.no_cache { "--no-cache" } else { "--as-of" };
        let message =
            format!("{option} can't be combined with a share of the packs: the cache remembers which were read");
        return Err(Failure::usage(message).hint("read parts by their number, such as --read-data=1/10"));
    }
    let repository = context.open_to_check()?;
    if args.accept_history {
        let missing = repository.look_back(now().0, true)?;
        repository.accept_history(now().0)?;
        match missing.is_empty() {
            true => context.out.note("nothing that this client has seen is missing"),
            false => context.out.note(format!("accepted that these are missing: {missing}")),
        }
    }
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
    // Whoever reads no more of it has its status all the same.
    let told;
    if out.json() {
        let damage = report.findings.iter().try_for_each(|finding| out.object(&JsonDamage::from(finding)));
        told = damage.and_then(|()| out.object(&JsonCheck::new(&report, exit)));
    } else {
        told = report.findings.iter().flat_map(damage).try_for_each(|line| out.line(line));
        lines(&report, repository.role()).iter().for_each(|line| out.note(line));
        if !report.limits.is_empty() {
            out.insist(format!(
                "a {} key can't read everything: run without -q to see what was not checked",
                repository.role().name()
            ));
        }
    }
    match exit {
        Exit::Failed => {
            let objects = report.findings.len() as u64;
            let damaged = counted(objects, "object is not as it should be", "objects are not as they should be");
            let failure = Failure::failed(format!("the repository is damaged: {damaged}"));
            if report.missing.is_empty() {
                return Err(failure);
            }
            let words = missing::words(&report.missing);
            Err(Failure::failed(format!("{}; {words}", failure.message)).hint(missing::HINT))
        }
        // Who has stopped reading is not who has stopped it.
        Exit::Interrupted => Ok(exit),
        other => told.map(|()| other),
    }
}
