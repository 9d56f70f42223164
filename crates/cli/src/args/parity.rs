//! `parity`.

use super::sessions::{duration, session};
use clap::Args;
use drumlin_engine::parity::Shape;
use drumlin_format::SessionId;
use std::str::FromStr;
use std::time::Duration;

/// Store parity across packs, so that packs that are lost as a whole can be rebuilt
///
/// Packs are coded in groups: by default, any 2 of each 20 may be lost or damaged, and 'drumlin repair' rebuilds them.
/// That takes a tenth of their size. Packs that are covered already aren't read again. Run it after backups; once there
/// is parity, 'prune' and 'repair' keep it up to date. It is optional: removing it loses no data.
#[derive(Args, Debug)]
pub struct Parity {
    /// How many packs are coded together, and how many of them may be lost, such as 20+2; 'off' removes all parity
    /// across packs [default: as it is, or 20+2]
    #[arg(value_name = "PACKS+LOST", value_parser = wish)]
    pub wish: Option<Wish>,

    /// Only report what would be done
    #[arg(short = 'n', long)]
    pub dry_run: bool,

    /// Treat this session as dead: nothing of its backup counts then
    #[arg(long, value_name = "SESSION", value_parser = session)]
    pub evict: Vec<SessionId>,

    /// Treat a backup as dead after this long without new data, measured between prunes
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = duration)]
    pub evict_after: Duration,

    /// Threads [default: one per processor]
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
