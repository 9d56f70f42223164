//! Files of private keys.

use std::path::Path;
use std::sync::Arc;

use russh::keys::{PrivateKey, PublicKey, decode_secret_key};
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
        // It says which of the agent's keys is meant.
        return KeyFile::None;
    }
    match decode_secret_key(&text, None) {
        Ok(key) => KeyFile::Ready(Arc::new(key)),
        Err(russh::keys::Error::KeyIsEncrypted) => KeyFile::Locked(text),
        Err(error) => KeyFile::Useless(error.to_string()),
    }
}

/// Unlock a key; `None` if it isn't the right passphrase.
pub(super) fn unlock(text: &str, passphrase: &str) -> Option<Arc<PrivateKey>> {
    decode_secret_key(text, Some(passphrase)).ok().map(Arc::new)
}

/// The public half of the key in a file, if it stands beside it or in it, or is all that is in it.
pub(super) fn public(path: &Path) -> Option<PublicKey> {
    if let Ok(key) = PublicKey::read_openssh_file(path) {
        return Some(key);
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".pub");
    if let Ok(key) = PublicKey::read_openssh_file(Path::new(&beside)) {
        return Some(key);
    }
    // The half that needs no passphrase.
    PrivateKey::read_openssh_file(path).ok().map(|key| key.public_key().clone())
}
