//! Which servers are known, by their keys: files of the form of sshd(8), SSH_KNOWN_HOSTS FILE FORMAT.
//!
//! Names in the clear, hashed ones, patterns, ports, `@revoked` and `@cert-authority` count as they do with ssh.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::config::matches_any;

/// A file of hosts has some lines: what is much longer is something else.
const BYTES_MAX: u64 = 16 << 20;
/// How a binary list of revoked keys begins (OpenSSH, PROTOCOL.krl).
const KRL: &[u8] = b"SSHKRL\n\0";

/// What a line says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    Known,
    Revoked,
    /// It may certify keys.
    Authority,
}

/// A line about a host.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Line {
    says: Says,
    sort: String,
    key: Vec<u8>,
    /// The file and the number of the line.
    at: String,
}

/// What is known of one host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Known {
    lines: Vec<Line>,
    /// What is said of the host without its port, which counts where nothing is said of this port.
    portless: Vec<Line>,
}

/// What to think of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Known,
    /// Nothing is known of the host, or only keys of other sorts.
    Unknown,
    /// The host has another key of this sort, at this place of a file.
    Changed(String),
}

/// The files in which hosts stand, and the names that one of them has there.
#[derive(Clone, Debug, Default)]
pub(super) struct Where {
    /// Files of known hosts. Those that are not there say nothing.
    pub files: Vec<PathBuf>,
    /// A list of keys that are refused, whatever host shows them: it has to be there.
    pub revoked: Option<PathBuf>,
    /// With its port, unless that is the usual one.
    pub name: String,
    /// Without, if that is another name.
    pub portless: Option<String>,
}

/// As the files have it: with its port, unless that is the usual one.
pub(super) fn name(host: &str, port: u16) -> String {
    let host = host.to_ascii_lowercase();
    if port == 22 { host } else { format!("[{host}]:{port}") }
}

impl Known {
    /// Read what is said of a host.
    pub(super) fn read(place: &Where) -> Result<Self, String> {
        let mut known = Known::default();
        for path in &place.files {
            let text = match read_file(path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
                Ok(text) => text,
            };
            for (number, line) in String::from_utf8_lossy(&text).lines().enumerate() {
                let at = || format!("{}:{}", path.display(), number + 1);
                // A line that makes no sense says nothing, as with ssh.
                known.lines.extend(read_line(line, &place.name, at));
                known.portless.extend(place.portless.as_ref().and_then(|name| read_line(line, name, at)));
            }
        }
        if let Some(path) = &place.revoked {
            known.lines.extend(read_revoked(path)?);
        }
        Ok(known)
    }

    fn all(&self) -> impl Iterator<Item = &Line> {
        self.lines.iter().chain(&self.portless)
    }

    /// The sorts of keys that are known, so that the server is asked for one of these.
    pub(super) fn sorts(&self) -> impl Iterator<Item = &str> {
        let lines = if self.is_known() { &self.lines } else { &self.portless };
        lines.iter().filter(|line| line.says == Says::Known).map(|line| line.sort.as_str())
    }

    /// Whether any key of this host, at this port, is known.
    pub(super) fn is_known(&self) -> bool {
        self.lines.iter().any(|line| line.says == Says::Known)
    }

    /// Where a key is revoked, if it is.
    pub(super) fn revoked(&self, key: &[u8]) -> Option<&str> {
        self.all().find(|line| line.says == Says::Revoked && line.key == key).map(|line| line.at.as_str())
    }

    /// The keys, as bytes, that may certify this host's.
    pub(super) fn authorities(&self) -> impl Iterator<Item = &[u8]> {
        self.all().filter(|line| line.says == Says::Authority).map(|line| line.key.as_slice())
    }

