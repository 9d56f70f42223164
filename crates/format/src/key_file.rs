//! Files that people keep: a key file, which unlocks a key object of its repository, and a recovery file, which holds a
//! role's secrets themselves and needs nothing else. Both are a few lines of text that survive printing and typing.
//!
//! ```text
//! drumlin key file 1              drumlin recovery file 1
//! repository <32 hex digits>      <hex digits, 64 a line>
//! key <32 hex digits>             check <8 hex digits>
//! secret <64 hex digits>
//! check <8 hex digits>
//! ```
//!
//! `check` is the start of the BLAKE3 hash of all lines before it, newlines included, digits in lower case. Who types
//! them in upper case, indents them or leaves lines empty is understood all the same.

use crate::error::malformed;
use crate::key::Secrets;
use crate::{KeyId, RepositoryId, Result};
use drumlin_seal::{Secret, Zeroizing, checksum};

const KEY_FILE: &str = "key file";
const RECOVERY_FILE: &str = "recovery file";
const KEY_TITLE: &str = "drumlin key file 1";
const RECOVERY_TITLE: &str = "drumlin recovery file 1";

/// What a key file says.
#[derive(Clone, Debug)]
pub struct KeyFile {
    /// The repository.
    pub repository: RepositoryId,
    /// The key object that it unlocks.
    pub key: KeyId,
    /// What unlocks it.
    pub secret: Secret,
}

impl KeyFile {
    /// The text of the file.
    pub fn encode(&self) -> Zeroizing<String> {
        let KeyFile { repository, key, secret } = self;
        let mut text = with_room(32);
        text.push_str(&format!("{KEY_TITLE}\nrepository {repository}\nkey {key}\nsecret "));
        push_hex(&mut text, secret.expose());
        text.push('\n');
        checked(text)
    }

    /// Read a key file.
    pub fn decode(text: &str) -> Result<Self> {
        let text = unchecked(text, KEY_TITLE, KEY_FILE)?;
        let field = |name: &str| {
            let found = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
            found.map_or_else(|| malformed(KEY_FILE, "one of its lines is missing"), Ok)
        };
        let repository = RepositoryId::parse(field("repository")?);
        let key = KeyId::parse(field("key")?);
        let secret = unhex(field("secret")?).and_then(|s: Zeroizing<Vec<u8>>| Secret::from_slice(&s));
        match (repository, key, secret) {
            (Some(repository), Some(key), Some(secret)) => Ok(KeyFile { repository, key, secret }),
            _ => malformed(KEY_FILE, "one of its lines is not what it should be"),
        }
    }
}

/// The text of a recovery file.
pub fn encode_recovery(secrets: &Secrets) -> Zeroizing<String> {
    let secrets = secrets.encode();
    let mut text = with_room(secrets.len());
    text.push_str(RECOVERY_TITLE);
    text.push('\n');
    for line in secrets.chunks(32) {
        push_hex(&mut text, line);
        text.push('\n');
    }
    checked(text)
}

/// Whether text means to be a recovery file, by its first line.
pub fn is_recovery(text: &str) -> bool {
    text.lines().find(|l| !l.trim().is_empty()).is_some_and(|l| l.trim().eq_ignore_ascii_case(RECOVERY_TITLE))
}

/// Read a recovery file.
pub fn decode_recovery(text: &str) -> Result<Secrets> {
    let text = unchecked(text, RECOVERY_TITLE, RECOVERY_FILE)?;
    let mut digits = Zeroizing::new(String::with_capacity(text.len()));
    text.lines().skip(1).for_each(|line| digits.push_str(line));
    match unhex(&digits) {
        Some(bytes) => Secrets::decode(&bytes),
        None => malformed(RECOVERY_FILE, "it has other characters than hexadecimal digits"),
    }
}

/// Empty text with room for a whole file of so many secret bytes: it never moves and leaves no copy behind.
fn with_room(bytes: usize) -> Zeroizing<String> {
    Zeroizing::new(String::with_capacity(256 + bytes * 3))
}

fn checked(mut text: Zeroizing<String>) -> Zeroizing<String> {
    let sum = checksum(text.as_bytes());
    text.push_str("check ");
    push_hex(&mut text, &sum[..4]);
    text.push('\n');
    text
}

