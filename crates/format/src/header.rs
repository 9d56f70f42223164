//! The 32 bytes that open every object, and are authenticated with everything sealed in it.

use crate::error::malformed;
use crate::{Error, Result, VERSION};
use drumlin_seal::Suite;

/// Bytes of a header.
pub const HEADER_BYTES: usize = 32;
const MAGIC: &[u8; 7] = b"drumlin";

/// What kind of object this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ObjectType {
    /// The repository's configuration.
    Config = 1,
    /// A key.
    Key = 2,
    /// A pack of file contents.
    DataPack = 3,
    /// A pack of tree nodes and chunk lists.
    TreePack = 4,
    /// The tables of some packs.
    Index = 5,
    /// A snapshot.
    Snapshot = 6,
    /// A writer's registration.
    Session = 7,
    /// What became of a session.
    Decision = 8,
    /// What a collector condemns.
    Plan = 9,
    /// What is lost.
    Loss = 10,
    /// What somebody has removed.
    History = 11,
    /// What packs that are lost can be made of again, with others.
    Recovery = 12,
    /// New secrets for what comes after it.
    Generation = 13,
}

impl ObjectType {
    /// What messages call it.
    pub fn label(self) -> &'static str {
        match self {
            ObjectType::Config => "config",
            ObjectType::Key => "key",
            ObjectType::DataPack => "data pack",
            ObjectType::TreePack => "tree pack",
            ObjectType::Index => "index object",
            ObjectType::Snapshot => "snapshot",
            ObjectType::Session => "session",
            ObjectType::Decision => "decision",
            ObjectType::Plan => "plan",
            ObjectType::Loss => "loss",
            ObjectType::History => "history entry",
            ObjectType::Recovery => "recovery object",
            ObjectType::Generation => "generation",
        }
    }
}

/// An object's header: version, type, suite, generation and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The format version that the object was written in: kept, since signatures and seals are over it.
    pub version: u8,
    /// The object's type.
    pub object: ObjectType,
    /// The cipher of what is sealed in it.
    pub suite: Suite,
    /// The tag of the generation whose secrets open it; 0 is the first one. See [`crate::generation`].
    pub generation: u32,
    /// Its name.
    pub id: [u8; 16],
}

impl Header {
    /// The header of a new object of the first generation, of the version that this crate writes.
    pub fn new(object: ObjectType, suite: Suite, id: [u8; 16]) -> Self {
        Header { version: VERSION, object, suite, generation: 0, id }
    }

    /// This header, for the generation with this tag.
    #[must_use]
    pub fn of(self, generation: u32) -> Self {
        Header { generation, ..self }
    }

    /// The bytes: magic, version, type, suite, generation, two zero bytes, id.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..7].copy_from_slice(MAGIC);
        out[7] = self.version;
        out[8] = self.object as u8;
        out[9] = self.suite.number();
        out[10..14].copy_from_slice(&self.generation.to_le_bytes());
        out[16..].copy_from_slice(&self.id);
        out
    }

    /// Read the header at the start of `bytes`, which must be of type `object`.
    pub fn decode(bytes: &[u8], object: ObjectType) -> Result<Self> {
        let what = object.label();
        let Some(bytes) = bytes.first_chunk::<HEADER_BYTES>() else {
            return malformed(what, "it ends within its header");
        };
        if &bytes[..7] != MAGIC {
            return malformed(what, "it does not begin as an object of drumlin does");
        }
        if bytes[7] > VERSION {
            return Err(Error::Newer { object: what, found: bytes[7] });
        }
        if bytes[7] == 0 {
            return malformed(what, "there is no format version 0");
        }
        if bytes[8] != object as u8 {
            return malformed(what, "it is an object of another type");
        }
        if bytes[14..16] != [0; 2] {
            return malformed(what, "reserved bytes of its header are not zero");
        }
        let suite = Suite::from_number(bytes[9]).map_err(|source| Error::Seal { object: what, source })?;
        let (mut generation, mut id) = ([0; 4], [0; 16]);
        generation.copy_from_slice(&bytes[10..14]);
        id.copy_from_slice(&bytes[16..]);
        Ok(Header { version: bytes[7], object, suite, generation: u32::from_le_bytes(generation), id })
    }

    /// Read the header and check that the object is the one that its name says.
    pub fn expect(bytes: &[u8], object: ObjectType, id: &[u8; 16]) -> Result<Self> {
        let header = Header::decode(bytes, object)?;
        if header.id != *id {
            return malformed(object.label(), "it is another object than its name says");
        }
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_every_refusal() {
        let header = Header::new(ObjectType::Index, Suite::Aes256Gcm, [3; 16]);
        let bytes = header.encode();
        assert_eq!(Header { version: 7, ..header }.encode()[7], 7, "an old object keeps its version");
        assert_eq!(Header::decode(&bytes, ObjectType::Index), Ok(header));
        assert!(Header::decode(&bytes, ObjectType::Snapshot).is_err());
        assert!(Header::decode(&bytes[..31], ObjectType::Index).is_err());
        assert!(Header::expect(&bytes, ObjectType::Index, &[4; 16]).is_err());
        let later = header.of(0x0102_0304);
        assert_eq!(later.encode()[9..16], [1, 4, 3, 2, 1, 0, 0]);
        assert_eq!(Header::decode(&later.encode(), ObjectType::Index), Ok(later));
        for (at, value) in [(0, b'D'), (7, 0), (9, 77), (14, 1), (15, 1)] {
            let mut bent = bytes;
            bent[at] = value;
            assert!(Header::decode(&bent, ObjectType::Index).is_err(), "byte {at}");
        }
        assert_eq!(Header { object: ObjectType::Plan, ..header }.encode()[8], 9);
        let mut newer = bytes;
        newer[7] = 2;
        assert!(matches!(Header::decode(&newer, ObjectType::Index), Err(Error::Newer { found: 2, .. })));
    }
}
