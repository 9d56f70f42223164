//! What a backup leaves out: the rules of the profile, of the command line and of the program itself, in one filter.

use crate::args::excludes::{Excludes, Given, Rule, Rules};
use crate::exit::{Failure, Result};
use crate::place;
use crate::profile::Profile;
use crate::render::path::shown;
use drumlin_host::filter::{Filter, FilterOptions, Origin, Pattern};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The filter of these rules. Those of the command line stand last, and so count most.
///
/// `own` are folders of the program's own (the repository, the caches) which a backup of what is around them leaves
/// out.
///
/// # Errors
/// A pattern that makes no sense, or a file that can't be read.
pub fn filter(excludes: &Excludes, profile: Option<&Profile>, own: &[PathBuf], sources: &[Vec<u8>]) -> Result<Filter> {
    let mut options = FilterOptions::default();
    if let Some(profile) = profile {
        of_profile(profile, &mut options)?;
    }
    options.exclude.extend(patterns(&excludes.rules)?);
    options.exclude_if_present.extend(excludes.exclude_if_present.iter().cloned());
    options.exclude_caches |= excludes.exclude_caches;
    options.exclude_larger_than = excludes.exclude_larger_than.or(options.exclude_larger_than);
    for folder in own {
        options.exclude.extend(built_in(folder, sources)?);
    }
    Ok(Filter::new(&options)?)
}

/// The patterns of the command line.
///
/// # Errors
/// A file that can't be read.
pub fn patterns(rules: &Rules) -> Result<Vec<Pattern>> {
    let mut patterns = Vec::new();
    for Given { rule, ignore_case } in &rules.0 {
        match rule {
            Rule::Pattern(text) => patterns.push(Pattern { ignore_case: *ignore_case, ..Pattern::flag(text) }),
            Rule::File(path) => patterns.extend(read(path, *ignore_case)?),
        }
    }
    Ok(patterns)
}

fn of_profile(profile: &Profile, options: &mut FilterOptions) -> Result<()> {
    for pattern in profile.patterns() {
        let (not, body) = match pattern.text.strip_prefix('!') {
            Some(body) => ("!", body),
            None => ("", pattern.text),
        };
        let text = match body.starts_with("~/") {
            true => match place::expand(body)?.to_str() {
                Some(path) => format!("{not}{path}"),
                None => return Err(Failure::failed(format!("'{body}': the home folder's name is not UTF-8"))),
            },
            false => pattern.text.to_owned(),
        };
        let origin = Origin::File { path: profile.file().to_owned(), line: pattern.line };
        options.exclude.push(Pattern { text, origin, ignore_case: pattern.ignore_case });
    }
    for (file, ignore_case) in profile.pattern_files() {
        options.exclude.extend(read(&place::expand(file)?, ignore_case)?);
    }
    options.exclude_if_present.extend(profile.exclude_if_present.iter().cloned());
    options.exclude_caches = profile.exclude_caches;
    options.exclude_larger_than = profile.larger_than().map_err(Failure::failed)?;
    Ok(())
}

fn read(path: &Path, ignore_case: bool) -> Result<Vec<Pattern>> {
    let contents = std::fs::read(path).map_err(Failure::file("read the patterns in", path))?;
    Ok(Pattern::file(path, &contents, ignore_case)?)
}

/// Rules for a folder of the program's own, for each source that is above it: matching costs time for each entry. As
/// the source is spelt: on the way to it there may be symlinks, below it none are followed.
fn built_in(folder: &Path, sources: &[Vec<u8>]) -> Result<Vec<Pattern>> {
    let Ok(real) = folder.canonicalize() else { return Ok(Vec::new()) };
    let mut patterns = Vec::new();
    for source in sources {
        let source = Path::new(OsStr::from_bytes(source));
        let above = source.canonicalize().unwrap_or_else(|_| source.to_owned());
        let Some(within) = real.strip_prefix(above).ok().filter(|within| !within.as_os_str().is_empty()) else {
            continue;
        };
        let spelt = source.join(within);
        let Some(text) = spelt.to_str() else {
            let (spelt, source) = (shown(spelt.as_os_str().as_bytes()), shown(source.as_os_str().as_bytes()));
            let message =
                format!("'{spelt}' would be saved into itself: it lies in '{source}', and its name is not UTF-8");
            return Err(Failure::failed(message).hint("keep it elsewhere, or give it another name"));
        };
        patterns.push(Pattern { text: literal(text), origin: Origin::BuiltIn, ignore_case: false });
    }
    Ok(patterns)
}

/// A path as a pattern that matches it alone.
fn literal(path: &str) -> String {
    let mut out = String::with_capacity(path.len());
    for c in path.chars() {
        if matches!(c, '*' | '?' | '[' | ']' | '{' | '}' | '\\' | ' ') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use drumlin_host::filter::{Reason, Scope, Verdict};
    use drumlin_host::meta::Kind;

    #[test]
    fn own_folders_are_left_out_of_what_is_around_them_only() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        let own = root.join("a[b] c*");
        std::fs::create_dir(&own).unwrap();
        let bytes = |p: &Path| p.to_str().unwrap().as_bytes().to_vec();
        let filter =
            |source: &Path| filter(&Excludes::default(), None, std::slice::from_ref(&own), &[bytes(source)]).unwrap();
        let around = filter(&root);
        assert!(
            matches!(around.verdict(&bytes(&own), Kind::Dir, 0), Verdict::Exclude(rule) if rule.origin == Origin::BuiltIn)
        );
        assert_eq!(around.verdict(&bytes(&root.join("ab cx")), Kind::Dir, 0), Verdict::Include);
        assert!(!filter(&own).has_rules(), "whoever names it wants it");
        // By another way to the same place.
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&root, &link).unwrap();
        let around = filter(&link);
        let by_link = link.join(own.file_name().unwrap());
        assert!(matches!(around.verdict(&bytes(&by_link), Kind::Dir, 0), Verdict::Exclude(_)));
        assert_eq!(around.verdict(&bytes(&link.join("other")), Kind::Dir, 0), Verdict::Include);
        assert!(!filter(Path::new("/proc")).has_rules());
    }

    #[test]
    fn the_command_line_has_the_last_word() {
        let given = |text: &str| Given { rule: Rule::Pattern(text.into()), ignore_case: false };
        let excludes = Excludes { rules: Rules(vec![given("*.o"), given("!keep.o")]), ..Excludes::default() };
        let filter = filter(&excludes, None, &[], &[]).unwrap();
        let scope = Scope { sources: vec![b"/".to_vec()], one_file_system: false };
        assert!(matches!(filter.explain(b"/nowhere/x.o", &scope).reason, Reason::Excluded(_)));
        assert!(matches!(filter.explain(b"/nowhere/keep.o", &scope).reason, Reason::TakenBack(_)));
    }
}
