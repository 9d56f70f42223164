//! `parity`.

use super::sessions::{duration, session};
use clap::Args;
use drumlin_engine::parity::Shape;
use drumlin_format::SessionId;
use std::str::FromStr;
use std::time::Duration;

/// Keep parity across packs, so that packs that are lost as a whole can be made again
///
/// Packs are coded together: of each 20, any 2 may be gone or damaged, and 'drumlin repair' makes them again, for a tenth of their size.
/// What is covered already isn't read again. Run it after backups; a prune and a repair bring it up to date by themselves once
/// there is any. Nothing rests on it: without it everything is as it was.
#[derive(Args, Debug)]
pub struct Parity {
    /// Packs that are coded together, and how many of them may be lost, such as 20+2; or 'off' to remove all parity across packs
    /// [default: as it is, or 20+2]
    #[arg(value_name = "PACKS+LOST", value_parser = wish)]
    pub wish: Option<Wish>,

    /// Only tell what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Take this session for dead; nothing of its backup counts then
    #[arg(long, value_name = "SESSION", value_parser = session)]
    pub evict: Vec<SessionId>,

    /// Take sessions for dead that have written nothing for so long, as seen from one prune to another
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = duration)]
    pub evict_after: Duration,

    /// Threads [default: one a processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    pub workers: Option<u16>,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Parity of this shape.
    Shape(Shape),
    /// None.
    Off,
}

fn wish(text: &str) -> Result<Wish, String> {
    match text {
        "off" => Ok(Wish::Off),
        other => Shape::from_str(other).map(Wish::Shape),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wishes_are_read() {
        assert_eq!(wish("off"), Ok(Wish::Off));
        assert_eq!(wish("16+1"), Ok(Wish::Shape(Shape { seats: 16, rows: 1 })));
        for wrong in ["", "on", "16", "0+1", "16+0", "129+1", "4+17", "16+1+1", "-1+2", "a+b"] {
            assert!(wish(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_help_tells_the_default() {
        let default = Shape::default();
        let help = <super::super::Cli as clap::CommandFactory>::command();
        let help = help.find_subcommand("parity").unwrap().clone().render_long_help().to_string();
        assert!(help.contains(&format!("or {default}]")), "{help}");
    }
}
