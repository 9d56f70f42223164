//! `sftp://user@host:port/path`: where a repository on another machine is.

use std::fmt;

/// A folder on another machine, as the user wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Who to log in as, if the address says so.
    pub user: Option<String>,
    /// The host, or its alias in the user's ssh configuration.
    pub host: String,
    /// The port, if the address says so.
    pub port: Option<u16>,
    /// The folder: absolute, or relative to the one that a login begins in.
    pub path: Vec<u8>,
}

impl Address {
    /// Read what comes behind `sftp:`.
    pub fn parse(rest: &str) -> Result<Self, &'static str> {
        let rest = rest.strip_prefix("//").ok_or("write sftp://user@host/path")?;
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let user = match user {
            Some("") => return Err("there is no user before the '@'"),
            Some(user) if user.contains(':') => {
                return Err(
                    "an address ends up in logs, so no password may be in it: use a key, an agent, or the prompt",
                );
            }
            Some(user) => Some(text(user)?),
            None => None,
        };
        let (host, port) = match place.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']').ok_or("a '[' without its ']'")?;
                (host.to_owned(), port)
            }
            None => {
                let (host, port) = place.split_at(place.find(':').unwrap_or(place.len()));
                (text(host)?, port)
            }
        };
        if host.is_empty() || host.starts_with('-') || host.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err("there is no host in it: write sftp://user@host/path");
        }
        let port = match port {
            "" | ":" => None,
            port => {
                let number = port.strip_prefix(':').and_then(|port| port.parse().ok()).filter(|port| *port > 0);
                Some(number.ok_or("its port is not a number from 1 to 65535")?)
            }
        };
        if path.contains(['?', '#']) {
            return Err("'?' and '#' are written %3F and %23 in an address");
        }
        let path = crate::location::percent_decode(path)?;
        let path = match path.strip_prefix(b"/~") {
            Some(b"" | b"/") => b".".to_vec(),
            Some(home) if home.starts_with(b"/") => home[1..].to_vec(),
            _ => path,
        };
        let end = path.iter().rposition(|b| *b != b'/').map_or(0, |last| last + 1);
        if end == 0 {
            return Err("it names no folder: sftp://user@host/path, or sftp://user@host/~/path below the home folder");
        }
        Ok(Address { user, host, port, path: path[..end].to_vec() })
    }
}

fn text(part: &str) -> Result<String, &'static str> {
    String::from_utf8(crate::location::percent_decode(part)?).map_err(|_| "user and host are text")
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sftp://")?;
        if let Some(user) = &self.user {
            write!(f, "{}@", encoded(user.as_bytes()))?;
        }
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?
        } else {
            write!(f, "{}", encoded(self.host.as_bytes()))?
        }
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        let path = if self.path == b"." { b"" } else { &self.path[..] };
        write!(f, "{}{}", if self.path.starts_with(b"/") { "" } else { "/~/" }, encoded(path))
    }
}

/// Percent-encoded, but for what needs none in a path.
fn encoded(bytes: &[u8]) -> String {
    let mut out = String::new();
    for byte in bytes {
        match byte {
            b'/' | b'-' | b'.' | b'_' | b'~' | b'+' | b',' | b'=' => out.push(char::from(*byte)),
            b if b.is_ascii_alphanumeric() => out.push(char::from(*b)),
            b => out.push_str(&format!("%{b:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses() {
        for (given, user, host, port, path, shown) in [
            ("//u@h:2222/srv/repo", Some("u"), "h", Some(2222), "/srv/repo", "sftp://u@h:2222/srv/repo"),
            ("//h/srv/repo///", None, "h", None, "/srv/repo", "sftp://h/srv/repo"),
            ("//h/~/repo/x", None, "h", None, "repo/x", "sftp://h/~/repo/x"),
            ("//h/~", None, "h", None, ".", "sftp://h/~/"),
            ("//h/~/", None, "h", None, ".", "sftp://h/~/"),
            ("//a%40b@h/x%20y", Some("a@b"), "h", None, "/x y", "sftp://a%40b@h/x%20y"),
            ("//a@b@h/x", Some("a@b"), "h", None, "/x", "sftp://a%40b@h/x"),
            ("//u@[::1]:22/r", Some("u"), "::1", Some(22), "/r", "sftp://u@[::1]:22/r"),
            ("//[fe80::1]/r", None, "fe80::1", None, "/r", "sftp://[fe80::1]/r"),
        ] {
            let address = Address::parse(given).unwrap();
            assert_eq!((address.user.as_deref(), address.host.as_str(), address.port), (user, host, port), "{given}");
            assert_eq!(address.path, path.as_bytes(), "{given}");
            assert_eq!(address.to_string(), shown);
            assert_eq!(Address::parse(shown.strip_prefix("sftp:").unwrap()).unwrap(), address, "{shown}");
        }
    }

    #[test]
    fn what_is_none() {
        for (given, part) in [
            ("u@h:/x", "sftp://"),
            ("//", "no host"),
            ("//u@/x", "no host"),
            ("//-oProxyCommand=x/y", "no host"),
            ("//h", "no folder"),
            ("//h/", "no folder"),
            ("//@h/x", "no user"),
            ("//u:secret@h/x", "password"),
            ("//h:0/x", "port"),
            ("//h:70000/x", "port"),
            ("//[::1/x", "']'"),
            ("//h/x?y", "%3F"),
            ("//h/%00", "zero"),
        ] {
            let why = Address::parse(given).unwrap_err();
            assert!(why.contains(part), "{given}: {why}");
        }
    }
}
