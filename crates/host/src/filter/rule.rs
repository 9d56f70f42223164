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
        let escaped = format!("\\{body}");
        let body = if not.is_empty() && body.starts_with('#') { &escaped } else { body };
        let inner = body.trim_end().trim_end_matches('/');
        if body.starts_with('/') || !inner.contains('/') || inner.starts_with("**/") {
            return Some(format!("{not}{body}"));
        }
        Some(format!("{not}**/{body}"))
    }

    /// Why it can match nothing, if so: paths that patterns are compared with are absolute.
    pub(super) fn is_futile(&self) -> Option<&'static str> {
        let body = self.text.strip_prefix('!').unwrap_or(&self.text);
        match body {
            _ if body.starts_with("./") || body.starts_with("../") => {
                Some("no path is relative: leave the dots out, and it matches at any depth, or begin it with '/'")
            }
            _ if body.starts_with("~/") => {
                Some("'~' is no home folder here: write that out (or '/~/', for a folder of that name)")
            }
            _ => None,
        }
    }
}
