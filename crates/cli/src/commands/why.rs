//! `why`: which rule includes or excludes a path.

use super::gather;
use crate::args::about::Why;
use crate::context::Context;
use crate::exit::{Exit, Result};
use crate::render::path::{JsonPath, shown};
use crate::{rules, sources};
use drumlin_host::filter::{Explanation, Reason, Rule, Scope};
use serde::Serialize;

#[derive(Serialize)]
struct JsonWhy<'a> {
    message_type: &'static str,
    #[serde(flatten)]
    path: JsonPath<'a>,
    included: bool,
    reason: &'static str,
    /// The path at which it is decided.
    at: JsonPath<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rule: Option<JsonRule<'a>>,
    explanation: String,
}

#[derive(Serialize)]
struct JsonRule<'a> {
    text: &'a str,
    origin: String,
}

/// Run it.
///
/// # Errors
/// A pattern or a path makes no sense.
pub fn run(context: &Context, args: &Why) -> Result<Exit> {
    let profile = context.profile.as_ref();
    let mut given = args.source.clone();
    if given.is_empty()
        && let Some(profile) = profile
    {
        given = sources::of_profile(&profile.sources)?;
    }
    if given.is_empty() {
        given.push("/".into());
    }
    let sources: Vec<_> = given.iter().map(|s| sources::absolute(s)).collect::<Result<_>>()?;
    let own = gather::own_folders(context).unwrap_or_default();
    let filter = rules::filter(&args.excludes, profile, &own, &sources)?;
    let one_file_system = args.excludes.one_file_system || profile.is_some_and(|p| p.one_file_system);
    let scope = Scope { sources, one_file_system };
    for path in &args.paths {
        let path = sources::absolute(path)?;
        let explanation = filter.explain(&path, &scope);
        match context.out.json() {
            true => context.out.object(&object(&path, &explanation))?,
            false => context.out.line(format!("{}: {}", shown(&path), shown(explanation.to_string().as_bytes())))?,
        }
    }
    Ok(Exit::Done)
}

fn object<'a>(path: &'a [u8], explanation: &'a Explanation) -> JsonWhy<'a> {
    let (reason, rule): (_, Option<&Rule>) = match &explanation.reason {
        Reason::Source => ("source", None),
        Reason::AboveSource => ("above_source", None),
        Reason::NoRule => ("no_rule", None),
        Reason::TakenBack(rule) => ("taken_back", Some(rule)),
        Reason::Tag(rule) => ("tag", Some(rule)),
        Reason::NotCovered => ("not_covered", None),
        Reason::Excluded(rule) => ("excluded", Some(rule)),
        Reason::Tagged(rule) => ("tagged", Some(rule)),
        Reason::OtherFileSystem => ("other_file_system", None),
        Reason::BeyondSymlink => ("beyond_symlink", None),
        Reason::Unreadable(_) => ("unreadable", None),
    };
    JsonWhy {
        message_type: "why",
        path: path.into(),
        included: explanation.included,
        reason,
        at: explanation.at[..].into(),
        rule: rule.map(|r| JsonRule { text: &r.text, origin: r.origin.to_string() }),
        explanation: explanation.to_string(),
    }
}
