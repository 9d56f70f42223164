//! Why bytes are not what they should be.

/// A result of decoding.
pub type Result<T> = std::result::Result<T, Error>;

/// A failed decoding.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The bytes don't follow the format: damaged, or not such an object at all.
    #[error("malformed {object}: {detail}")]
    Malformed {
        /// The kind of object or part.
        object: &'static str,
        /// What is wrong with it.
        detail: &'static str,
    },
    /// The object is of a newer format.
    #[error("the {object} is of format version {found}, this program knows versions up to {known}; use a newer drumlin", known = crate::VERSION)]
    Newer {
        /// The kind of object.
        object: &'static str,
        /// The version found.
        found: u8,
    },
    /// The object says that a reader has to know something that this program doesn't.
    #[error("the {object} needs a feature that this version doesn't have; use a newer drumlin")]
    Feature {
        /// The kind of object.
        object: &'static str,
    },
    /// The object is sealed with secrets that the key in use doesn't have.
    #[error(
        "the {object} is of generation {generation:08x}, whose secrets this key doesn't have; if the repository was just given new ones, run it again"
    )]
    Generation {
        /// The kind of object.
        object: &'static str,
        /// The generation's tag.
        generation: u32,
    },
    /// Sealed bytes could not be opened, or a signature doesn't hold.
    #[error("{object}: {source}")]
    Seal {
        /// The kind of object.
        object: &'static str,
        /// Why.
        source: drumlin_seal::Error,
    },
}

impl Error {
    /// Whether a newer program understands the object.
    pub fn is_newer(&self) -> bool {
        matches!(self, Error::Newer { .. } | Error::Feature { .. })
    }
}

/// A shorthand for [`Error::Malformed`].
pub(crate) fn malformed<T>(object: &'static str, detail: &'static str) -> Result<T> {
    Err(Error::Malformed { object, detail })
}
