//! Extended attributes: a set that many entries share.

use std::ops::Deref;
use std::sync::Arc;

/// A name and its value.
type Xattr = (Vec<u8>, Vec<u8>);

/// Extended attributes as (name, value), sorted by name, each name once. Cheap to clone: entries share the set.
#[derive(Clone, Debug, Default)]
pub struct Xattrs(Option<Arc<[Xattr]>>);

impl Xattrs {
    /// Bytes of names and values together.
    pub fn bytes(&self) -> usize {
        self.iter().map(|(name, value)| name.len() + value.len()).sum()
    }

    fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Deref for Xattrs {
    type Target = [Xattr];

    fn deref(&self) -> &Self::Target {
        self.0.as_deref().unwrap_or(&[])
    }
}

impl PartialEq for Xattrs {
    fn eq(&self, other: &Self) -> bool {
        self.is_same(other) || **self == **other
    }
}

impl Eq for Xattrs {}

/// In any order. Of a name that stands twice the first value is kept.
impl From<Vec<Xattr>> for Xattrs {
    fn from(mut set: Vec<Xattr>) -> Self {
        if !set.is_sorted_by(|a, b| a.0 < b.0) {
            set.sort_by(|a, b| a.0.cmp(&b.0));
            set.dedup_by(|a, b| a.0 == b.0);
        }
        Xattrs((!set.is_empty()).then(|| set.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(name: &str, value: u8) -> Xattr {
        (name.as_bytes().to_vec(), vec![value])
    }

    #[test]
    fn a_set_has_one_form_and_is_shared() {
        let set = Xattrs::from(vec![pair("b", 1), pair("a", 2), pair("b", 3)]);
        assert_eq!(*set, [pair("a", 2), pair("b", 1)]);
        assert_eq!(set, Xattrs::from(vec![pair("a", 2), pair("b", 1)]));
        assert_ne!(set, Xattrs::from(vec![pair("a", 2), pair("b", 2)]));
        assert!(set.is_same(&set.clone()), "a clone is the same set");
        assert_eq!(set.bytes(), 4);
        let none = Xattrs::from(Vec::new());
        assert!(none.is_empty() && none.0.is_none() && none == Xattrs::default());
        assert_eq!(size_of::<Xattrs>(), 16);
    }
}