    /// What to think of a key of this sort that isn't revoked.
    pub(super) fn verdict(&self, sort: &str, key: &[u8]) -> Verdict {
        let of_sort = |line: &&Line| line.says == Says::Known && line.sort == sort;
        let mut known = self.lines.iter().filter(of_sort);
        if known.clone().any(|line| line.key == key) {
            return Verdict::Known;
        }
        match known.next() {
            Some(line) => Verdict::Changed(line.at.clone()),
            // As ssh has it. Another key there says nothing: behind another port may be another machine.
            None if !self.is_known() && self.portless.iter().filter(of_sort).any(|line| line.key == key) => {
                Verdict::Known
            }
            None => Verdict::Unknown,
        }
    }
}

fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    File::open(path)?.take(BYTES_MAX).read_to_end(&mut text)?;
    Ok(text)
}

/// A list of public keys (`RevokedHostKeys`). Whatever isn't understood in it could be the key that matters.
fn read_revoked(path: &Path) -> Result<Vec<Line>, String> {
    let shown = path.display();
    let text = read_file(path)
        .map_err(|error| format!("cannot read {shown}, the list of revoked keys (RevokedHostKeys): {error}"))?;
    if text.starts_with(KRL) {
        return Err(format!(
            "{shown} (RevokedHostKeys) is a binary list (KRL), which is not understood here: name a file of public keys, one \
             per line, or use ssh itself (--ssh-command ssh)"
        ));
    }
    let mut lines = Vec::new();
    for (number, line) in String::from_utf8_lossy(&text).lines().enumerate() {
        let at = format!("{shown}:{}", number + 1);
        let mut words = line.split_ascii_whitespace();
        let Some(sort) = words.next().filter(|word| !word.starts_with('#')) else { continue };
        let key = words.next().and_then(|key| STANDARD.decode(key).ok());
        let key = key.ok_or_else(|| format!("{at}: this is no public key, and the file is a list of revoked ones"))?;
        lines.push(Line { says: Says::Revoked, sort: sort.to_owned(), key, at });
    }
    Ok(lines)
}

fn read_line(line: &str, name: &str, at: impl FnOnce() -> String) -> Option<Line> {
    let mut words = line.split_ascii_whitespace();
    let mut hosts = words.next().filter(|word| !word.starts_with('#'))?;
    let says = match hosts {
        "@revoked" => Says::Revoked,
        "@cert-authority" => Says::Authority,
        _ => Says::Known,
    };
    if says != Says::Known {
        hosts = words.next()?;
    }
    if !names(hosts, name) {
        return None;
    }
    let sort = words.next()?.to_owned();
    let key = STANDARD.decode(words.next()?).ok()?;
    Some(Line { says, sort, key, at: at() })
}

fn names(hosts: &str, name: &str) -> bool {
    if let Some(hashed) = hosts.strip_prefix("|1|") {
        let Some((salt, hash)) = hashed.split_once('|') else { return false };
        let (Ok(salt), Ok(hash)) = (STANDARD.decode(salt), STANDARD.decode(hash)) else { return false };
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &salt);
        return hmac::verify(&key, name.as_bytes(), &hash).is_ok();
    }
    let patterns: Vec<String> = hosts.split(',').map(str::to_owned).collect();
    matches_any(name, &patterns)
}