/// The lines before the check, trimmed as people's editors leave them and in lower case, if it holds.
fn unchecked(text: &str, title: &str, object: &'static str) -> Result<Zeroizing<String>> {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let Some((check, lines)) = lines.split_last() else {
        return malformed(object, "it is empty");
    };
    if !lines.first().is_some_and(|first| first.eq_ignore_ascii_case(title)) {
        return malformed(object, "its first line is not that of such a file");
    }
    let mut kept = Zeroizing::new(String::with_capacity(text.len() + 1));
    for line in lines {
        kept.push_str(line);
        kept.push('\n');
    }
    kept.make_ascii_lowercase();
    let mut expected = String::from("check ");
    push_hex(&mut expected, &checksum(kept.as_bytes())[..4]);
    if !check.eq_ignore_ascii_case(&expected) {
        return malformed(object, "its check digits are wrong: it is damaged, cut short or mistyped");
    }
    Ok(kept)
}

fn push_hex(out: &mut String, bytes: &[u8]) {
    for byte in bytes {
        for digit in [byte >> 4, byte & 15] {
            out.extend(char::from_digit(u32::from(digit), 16));
        }
    }
}

fn unhex(digits: &str) -> Option<Zeroizing<Vec<u8>>> {
    let digits = digits.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |b: u8| char::from(b).to_digit(16).map(|d| d as u8);
    let mut out = Zeroizing::new(Vec::with_capacity(digits.len() / 2));
    for pair in digits.chunks_exact(2) {
        out.push(digit(pair[0])? << 4 | digit(pair[1])?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::Role;
    use drumlin_seal::SigningKey;

    #[test]
    fn key_files_round_trip_and_notice_typing_errors() {
        let file = KeyFile { repository: RepositoryId([1; 16]), key: KeyId([2; 16]), secret: Secret::new([3; 32]) };
        let text = file.encode();
        let back = KeyFile::decode(&format!("\n  {}", text.replace('\n', "\r\n\n"))).unwrap();
        assert_eq!((back.repository, back.key, back.secret), (file.repository, file.key, file.secret));
        for at in 0..text.trim_end().len() {
            let mut bent = text.as_bytes().to_vec();
            bent[at] = if bent[at] == b'7' { b'8' } else { b'7' };
            assert!(KeyFile::decode(std::str::from_utf8(&bent).unwrap()).is_err(), "byte {at}");
            assert!(KeyFile::decode(&text[..at]).is_err(), "cut to {at}");
        }
        assert!(KeyFile::decode(&text.to_uppercase()).is_ok(), "typed in upper case");
        assert!(!is_recovery(&text));
        assert!(is_recovery("\n drumlin recovery file 1\n"));
        for nonsense in ["", "\n", "check", "é", "drumlin key file 1"] {
            assert!(KeyFile::decode(nonsense).is_err() && decode_recovery(nonsense).is_err());
        }
    }

    #[test]
    fn recovery_files_round_trip_in_either_case_and_notice_typing_errors() {
        let signing = SigningKey::new(Secret::new([7; 32])).unwrap();
        let secrets = Secrets {
            repository: RepositoryId([1; 16]),
            key: KeyId([2; 16]),
            role: Role::Writer,
            owner: signing.verifying(),
            index: Secret::new([0xab; 32]),
            identity: Some(Secret::new([4; 32])),
            cutting: Some(Secret::new([5; 32])),
            data: None,
            meta: None,
            owner_signing: None,
            signing: Some(signing),
            tree_identity: None,
            wrapping: None,
            generations: Vec::new(),
        };
        let text = encode_recovery(&secrets);
        assert!(text.lines().all(|l| l.len() <= 64));
        let typed: [String; 3] = [text.to_string(), text.to_uppercase(), text.replace('\n', " \r\n\r\n  ")];
        for typed in typed {
            assert!(is_recovery(&typed));
            assert_eq!(decode_recovery(&typed).unwrap().encode(), secrets.encode());
        }
        for at in (0..text.trim_end().len()).step_by(3) {
            let mut bent = text.as_bytes().to_vec();
            bent[at] = if bent[at] == b'7' { b'8' } else { b'7' };
            assert!(decode_recovery(std::str::from_utf8(&bent).unwrap()).is_err(), "byte {at}");
            assert!(decode_recovery(&text[..at]).is_err(), "cut to {at}");
        }
    }
}
