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
        }
    }
}

/// An object's header: version, type, suite and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The format version that the object was written in: kept, since signatures and seals are over it.
    pub version: u8,
    /// The object's type.
    pub object: ObjectType,
    /// The cipher of what is sealed in it.
    pub suite: Suite,
    /// Its name.
    pub id: [u8; 16],
}

impl Header {
    /// The header of a new object, of the version that this crate writes.
    pub fn new(object: ObjectType, suite: Suite, id: [u8; 16]) -> Self {
        Header { version: VERSION, object, suite, id }
    }

    /// The bytes: magic, version, type, suite, six zero bytes, id.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[..7].copy_from_slice(MAGIC);
        out[7] = self.version;
        out[8] = self.object as u8;
        out[9] = self.suite.number();
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
        if bytes[10..16] != [0; 6] {
            return malformed(what, "reserved bytes of its header are not zero");
        }
        let suite = Suite::from_number(bytes[9]).map_err(|source| Error::Seal { object: what, source })?;
        let mut id = [0; 16];
        id.copy_from_slice(&bytes[16..]);
        Ok(Header { version: bytes[7], object, suite, id })
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
        for (at, value) in [(0, b'D'), (7, 0), (9, 77), (12, 1)] {
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