/// Remember a key, in a file that is made if it isn't there.
pub(super) fn learn(path: &Path, name: &str, sort: &str, key: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    let mut text = Vec::new();
    (&file).take(BYTES_MAX).read_to_end(&mut text)?;
    let gap = if text.last().is_none_or(|last| *last == b'\n') { "" } else { "\n" };
    file.write_all(format!("{gap}{name} {sort} {}\n", STANDARD.encode(key)).as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A line's key.
    const ONE: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const OTHER: &str = "AAAAC3NzaC1lZDI1NTE5AAAAIA6rWI3G1sz07DnfFlrouTcysQlj2P+jpNSOEWD9OJ3X";

    fn known(text: &str, name: &str) -> Known {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("known_hosts");
        fs::write(&path, text).unwrap();
        let files = vec![path, dir.path().join("none")];
        Known::read(&Where { files, name: name.into(), ..Where::default() }).unwrap()
    }

    fn verdict(text: &str, name: &str, key: &str) -> Verdict {
        match known(text, name).verdict("ssh-ed25519", &STANDARD.decode(key).unwrap()) {
            Verdict::Changed(at) => Verdict::Changed(at.rsplit_once(':').unwrap().1.into()),
            other => other,
        }
    }

    #[test]
    fn names_of_all_kinds() {
        let line = |hosts: &str| format!("# {ONE}\n\n{hosts}\tssh-ed25519  {ONE} a comment\n");
        for (hosts, name, is_known) in [
            ("h", "h", true),
            ("a,h,b", "h", true),
            ("h", "[h]:2222", false),
            ("[h]:2222", "[h]:2222", true),
            ("*.example.com,!x.example.com", "a.example.com", true),
            ("*.example.com,!x.example.com", "x.example.com", false),
            // The example of russh's own tests, made by ssh-keygen -H.
            ("|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak=", "example.com", true),
            ("|1|O33ESRMWPVkMYIwJ1Uw+n877jTo=|nuuC5vEqXlEZ/8BXQR7m619W6Ak=", "example.org", false),
            ("|1|x|y", "x", false),
            ("|1|", "", false),
        ] {
            let expected = if is_known { Verdict::Known } else { Verdict::Unknown };
            assert_eq!(verdict(&line(hosts), name, ONE), expected, "{hosts} {name}");
        }
        assert_eq!((name("Host", 22), name("h", 2222)), ("host".into(), "[h]:2222".into()));
    }

    #[test]
    fn keys_that_are_not_those_that_were_known() {
        let text = format!("h ssh-rsa {OTHER}\nh ssh-ed25519 {OTHER}\n@revoked * ssh-ed25519 {ONE}\n");
        assert_eq!(verdict(&text, "h", OTHER), Verdict::Known);
        let (key, revokes) = (|key: &str| STANDARD.decode(key).unwrap(), known(&text, "h"));
        assert!(revokes.revoked(&key(ONE)).unwrap().ends_with(":3") && revokes.revoked(&key(OTHER)).is_none());
        let text = format!("h ssh-ed25519 {OTHER}\n");
        assert_eq!(verdict(&text, "h", ONE), Verdict::Changed("1".into()));
        assert_eq!(verdict(&format!("{text}h ssh-ed25519 {ONE}\n"), "h", ONE), Verdict::Known);
        // Keys of other sorts say nothing about this one.
        assert_eq!(verdict(&format!("h ssh-rsa {OTHER}\n"), "h", ONE), Verdict::Unknown);
        let known = known(&format!("@cert-authority h ssh-ed25519 {ONE}\nh ssh-rsa {OTHER}"), "h");
        assert_eq!(known.sorts().collect::<Vec<_>>(), ["ssh-rsa"]);
        assert_eq!(known.authorities().count(), 1);
        assert_eq!(known.verdict("ssh-ed25519", &STANDARD.decode(ONE).unwrap()), Verdict::Unknown);
    }

    #[test]
    fn what_is_learnt_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("new/known_hosts");
        learn(&path, "[h]:2222", "ssh-ed25519", &STANDARD.decode(ONE).unwrap()).unwrap();
        fs::write(&path, fs::read_to_string(&path).unwrap().trim_end()).unwrap();
        learn(&path, "h2", "ssh-ed25519", &STANDARD.decode(OTHER).unwrap()).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(verdict(&text, "[h]:2222", ONE), Verdict::Known);
        assert_eq!(verdict(&text, "h2", OTHER), Verdict::Known);
    }

    #[test]
    fn odd_lines_say_nothing() {
        for text in ["h", "h ssh-ed25519", "h ssh-ed25519 !!", "@revoked", "@what h ssh-ed25519 AAAA", "\u{fffd}\0"] {
            assert!(known(text, "h").lines.is_empty(), "{text}");
        }
    }
}
