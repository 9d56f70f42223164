//! Where the sorted entries are cut into nodes: at keys that a keyed hash picks, so that a change moves no other
//! boundary, and an observer who knows names can't tell where the cuts are.

use drumlin_seal::{IdKey, Secret};

/// Decides where nodes end. Writers must agree on it to share nodes; readers don't need it.
#[derive(Clone)]
pub struct Boundaries {
    key: IdKey,
}

impl Boundaries {
    /// A leaf ends after one key in 2 to this power, on average...
    const LEAF_BITS: u32 = 8;
    /// ...but not before it has so many entries...
    const LEAF_MIN: usize = 64;
    /// ...and at the latest when it has so many entries...
    const LEAF_MAX: usize = 1024;
    /// ...or so many bytes of names.
    const LEAF_TEXT_MAX: usize = 256 << 10;
    /// An inner node ends after one child in 2 to this power, on average...
    const INNER_BITS: u32 = 6;
    /// ...but not before it has so many children...
    const INNER_MIN: usize = 16;
    /// ...and at the latest when it has so many...
    const INNER_MAX: usize = 256;
    /// ...or so many bytes of directories and names; but never with a single child, or there would be no end of levels.
    const INNER_TEXT_MAX: usize = 1 << 20;
    /// A leaf also ends when its body holds so many bytes of targets and attributes, see [`super::Content::weight`].
    const BODY_WEIGHT_MAX: usize = 1 << 20;

    /// The boundaries of a repository with this secret for cutting.
    pub fn new(cutting: &Secret) -> Self {
        Boundaries { key: IdKey::new(cutting, "node boundaries") }
    }

    /// A digest of a directory, to be made once for all of its entries.
    pub fn dir_digest(&self, dir: &[u8]) -> [u8; 16] {
        let mut out = [0; 16];
        out.copy_from_slice(&self.key.id(dir)[..16]);
        out
    }

    /// The hash of the entry `name` in the directory of that digest.
    pub fn hash(&self, dir_digest: &[u8; 16], name: &[u8]) -> u64 {
        self.key.short(dir_digest, name)
    }

    /// Whether a leaf of `entries` entries and `text` bytes of names ends after an entry of this hash.
    pub fn leaf_ends(hash: u64, entries: usize, text: usize) -> bool {
        let hit = hash.trailing_zeros() >= Self::LEAF_BITS;
        (hit && entries >= Self::LEAF_MIN) || entries >= Self::LEAF_MAX || text >= Self::LEAF_TEXT_MAX
    }

    /// Whether a leaf ends, whatever its keys, because the contents of its body weigh so much: else a body of many
    /// attributes could become longer than a chunk may be.
    pub fn body_ends(weight: usize) -> bool {
        weight >= Self::BODY_WEIGHT_MAX
    }

    /// Whether an inner node of `level` (1 above the leaves) with `children` children, and `text` bytes of their
    /// directories and names, ends after a child whose last entry has this hash.
    pub fn inner_ends(hash: u64, level: u8, children: usize, text: usize) -> bool {
        // Each level looks at bits of its own; beyond the ninth all of them are used up.
        let bits = hash >> (Self::LEAF_BITS + Self::INNER_BITS * (u32::from(level) - 1)).min(58);
        let hit = bits & ((1 << Self::INNER_BITS) - 1) == 0;
        (hit && children >= Self::INNER_MIN)
            || children >= Self::INNER_MAX
            || text >= Self::INNER_TEXT_MAX && children >= 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_have_the_expected_sizes() {
        let boundaries = Boundaries::new(&Secret::new([1; 32]));
        let digest = boundaries.dir_digest(b"home");
        let (mut entries, mut leaves, mut children, mut inner) = (0, 0, 0, 0);
        for n in 0..1_000_000 {
            let hash = boundaries.hash(&digest, format!("file{n}").as_bytes());
            entries += 1;
            if Boundaries::leaf_ends(hash, entries, 0) {
                (entries, leaves, children) = (0, leaves + 1, children + 1);
                if Boundaries::inner_ends(hash, 1, children, 0) {
                    (children, inner) = (0, inner + 1);
                }
            }
        }
        let (leaf, node) = (1_000_000 / leaves, leaves / inner);
        assert!((280..=340).contains(&leaf), "{leaf} entries a leaf");
        assert!((60..=100).contains(&node), "{node} children a node");
    }

    #[test]
    fn long_directories_end_a_node_before_it_is_refused() {
        use crate::tree::{DIR_BYTES_MAX, NAME_BYTES_MAX, NODE_TEXT_MAX};
        let child = DIR_BYTES_MAX + NAME_BYTES_MAX;
        assert!(!Boundaries::inner_ends(1, 1, 1, child), "a node of one child makes no progress");
        assert!(Boundaries::inner_ends(u64::MAX, 1, 2, 2 * child));
        // Whatever was there before did not end the node; two more children come at a tree's end.
        assert!(Boundaries::INNER_TEXT_MAX + 2 * child <= NODE_TEXT_MAX);
        assert!(Boundaries::LEAF_TEXT_MAX + child <= NODE_TEXT_MAX);
        assert!(Boundaries::body_ends(1 << 20) && !Boundaries::body_ends(1 << 19));
    }
}
