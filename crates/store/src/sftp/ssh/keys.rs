//! Files of private keys.

use std::path::Path;
use std::sync::Arc;

use russh::keys::{Algorithm, PrivateKey, PublicKey, decode_secret_key};
use zeroize::Zeroizing;

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
        Err(error) => KeyFile::Useless(error.to_string()),
    }
}

/// Whether a key can only be used where its token (FIDO) is.
fn is_of_token(algorithm: &Algorithm) -> bool {
    matches!(algorithm, Algorithm::SkEd25519 | Algorithm::SkEcdsaSha2NistP256)
}

/// Unlock a key; `None` if it isn't the right passphrase.
pub(super) fn unlock(text: &str, passphrase: &str) -> Option<Arc<PrivateKey>> {
    decode_secret_key(text, Some(passphrase)).ok().map(Arc::new)
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
