//! Rules as the user wrote them, and where.

use std::path::PathBuf;

/// Where a rule comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The command line, or an option of the API.
    Flag,
    /// A line of a file of patterns, counted from 1.
    File {
        /// The file.
        path: PathBuf,
        /// The line.
        line: u64,
    },
    /// The program itself.
    BuiltIn,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Flag => f.write_str("option"),
            Origin::File { path, line } => write!(f, "{}:{line}", path.display()),
            Origin::BuiltIn => f.write_str("built in"),
        }
    }
}

/// A rule, to be shown.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// As the user wrote it.
    pub text: String,
    /// Where.
    pub origin: Origin,
}

impl std::fmt::Display for Rule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({})", self.text, self.origin)
    }
}

/// A rule that is not well formed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{rule}: {cause}")]
pub struct FilterError {
    /// The rule.
    pub rule: Rule,
    /// What is wrong with it.
    pub cause: String,
}

/// One line in the syntax of gitignore.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// The line. Empty ones have no effect.
    pub text: String,
    /// Where it stands.
    pub origin: Origin,
    /// Letters match without regard to case.
    pub ignore_case: bool,
}

impl Pattern {
    /// A pattern from the command line.
    pub fn flag(text: impl Into<String>) -> Pattern {
        Pattern { text: text.into(), origin: Origin::Flag, ignore_case: false }
    }

    /// The patterns of a file, given its contents.
    ///
    /// # Errors
    /// The first line that is not UTF-8.
    pub fn file(path: impl Into<PathBuf>, contents: &[u8], ignore_case: bool) -> Result<Vec<Pattern>, FilterError> {
        let path = path.into();
        let contents = contents.strip_prefix(b"\xef\xbb\xbf").unwrap_or(contents);
        let mut out = Vec::new();
        for (i, line) in contents.split(|&b| b == b'\n').enumerate() {
            let origin = Origin::File { path: path.clone(), line: i as u64 + 1 };
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            match std::str::from_utf8(line) {
                Ok(text) => {
                    let pattern = Pattern { text: text.to_owned(), origin, ignore_case };
                    // A line of a file may be a comment; what is given by itself is a pattern, Emacs' '#*#' too.
                    if !text.starts_with('#') && pattern.glob().is_some() {
                        out.push(pattern);
                    }
                }
                Err(e) => {
                    let text = String::from_utf8_lossy(line).into_owned();
                    return Err(FilterError { rule: Rule { text, origin }, cause: e.to_string() });
                }
            }
        }
        Ok(out)
    }

    pub(super) fn rule(&self) -> Rule {
        Rule { text: self.text.clone(), origin: self.origin.clone() }
    }

    /// The line as the matcher takes it: git anchors a pattern with a slash inside at its file's directory; here it may
    /// match at any depth. `None` for a line without effect.
    pub(super) fn glob(&self) -> Option<String> {
        let text = self.text.as_str();
        if text.trim_end().is_empty() {
            return None;
        }
        let (not, body) = match text.strip_prefix('!') {
            Some(body) => ("!", body),
            None => ("", text),
        };
        if body.trim_end().is_empty() {
            return None;
        }
        let escaped = if not.is_empty() && body.starts_with('#') { "\\" } else { "" };
        let body = format!("{escaped}{}", letters(&folded(body), self.ignore_case).unwrap_or_else(|_| body.to_owned()));
        let inner = body.trim_end().trim_end_matches('/');
        if body.starts_with('/') || !inner.contains('/') || inner.starts_with("**/") {
            return Some(format!("{not}{body}"));
        }
        Some(format!("{not}**/{body}"))
    }

    /// Why it can match nothing, or not what it seems to, if so: paths that patterns are compared with are absolute.
    pub(super) fn is_futile(&self) -> Option<&'static str> {
        let body = self.text.strip_prefix('!').unwrap_or(&self.text);
        if let Err(why) = letters(body, self.ignore_case) {
            return Some(why);
        }
        match body {
            _ if body.contains("/../") || body.trim_end().ends_with("/..") => {
                Some("paths that it is compared with never contain '..': write the folder's full path")
            }
            _ if body.starts_with("./") || body.starts_with("../") => Some(
                "paths that it is compared with are absolute: leave the dots out, and it matches at any depth, or start it with '/'",
            ),
            _ if body.starts_with("~/") => {
                Some("'~' is not your home folder here: write its full path (or '/~/', for a folder of that name)")
            }
            _ => None,
        }
    }
}

