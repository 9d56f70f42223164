//! The user's ssh configuration (ssh_config(5)), as far as it says how to reach a host.
//!
//! For each option the first value counts, the user's file before the system's. `Host` is understood in full, `Match`
//! with `all`, `host`, `originalhost`, `user` and `localuser`. What would change how the host is reached and isn't
//! understood is noted, and told when reaching it fails: whoever needs it uses ssh itself (`--ssh-command`).

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Files include files; so deep at most.
const DEPTH_MAX: usize = 16;
/// A configuration has some lines: what is much longer is something else.
const BYTES_MAX: u64 = 4 << 20;

/// What to do about a host whose key is not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Strict {
    /// Refuse it. `ask` is the same here, where nobody is asked.
    #[default]
    Yes,
    /// Take it, and remember it.
    AcceptNew,
    /// Take any.
    No,
}

/// How a host is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Host {
    pub host_name: Option<String>,
    pub user: Option<String>,
    pub port: Option<u16>,
    pub identity_files: Vec<String>,
    pub identities_only: Option<bool>,
    /// A socket, `none`, or `SSH_AUTH_SOCK`.
    pub identity_agent: Option<String>,
    /// Hosts on the way, nearest first; `none` if there shall be none.
    pub proxy_jump: Option<String>,
    pub proxy_command: Option<String>,
    pub known_hosts: Option<Vec<String>>,
    pub global_known_hosts: Option<Vec<String>>,
    pub host_key_alias: Option<String>,
    /// A file of keys that no host may have.
    pub revoked: Option<String>,
    pub strict: Option<Strict>,
    /// Nobody is there to be asked.
    pub batch_mode: Option<bool>,
    pub alive_interval: Option<Duration>,
    pub alive_count: Option<u32>,
    pub connect_timeout: Option<Duration>,
    /// What isn't understood.
    pub notes: Vec<Note>,
}

/// Something that isn't understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Note {
    /// What, and where it stands.
    pub said: String,
    /// Whether the host may not be reached for it; else it is the talk with it that may fail.
    pub reaches: bool,
}

/// Whose configuration it is, and for which host.
pub(super) struct Query<'a> {
    pub host: &'a str,
    /// The user of the address, if it names one.
    pub user: Option<&'a str>,
    pub local_user: &'a str,
    pub home: Option<&'a Path>,
}

impl Host {
    /// Read `files`, in this order; those that are not there say nothing.
    pub(super) fn read(files: &[PathBuf], query: &Query) -> Result<Self, String> {
        let mut host = Host::default();
        for file in files {
            let mut applies = true;
            let folder = file.parent().unwrap_or(Path::new("/"));
            host.file(file, folder, query, &mut applies, 0)?;
        }
        Ok(host)
    }

