//! Identities: one type for each kind of thing, so that none passes for another.

use std::fmt;

/// The keyed hash of a chunk's bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChunkId(pub [u8; 32]);

impl ChunkId {
    /// The first 16 bytes as a number whose order is the bytes' order: what the index sorts by.
    pub fn prefix(&self) -> u128 {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.0[..16]);
        u128::from_be_bytes(bytes)
    }

    /// Whether this id is a hook of the sparse index: 1 in 64, its leading six bits are zero.
    pub fn is_hook(&self) -> bool {
        self.0[0] < 4
    }

    /// The first 8 bytes as a number: how a hook is written.
    pub fn hook(&self) -> u64 {
        (self.prefix() >> 64) as u64
    }
}

/// Ids one behind the other, 16 bytes each: how small objects keep many of them.
pub(crate) fn split_ids(bytes: &[u8], object: &'static str) -> crate::Result<impl Iterator<Item = [u8; 16]>> {
    let (ids, rest) = bytes.as_chunks::<16>();
    if rest.is_empty() {
        Ok(ids.iter().copied())
    } else {
        crate::error::malformed(object, "a list of ids ends within one")
    }
}

impl fmt::Display for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for ChunkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0[..6], f)
    }
}

fn hex(bytes: &[u8], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    bytes.iter().try_for_each(|b| write!(f, "{b:02x}"))
}

macro_rules! random_id {
    ($(#[$doc:meta] $name:ident),+ $(,)?) => {$(
        #[$doc]
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub [u8; 16]);

        impl $name {
            /// The id of 32 hexadecimal digits.
            pub fn parse(text: &str) -> Option<Self> {
                parse_hex(text).map($name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                hex(&self.0[..4], f)
            }
        }

        impl<C> minicbor::Encode<C> for $name {
            fn encode<W: minicbor::encode::Write>(
                &self,
                e: &mut minicbor::Encoder<W>,
                _: &mut C,
            ) -> Result<(), minicbor::encode::Error<W::Error>> {
                e.bytes(&self.0)?;
                Ok(())
            }
        }

        impl<'b, C> minicbor::Decode<'b, C> for $name {
            fn decode(d: &mut minicbor::Decoder<'b>, _: &mut C) -> Result<Self, minicbor::decode::Error> {
                let bytes = d.bytes()?.try_into().map_err(|_| minicbor::decode::Error::message("an id of 16 bytes"))?;
                Ok($name(bytes))
            }
        }
    )+};
}

random_id! {
    /// A repository.
    RepositoryId,
    /// A pack: random, so that a name tells nothing of what is inside.
    PackId,
    /// An index object.
    IndexId,
    /// A snapshot.
    SnapshotId,
    /// A writer's session.
    SessionId,
    /// A collection plan.
    PlanId,
    /// A loss.
    LossId,
    /// An entry of the history.
    HistoryId,
    /// A key object.
    KeyId,
    /// A recovery object.
    RecoveryId,
}

/// A band: what the ids of its recovery objects begin with.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BandId(pub [u8; 15]);

impl BandId {
    /// Its recovery object of this number.
    pub fn object(&self, number: u8) -> RecoveryId {
        let mut id = [number; 16];
        id[..15].copy_from_slice(&self.0);
        RecoveryId(id)
    }
}

impl fmt::Display for BandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0, f)
    }
}

impl fmt::Debug for BandId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        hex(&self.0[..4], f)
    }
}

impl RecoveryId {
    /// The band that it belongs to.
    pub fn band(&self) -> BandId {
        let mut id = [0; 15];
        id.copy_from_slice(&self.0[..15]);
        BandId(id)
    }

    /// Its number in the band. The one of number 0 has no recovery data.
    pub fn number(&self) -> u8 {
        self.0[15]
    }
}

impl IndexId {
    /// The id of an object of this session: the session's first half before 8 random bytes.
    pub fn of(session: SessionId, random: [u8; 8]) -> Self {
        let mut id = session.0;
        id[8..].copy_from_slice(&random);
        IndexId(id)
    }

    /// Whether this session wrote the object.
    pub fn is_of(&self, session: &SessionId) -> bool {
        self.0[..8] == session.0[..8]
    }
}

fn parse_hex(text: &str) -> Option<[u8; 16]> {
    let text = text.as_bytes();
    if text.len() != 32 {
        return None;
    }
    let mut out = [0; 16];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        // Upper case is refused: a name has one spelling.
        let digit = |c: u8| match c {
            b'0'..=b'9' => Some(c - b'0'),
            b'a'..=b'f' => Some(c - b'a' + 10),
            _ => None,
        };
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_one_spelling() {
        let id = PackId([0xab; 16]);
        assert_eq!(PackId::parse(&id.to_string()), Some(id));
        assert_eq!(PackId::parse(&id.to_string().to_uppercase()), None);
        assert_eq!(PackId::parse("ab"), None);
        assert_eq!(PackId::parse(&"g".repeat(32)), None);
        assert_eq!(PackId::parse(&"é".repeat(16)), None);
    }

    #[test]
    fn one_id_in_64_is_a_hook() {
        let hooks = (0..=255u8).filter(|b| ChunkId([*b; 32]).is_hook()).count();
        assert_eq!(hooks, 4);
    }
}
