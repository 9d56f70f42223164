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

/// What a list of revoked keys begins with that isn't a text (OpenSSH's PROTOCOL.krl).
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
}

/// What to think of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Known,
    /// Nothing is known of the host, or only keys of other sorts.
    Unknown,
    /// The host has another key of this sort, at this place of a file.
    Changed(String),
    Revoked(String),
}

/// As the files have it: with its port, unless that is the usual one.
pub(super) fn name(host: &str, port: u16) -> String {
    let host = host.to_ascii_lowercase();
    if port == 22 { host } else { format!("[{host}]:{port}") }
}

impl Known {
    /// Read what `files` say of the host of this name. Those that are not there say nothing.
    pub(super) fn read(files: &[PathBuf], name: &str) -> Result<Self, String> {
        let mut lines = Vec::new();
        for path in files {
            let mut text = Vec::new();
            match File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut text)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(format!("cannot read {}: {error}", path.display())),
                Ok(_) => {}
            }
            for (number, line) in String::from_utf8_lossy(&text).lines().enumerate() {
                // A line that makes no sense says nothing, as with ssh.
                lines.extend(read_line(line, name, || format!("{}:{}", path.display(), number + 1)));
            }
        }
        Ok(Known { lines })
    }

    /// Besides, the keys of a file (`RevokedHostKeys`) are revoked, whatever host shows them.
    pub(super) fn revoke(&mut self, path: &Path) -> Result<(), String> {
        let refuse = |why: String| format!("cannot read the revoked host keys in {}: {why}", path.display());
        let mut bytes = Vec::new();
        let file = File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_end(&mut bytes));
        file.map_err(|e| refuse(e.to_string()))?;
        if bytes.starts_with(KRL) {
            return Err(refuse(
                "it is a list of ssh-keygen's own form, which isn't understood here; name a file of public keys, one a line, or use \
                 --ssh-command 'ssh'"
                    .into(),
            ));
        }
        for (number, line) in String::from_utf8_lossy(&bytes).lines().enumerate() {
            let mut words = line.split_ascii_whitespace().filter(|_| !line.trim_start().starts_with('#'));
            let Some(sort) = words.next() else { continue };
            let key = words.next().and_then(|word| STANDARD.decode(word).ok());
            let key = key.ok_or_else(|| refuse(format!("line {} is no public key", number + 1)))?;
            let at = format!("{}:{}", path.display(), number + 1);
            self.lines.push(Line { says: Says::Revoked, sort: sort.to_owned(), key, at });
        }
        Ok(())
    }

    /// The sorts of keys that are known, so that the server is asked for one of these.
    pub(super) fn sorts(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter(|line| line.says == Says::Known).map(|line| line.sort.as_str())
    }

    /// The keys, as bytes, that may certify this host's.
    pub(super) fn authorities(&self) -> impl Iterator<Item = &[u8]> {
        self.lines.iter().filter(|line| line.says == Says::Authority).map(|line| line.key.as_slice())
    }

    /// What to think of a key of this sort.
    pub(super) fn verdict(&self, sort: &str, key: &[u8]) -> Verdict {
        if let Some(line) = self.lines.iter().find(|line| line.says == Says::Revoked && line.key == key) {
            return Verdict::Revoked(line.at.clone());
        }
        let mut known = self.lines.iter().filter(|line| line.says == Says::Known && line.sort == sort);
        match known.clone().any(|line| line.key == key) {
            true => Verdict::Known,
            false => known.next().map_or(Verdict::Unknown, |line| Verdict::Changed(line.at.clone())),
        }
    }
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
        Known::read(&[path, dir.path().join("none")], name).unwrap()
    }

    fn verdict(text: &str, name: &str, key: &str) -> Verdict {
        match known(text, name).verdict("ssh-ed25519", &STANDARD.decode(key).unwrap()) {
            Verdict::Changed(at) => Verdict::Changed(at.rsplit_once(':').unwrap().1.into()),
            Verdict::Revoked(at) => Verdict::Revoked(at.rsplit_once(':').unwrap().1.into()),
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
        assert_eq!(verdict(&text, "h", ONE), Verdict::Revoked("3".into()));
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