    /// `folder` is where what a file includes is looked for.
    fn file(
        &mut self,
        path: &Path,
        folder: &Path,
        query: &Query,
        applies: &mut bool,
        depth: usize,
    ) -> Result<(), String> {
        use std::io::Read;
        let mut text = Vec::new();
        let read = std::fs::File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut text));
        match read {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&text);
        for (number, line) in text.lines().enumerate() {
            let at = || format!("{}:{}", path.display(), number + 1);
            let words = match rest_of(line, "proxycommand") {
                // For a shell, whose quotes are its own.
                Some("") => vec!["ProxyCommand".to_owned()],
                Some(command) => vec!["ProxyCommand".to_owned(), command.to_owned()],
                None => words(line).ok_or_else(|| format!("{}: a quote that doesn't end", at()))?,
            };
            let Some((keyword, values)) = words.split_first() else { continue };
            let keyword = keyword.to_ascii_lowercase();
            match keyword.as_str() {
                "host" => *applies = matches_any(query.host, values),
                "match" => match self.matches(values, query) {
                    Some(matches) => *applies = matches,
                    None => {
                        *applies = false;
                        self.notes.push(Note { said: format!("'{}' in {}", line.trim(), at()), reaches: true });
                    }
                },
                "include" if *applies => {
                    if depth >= DEPTH_MAX {
                        return Err(format!("{}: files include files too deeply", at()));
                    }
                    for pattern in values {
                        for file in included(pattern, folder, query.home) {
                            // What a file says of hosts ends with it.
                            let mut inside = true;
                            self.file(&file, folder, query, &mut inside, depth + 1)?;
                        }
                    }
                }
                _ if *applies => self.option(&keyword, values).map_err(|why| format!("{}: {why}", at()))?,
                _ => {}
            }
            let is_off = values.first().is_some_and(|value| matches!(value.as_str(), "no" | "none"));
            let reaches = REACH.contains(&keyword.as_str());
            if *applies && (reaches || TALK.contains(&keyword.as_str())) && !is_off {
                self.notes.push(Note { said: format!("'{}' in {}", written(line), at()), reaches });
            }
        }
        Ok(())
    }

    /// The host that `alias` means, as far as it has been read.
    pub(super) fn host(&self, alias: &str) -> String {
        match &self.host_name {
            // As it was read, it had no other token.
            Some(name) => expand_host(name, alias).unwrap_or_else(|_| alias.to_owned()),
            None => alias.to_owned(),
        }
    }

    /// Whether a `Match` line holds; `None` if it isn't understood.
    fn matches(&self, values: &[String], query: &Query) -> Option<bool> {
        let mut rest = values.iter();
        let mut all = true;
        while let Some(word) = rest.next() {
            let (word, negated) = match word.strip_prefix('!') {
                Some(word) => (word, true),
                None => (word.as_str(), false),
            };
            let host = self.host(query.host);
            let subject = match word.to_ascii_lowercase().as_str() {
                "all" => {
                    all &= !negated;
                    continue;
                }
                "host" => host.as_str(),
                "originalhost" => query.host,
                // What the address says counts more than any file.
                "user" => query.user.or(self.user.as_deref()).unwrap_or(query.local_user),
                "localuser" => query.local_user,
                _ => return None,
            };
            let patterns: Vec<String> = rest.next()?.split(',').map(str::to_owned).collect();
            all &= matches_any(subject, &patterns) != negated;
        }
        Some(all)
    }

    fn option(&mut self, keyword: &str, values: &[String]) -> Result<(), String> {
        let value = || values.first().cloned().ok_or_else(|| format!("'{keyword}' has no value"));
        let yes = || Ok::<bool, String>(value()?.eq_ignore_ascii_case("yes"));
        let number = || value()?.parse::<u32>().map_err(|_| format!("'{keyword}' is not followed by a number"));
        let seconds = || -> Result<Duration, String> {
            let value = value()?;
            seconds(&value).ok_or_else(|| format!("'{keyword} {value}' is not a time"))
        };
        match keyword {
            "hostname" => {
                let name = value()?;
                expand_host(&name, "").map_err(|why| format!("'HostName {name}': {why}"))?;
                first(&mut self.host_name, name);
            }
            "user" => first(&mut self.user, value()?),
            "port" => match u16::try_from(number()?) {
                Ok(port @ 1..) => first(&mut self.port, port),
                _ => return Err("'Port' is not followed by a port".into()),
            },
            "identityfile" => self.identity_files.push(value()?),
            "identitiesonly" => first(&mut self.identities_only, yes()?),
            "identityagent" => first(&mut self.identity_agent, value()?),
            // Whichever stands first.
            "proxyjump" if self.proxy_command.is_none() => first(&mut self.proxy_jump, value()?),
            "proxycommand" if self.proxy_jump.is_none() => first(&mut self.proxy_command, value()?),
            "userknownhostsfile" => first(&mut self.known_hosts, values.to_vec()),
            "globalknownhostsfile" => first(&mut self.global_known_hosts, values.to_vec()),
            "batchmode" => first(&mut self.batch_mode, yes()?),
            "revokedhostkeys" => first(&mut self.revoked, value()?),
            "hostkeyalias" => first(&mut self.host_key_alias, value()?),
            "stricthostkeychecking" => {
                let strict = match value()?.to_ascii_lowercase().as_str() {
                    "yes" | "ask" => Strict::Yes,
                    "accept-new" => Strict::AcceptNew,
                    "no" | "off" => Strict::No,
                    other => return Err(format!("'StrictHostKeyChecking {other}' is not known")),
                };
                first(&mut self.strict, strict);
            }
            "serveraliveinterval" => first(&mut self.alive_interval, seconds()?),
            "serveralivecountmax" => first(&mut self.alive_count, number()?),
            "connecttimeout" => first(&mut self.connect_timeout, seconds()?),
            _ => {}
        }
        Ok(())
    }
}

/// Options that change how a host is reached, and are not understood here.
const REACH: [&str; 5] = ["addressfamily", "bindaddress", "bindinterface", "canonicalizehostname", "proxyusefdpass"];

/// Options that change what is spoken with it, or who it is taken for, and are not understood here.
const TALK: [&str; 13] = [
    "certificatefile",
    "ciphers",
    "hostbasedauthentication",
    "hostkeyalgorithms",
    "kexalgorithms",
    "knownhostscommand",
    "macs",
    "pkcs11provider",
    "preferredauthentications",
    "pubkeyacceptedalgorithms",
    "pubkeyacceptedkeytypes",
    "securitykeyprovider",
    "verifyhostkeydns",
];

/// The keyword of a line, as it is written.
fn written(line: &str) -> &str {
    line.trim().split(|c: char| c.is_whitespace() || c == '=').next().unwrap_or_default()
}