/// A pattern without the slashes and dots that stand for nothing in a path: `"$DIR/.cache"`, where the variable ends
/// with a slash.
fn folded(body: &str) -> String {
    let mut folded = body.to_owned();
    while let Some(at) = folded.find("//") {
        folded.remove(at);
    }
    while let Some(at) = folded.find("/./") {
        folded.drain(at..at + 2);
    }
    if folded.ends_with("/.") {
        folded.pop();
    }
    folded
}

/// Letters beyond ASCII, which the matcher takes for several bytes: those of a class, and of a pattern that takes both
/// cases, become alternatives.
///
/// # Errors
/// A range, or a class of what is not in it, that can't be written so.
fn letters(body: &str, ignore_case: bool) -> Result<String, &'static str> {
    let (mut out, mut rest) = (String::with_capacity(body.len()), body);
    while let Some(next) = rest.chars().next() {
        rest = &rest[next.len_utf8()..];
        match next {
            '\\' => {
                out.push(next);
                if let Some(escaped) = rest.chars().next() {
                    rest = &rest[escaped.len_utf8()..];
                    letter(escaped, ignore_case, &mut out);
                }
            }
            // A bracket that stands first is one of the class.
            '[' => {
                match rest.char_indices().skip_while(|(_, c)| matches!(c, '!' | '^')).skip(1).find(|(_, c)| *c == ']') {
                    Some((end, _)) => {
                        class(&rest[..end], ignore_case, &mut out)?;
                        rest = &rest[end + 1..];
                    }
                    None => out.push(next),
                }
            }
            _ => letter(next, ignore_case, &mut out),
        }
    }
    Ok(out)
}

fn letter(letter: char, ignore_case: bool, out: &mut String) {
    let both = [letter.to_lowercase().to_string(), letter.to_uppercase().to_string()];
    match ignore_case && !letter.is_ascii() && both[0] != both[1] {
        true => out.push_str(&format!("{{{}}}", both.join(","))),
        false => out.push(letter),
    }
}

fn class(inner: &str, ignore_case: bool, out: &mut String) -> Result<(), &'static str> {
    // Either would be taken for the characters that it is made of.
    if inner.contains("[:") {
        return Err(
            "named classes such as [:digit:] are not supported: write the characters themselves, such as [0-9]",
        );
    }
    if inner.contains('\\') {
        return Err("a backslash in brackets escapes nothing here: put ']' first, and '-' first or last");
    }
    if inner.is_ascii() {
        out.push_str(&format!("[{inner}]"));
        return Ok(());
    }
    let is_range = inner.char_indices().any(|(at, c)| c == '-' && at > 0 && at + 1 < inner.len());
    if inner.starts_with(['!', '^']) || is_range {
        return Err("brackets with characters beyond ASCII can only list them one by one, without '-', '!' and '^'");
    }
    out.push('{');
    for (at, c) in inner.chars().enumerate() {
        out.push_str(if at > 0 { "," } else { "" });
        let cases = [c.to_string(), c.to_lowercase().to_string(), c.to_uppercase().to_string()];
        match c {
            _ if c.is_ascii_punctuation() => out.push_str(&format!("\\{c}")),
            _ if ignore_case && !c.is_ascii() => out.push_str(&cases.join(",")),
            _ => out.push(c),
        }
    }
    out.push('}');
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_beyond_ascii_are_whole() {
        let of = |text: &str, ignore_case| letters(text, ignore_case);
        assert_eq!(of("ä*.txt", false).unwrap(), "ä*.txt");
        assert_eq!(of("ä*.txt", true).unwrap(), "{ä,Ä}*.txt");
        assert_eq!(of("[öa,]1[a-z]", false).unwrap(), "{ö,a,\\,}1[a-z]");
        assert_eq!(of("[]a]x[!a-z]", false).unwrap(), "[]a]x[!a-z]");
        assert_eq!(of("\\[ö]", false).unwrap(), "\\[ö]");
        assert_eq!(of("a[b", false).unwrap(), "a[b");
        assert_eq!(of("[ö]", true).unwrap(), "{ö,ö,Ö}");
        for refused in ["[[:digit:]]*", "[[:alpha:]]", "[a\\]]", "[\\]", "[ä-ü]", "[!ä]", "[^ä]", "x[a-zä]"] {
            assert!(of(refused, false).is_err(), "{refused}");
        }
    }

    #[test]
    fn slashes_and_dots_that_stand_for_nothing() {
        for (given, means) in
            [("//a///b", "/a/b"), ("/a/./b", "/a/b"), ("/a/././b/", "/a/b/"), ("/a/.", "/a/"), ("/.a/..b", "/.a/..b")]
        {
            assert_eq!(folded(given), means);
        }
    }
}
