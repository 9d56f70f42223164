//! `drumlin`: deduplicated, compressed, end-to-end encrypted backups, from the command line.
//!
//! Arguments in `args`, from arguments over the engine to a report in `commands`, what is shown in `render`. The
//! libraries below never print, ask, read the environment or exit: all of that is done here.

mod args;
mod commands;
mod context;
mod exit;
mod hooks;
mod lock;
mod place;
mod process;
mod profile;
mod question;
mod remote;
mod render;
mod rules;
mod signals;
mod sources;
mod stream;
mod unlock;

use crate::exit::{Exit, Failure};
use crate::render::Out;
use clap::FromArgMatches;
use std::process::ExitCode;

fn main() -> ExitCode {
    let json = std::env::args_os().take_while(|a| a != "--").any(|a| a == "--json");
    process::prepare(json);
    let cli = match args::definition().try_get_matches().and_then(|m| args::Cli::from_arg_matches(&m)) {
        Ok(cli) => cli,
        Err(e) => return usage(&e, json),
    };
    let out = Out::new(cli.global.json, cli.global.quiet, cli.global.verbose);
    let ended = commands::run(cli, &out).and_then(|exit| match out.flush() {
        Ok(()) => Ok(exit),
        // It has done what it was to do, which the message alone would not say.
        Err(failure) => {
            let hint = format!("only its output is lost: the command itself ended with status {}", exit as i32);
            Err(failure.hint(hint))
        }
    });
    let exit = ended.unwrap_or_else(|failure| {
        let _ = out.flush();
        out.failure(&failure);
        failure.exit
    });
    ExitCode::from(exit as u8)
}

/// Help and versions are no errors; what the parser can't make sense of is.
fn usage(error: &clap::Error, json: bool) -> ExitCode {
    if !error.use_stderr() {
        // A reader that has gone had enough of it.
        let _ = error.print();
        return ExitCode::from(Exit::Done as u8);
    }
    if json {
        let text = error.to_string();
        let message = text.strip_prefix("error: ").unwrap_or(&text).trim_end();
        Out::new(true, false, 0).failure(&Failure::usage(message));
    } else {
        let _ = error.print();
    }
    ExitCode::from(Exit::Usage as u8)
}