fn first<T>(slot: &mut Option<T>, value: T) {
    slot.get_or_insert(value);
}

fn expand_host(name: &str, alias: &str) -> Result<String, String> {
    tokens::expand(name, |token| (token == 'h').then(|| alias.to_owned()))
}

/// What comes behind a keyword, if a line begins with that.
fn rest_of<'a>(line: &'a str, keyword: &str) -> Option<&'a str> {
    let line = line.trim();
    let is_apart = |c: char| c.is_whitespace() || c == '=';
    let (word, rest) = line.split_at(line.find(is_apart).unwrap_or(line.len()));
    word.eq_ignore_ascii_case(keyword).then(|| rest.trim_start_matches(is_apart))
}

/// The words of a line: apart by blanks, or `=` behind the first. Quotes of both kinds keep blanks, and a `\` keeps a
/// quote, itself, and, outside of quotes, a blank. `None`: a quote doesn't end.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words: Vec<String> = Vec::new();
    let mut chars = line.trim().chars().peekable();
    while let Some(&next) = chars.peek() {
        if next == '#' {
            break;
        }
        if next.is_whitespace() || (next == '=' && words.len() == 1) {
            chars.next();
            continue;
        }
        let mut word = String::new();
        let mut quote = None;
        while let Some(&c) = chars.peek() {
            if quote.is_none() && (c.is_whitespace() || (c == '=' && words.is_empty())) {
                break;
            }
            chars.next();
            match c {
                '\\' => {
                    let kept = |next: &char| matches!(next, '"' | '\'' | '\\') || (quote.is_none() && *next == ' ');
                    word.push(chars.next_if(kept).unwrap_or('\\'));
                }
                '"' | '\'' if quote.is_none() => quote = Some(c),
                c if quote == Some(c) => quote = None,
                c => word.push(c),
            }
        }
        if quote.is_some() {
            return None;
        }
        words.push(word);
    }
    Some(words)
}

/// Whether patterns match, of which one with a `!` keeps all others from it.
pub(super) fn matches_any(text: &str, patterns: &[String]) -> bool {
    let text = text.to_ascii_lowercase();
    let mut found = false;
    for pattern in patterns {
        let pattern = pattern.to_ascii_lowercase();
        match pattern.strip_prefix('!') {
            Some(not) if glob(not.as_bytes(), text.as_bytes()) => return false,
            Some(_) => {}
            None => found |= glob(pattern.as_bytes(), text.as_bytes()),
        }
    }
    found
}

/// `*` matches any run of bytes, `?` any one.
fn glob(pattern: &[u8], text: &[u8]) -> bool {
    // Where the last star stood, and how much it has taken so far: no more is ever to be tried anew.
    let (mut p, mut t, mut star) = (0, 0, None);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(b'?') => (p, t) = (p + 1, t + 1),
            Some(byte) if *byte == text[t] => (p, t) = (p + 1, t + 1),
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    (p, t) = (at + 1, taken + 1);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|b| *b == b'*')
}

/// A time as ssh writes it: seconds, or numbers with `s`, `m`, `h`, `d`, `w`; `none` is none.
fn seconds(text: &str) -> Option<Duration> {
    if text.eq_ignore_ascii_case("none") {
        return Some(Duration::ZERO);
    }
    let (mut total, mut number) = (0u64, None::<u64>);
    for c in text.chars() {
        if let Some(digit) = c.to_digit(10) {
            number = Some(number.unwrap_or(0).checked_mul(10)?.checked_add(digit.into())?);
            continue;
        }
        let unit = match c.to_ascii_lowercase() {
            's' => 1,
            'm' => 60,
            'h' => 3600,
            'd' => 86_400,
            'w' => 7 * 86_400,
            _ => return None,
        };
        total = total.checked_add(number.take()?.checked_mul(unit)?)?;
    }
    Some(Duration::from_secs(total.checked_add(number.unwrap_or(0))?)).filter(|_| !text.is_empty())
}

/// The files that an `Include` means: relative to the folder of the user's configuration; `*` and `?` in the last part.
fn included(pattern: &str, folder: &Path, home: Option<&Path>) -> Vec<PathBuf> {
    let path = match (pattern.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        _ if pattern.starts_with('/') => PathBuf::from(pattern),
        _ => folder.join(pattern),
    };
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if !name.contains(['*', '?']) {
        return vec![path];
    }
    let folder = path.parent().unwrap_or(Path::new("/"));
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| !entry.file_name().to_string_lossy().starts_with('.'))
        .filter(|entry| glob(name.as_bytes(), entry.file_name().to_string_lossy().as_bytes()))
        .map(|entry| entry.path())
        .collect();
    files.sort();
    files
}

pub(super) mod tokens;

#[cfg(test)]
mod tests;
