//! Files of private keys.

use std::path::Path;
use std::sync::Arc;

use russh::keys::{Algorithm, PrivateKey, PublicKey, decode_secret_key};
use zeroize::Zeroizing;

use super::short;

/// A key has some lines: what is much longer is something else.
const BYTES_MAX: u64 = 1 << 20;

/// What is in a file.
pub(super) enum KeyFile {
    /// There is none.
    None,
    Ready(Arc<PrivateKey>),
    /// It takes a passphrase.
    Locked(Zeroizing<String>),
    /// It can't be used, and why.
    Useless(String),
}

/// Read a key's file.
pub(super) fn read(path: &Path) -> KeyFile {
    use std::io::Read;
    let mut text = Zeroizing::new(String::new());
    let read = std::fs::File::open(path).and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text));
    match read {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return KeyFile::None,
        Err(error) => return KeyFile::Useless(error.to_string()),
        Ok(_) => {}
    }
    if PublicKey::from_openssh(&text).is_ok() {
        return KeyFile::Useless("it is a public half: the agent has to have the other one".into());
    }
    if PrivateKey::from_openssh(text.as_bytes()).is_ok_and(|key| is_of_token(&key.algorithm())) {
        return KeyFile::Useless("it is of a security key, which works by the agent: ssh-add it first".into());
    }
    match decode_secret_key(&text, None) {
        Ok(key) => KeyFile::Ready(Arc::new(key)),
        Err(russh::keys::Error::KeyIsEncrypted) => KeyFile::Locked(text),
        Err(error) => match short::may_be(&error).then(|| short::read(&text, None)) {
            Some(Ok(key)) => KeyFile::Ready(Arc::new(key)),
            _ => KeyFile::Useless(error.to_string()),
        },
    }
}

/// Whether a key can only be used where its token (FIDO) is.
fn is_of_token(algorithm: &Algorithm) -> bool {
    matches!(algorithm, Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256)
}

/// Unlock a key; `None` if it isn't the right passphrase.
pub(super) fn unlock(text: &str, passphrase: &str) -> Option<Arc<PrivateKey>> {
    let key = decode_secret_key(text, Some(passphrase));
    key.or_else(|error| if short::may_be(&error) { Ok(short::read(text, Some(passphrase))?) } else { Err(error) })
        .ok()
        .map(Arc::new)
}

/// The public half of the key in a file, if it stands beside it or in it, or is it.
pub(super) fn public(path: &Path) -> Option<PublicKey> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".pub");
    if let Ok(key) = PublicKey::read_openssh_file(Path::new(&beside)) {
        return Some(key);
    }
    // It may be itself what is named.
    if let Ok(key) = PublicKey::read_openssh_file(path) {
        return Some(key);
    }
    // The half that needs no passphrase.
    PrivateKey::read_openssh_file(path).ok().map(|key| key.public_key().clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of no token: made by hand, after OpenSSH's PROTOCOL.key and PROTOCOL.u2f.
    const TOKEN: &str = "\
-----BEGIN OPENSSH PRIVATE KEY-----\n\
b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAASgAAABpzay1zc2\n\
gtZWQyNTUxOUBvcGVuc3NoLmNvbQAAACBYZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZm\n\
ZmZmZgAAAARzc2g6AAAAaAAAAAcAAAAHAAAAGnNrLXNzaC1lZDI1NTE5QG9wZW5zc2guY2\n\
9tAAAAIFhmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmZmAAAABHNzaDoBAAAABmhh\n\
bmRsZQAAAAAAAAAAAQID\n\
-----END OPENSSH PRIVATE KEY-----\n";

    /// Made by ssh-keygen, for these tests: their secret number has 31 bytes. The second is the first, locked by `secret`.
    const SHORT: [&str; 2] = [include_str!("short.key"), include_str!("short-locked.key")];

    #[test]
    fn a_secret_that_begins_with_a_zero_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let [open, locked] = SHORT;
        std::fs::write(&path, open).unwrap();
        let KeyFile::Ready(key) = read(&path) else { panic!("it isn't ready") };
        // What the file says of its public half, which needs no passphrase.
        let public = PrivateKey::from_openssh(locked).unwrap().public_key().key_data().clone();
        assert_eq!(*key.public_key().key_data(), public);
        // It signs what its public half believes.
        use russh::keys::signature::{Signer, Verifier};
        let signature = key.try_sign(b"who is there").unwrap();
        key.public_key().key_data().verify(b"who is there", &signature).unwrap();

        std::fs::write(&path, locked).unwrap();
        let KeyFile::Locked(text) = read(&path) else { panic!("it isn't locked") };
        assert!(unlock(&text, "wrong").is_none());
        assert_eq!(unlock(&text, "secret").unwrap().key_data(), key.key_data());
    }

    #[test]
    fn no_bytes_in_place_of_a_short_secret_are_believed() {
        let [open, _] = SHORT;
        let body: String = open.lines().filter(|line| !line.starts_with('-')).collect();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        // Each letter of the file another one: it is a key, or it is told why not.
        for (at, letter) in body.char_indices().filter(|(_, letter)| *letter != '=') {
            let other = if letter == 'A' { 'B' } else { 'A' };
            let changed = format!("{}{other}{}", &body[..at], &body[at + 1..]);
            let lines: Vec<&str> =
                changed.as_bytes().chunks(70).map(|line| std::str::from_utf8(line).unwrap()).collect();
            let text = format!(
                "-----BEGIN OPENSSH PRIVATE KEY-----\n{}\n-----END OPENSSH PRIVATE KEY-----\n",
                lines.join("\n")
            );
            std::fs::write(&path, text).unwrap();
            match read(&path) {
                KeyFile::Ready(key) => assert_eq!(key.algorithm().as_str(), "ecdsa-sha2-nistp256"),
                KeyFile::Useless(why) => assert!(!why.is_empty()),
                KeyFile::Locked(_) | KeyFile::None => {}
            }
        }
    }

    #[test]
    fn files_that_the_agent_is_needed_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        let why = || match read(&path) {
            KeyFile::Useless(why) => why,
            _ => panic!("it can be used"),
        };
        std::fs::write(&path, TOKEN).unwrap();
        assert!(why().contains("security key") && why().contains("ssh-add"), "{}", why());
        let half = public(&path).unwrap().to_openssh().unwrap();
        std::fs::write(&path, &half).unwrap();
        assert!(why().contains("public half"), "{}", why());
        assert_eq!(public(&path).unwrap().to_openssh().unwrap(), half);
    }
}
