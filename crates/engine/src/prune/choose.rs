//! Which packs go, and which are written anew without what nobody needs: a pure choice by sizes and limits.

use crate::collect::repack::Spare;
use drumlin_format::PackId;
use drumlin_format::pack::PackKind;
use std::collections::HashSet;

/// How much that nobody needs may stay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Unused {
    /// This share of what is needed, in percent.
    Percent(f64),
    /// So many bytes.
    Bytes(u64),
    /// All of it: only packs of which nothing is needed go.
    Unlimited,
}

impl Unused {
    /// Whether packs may keep a little because writing them anew is hardly worth it. Who lets nothing stay wants to be
    /// rid of something.
    pub(super) fn spare(self) -> Spare {
        match self {
            Unused::Bytes(0) => Spare::Nothing,
            Unused::Percent(share) if share <= 0.0 => Spare::Nothing,
            _ => Spare::Little,
        }
    }
}

/// What a pack would gain by being written anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub pack: PackId,
    pub kind: PackKind,
    /// The number of its generation, if it is older than the newest one and can be sealed anew.
    pub older: Option<u32>,
    /// Bytes of the whole pack.
    pub len: u64,
    /// Bytes in it that nobody needs.
    pub unused: u64,
    /// Those of them that would go: blocks of which nearly all is needed are moved as they are.
    pub drops: u64,
    /// Bytes that would be written in its place.
    pub moves: u64,
}

/// The limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub unused: Unused,
    /// The most that may be written.
    pub repack: u64,
    /// The most of older generations that may be written for their own sake.
    pub rekey: u64,
    /// Bytes of an ordinary pack.
    pub pack_bytes: u64,
}

/// A pack below this part of an ordinary one is small; more of them than this of a kind are made into few.
pub(super) const SMALL_PART: u64 = 8;
const SMALL_MAX: usize = 16;
/// Writing a pack anew has to give back this share of it: padding and a table are always there.
const WORTHWHILE: u64 = 50;

/// The packs to be written anew. `needed` are the bytes that snapshots need, in all packs together.
pub(super) fn choose(candidates: &[Candidate], needed: u64, limits: Limits) -> Vec<PackId> {
    let mut chosen = Vec::new();
    let mut written = 0u64;
    let mut unused: u64 = candidates.iter().map(|c| c.unused).sum();
    let most = match limits.unused {
        Unused::Percent(share) => (needed as f64 * share.max(0.0) / 100.0) as u64,
        Unused::Bytes(bytes) => bytes,
        Unused::Unlimited => u64::MAX,
    };
    // What frees most for each byte written comes first.
    let is_worthwhile = |c: &&Candidate| match limits.unused.spare() {
        Spare::Nothing => c.drops > 0,
        Spare::Little => c.drops * WORTHWHILE >= c.len,
    };
    let mut by_gain: Vec<&Candidate> = candidates.iter().filter(is_worthwhile).collect();
    by_gain.sort_by_key(|c| (u128::from(c.moves) * 1_000_000 / u128::from(c.drops.max(1)), c.pack));
    for candidate in by_gain {
        if unused <= most {
            break;
        }
        if written + candidate.moves <= limits.repack {
            written += candidate.moves;
            unused = unused.saturating_sub(candidate.drops);
            chosen.push(candidate.pack);
        }
    }
    for kind in [PackKind::Data, PackKind::Tree] {
        let taken: HashSet<PackId> = chosen.iter().copied().collect();
        let small: Vec<&Candidate> = candidates
            .iter()
            .filter(|c| c.kind == kind && c.len < limits.pack_bytes / SMALL_PART && !taken.contains(&c.pack))
            .collect();
        if small.len() <= SMALL_MAX {
            continue;
        }
        for candidate in small {
            if written + candidate.moves <= limits.repack {
                written += candidate.moves;
                chosen.push(candidate.pack);
            }
        }
    }
    renew(candidates, written, limits, &mut chosen);
    chosen
}

/// Choose packs of older generations, the oldest generation first. Packs of contents come before those of trees: by
/// then the clients have stored their trees anew by themselves. At least one, if any may be written.
fn renew(candidates: &[Candidate], mut written: u64, limits: Limits, chosen: &mut Vec<PackId>) {
    let taken: HashSet<PackId> = chosen.iter().copied().collect();
    let mut older: Vec<&Candidate> =
        candidates.iter().filter(|c| c.older.is_some() && !taken.contains(&c.pack)).collect();
    older.sort_by_key(|c| (c.older, c.kind == PackKind::Tree, c.pack));
    let mut renewed = 0u64;
    for candidate in older {
        let fits = renewed == 0 && limits.rekey > 0 || renewed + candidate.moves <= limits.rekey;
        if fits && written + candidate.moves <= limits.repack {
            written += candidate.moves;
            renewed += candidate.moves;
            chosen.push(candidate.pack);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn candidate(n: u8, len: u64, unused: u64) -> Candidate {
        let (pack, drops, moves) = (PackId([n; 16]), unused, len - unused);
        Candidate { pack, kind: PackKind::Data, older: None, len, unused, drops, moves }
    }

    const LIMITS: Limits = Limits { unused: Unused::Percent(5.0), repack: u64::MAX, rekey: 0, pack_bytes: 1000 };

    #[test]
    fn older_generations_go_oldest_first_and_trees_last() {
        let of = |n, kind, older| Candidate { kind, older, ..candidate(n, 1000, 0) };
        let packs = [
            of(1, PackKind::Tree, Some(0)),
            of(2, PackKind::Data, Some(3)),
            of(3, PackKind::Data, None),
            of(4, PackKind::Data, Some(0)),
        ];
        let ids = |ids: &[u8]| ids.iter().map(|n| PackId([*n; 16])).collect::<Vec<_>>();
        let rekey = |rekey, repack| choose(&packs, 4000, Limits { rekey, repack, ..LIMITS });
        assert_eq!(rekey(u64::MAX, u64::MAX), ids(&[4, 1, 2]));
        assert_eq!(rekey(2500, u64::MAX), ids(&[4, 1]));
        assert_eq!(rekey(1, u64::MAX), ids(&[4]), "one at least");
        assert_eq!(rekey(0, u64::MAX), ids(&[]));
        assert_eq!(rekey(u64::MAX, 1500), ids(&[4]), "no more than may be written at all");
    }

    #[test]
    fn the_emptiest_go_first_and_no_more_than_needed() {
        let packs = [candidate(1, 1000, 100), candidate(2, 1000, 900), candidate(3, 1000, 500)];
        // 1500 unused of 3000: down to 5 % of 1500 takes all three, down to 150 the two emptier ones.
        assert_eq!(choose(&packs, 1500, LIMITS), [PackId([2; 16]), PackId([3; 16]), PackId([1; 16])]);
        let some = Limits { unused: Unused::Bytes(150), ..LIMITS };
        assert_eq!(choose(&packs, 1500, some), [PackId([2; 16]), PackId([3; 16])]);
        assert!(choose(&packs, 1500, Limits { unused: Unused::Unlimited, ..LIMITS }).is_empty());
        assert_eq!(choose(&packs, 1500, Limits { repack: 150, ..LIMITS }), [PackId([2; 16])]);
        let hardly = candidate(1, 1000, 10);
        assert!(choose(&[hardly], 990, Limits { unused: Unused::Bytes(1), ..LIMITS }).is_empty());
        for nothing in [Unused::Bytes(0), Unused::Percent(0.0)] {
            assert_eq!(choose(&[hardly], 990, Limits { unused: nothing, ..LIMITS }), [hardly.pack]);
        }
    }

    #[test]
    fn many_small_ones_become_few() {
        let small = |n: u8| (0..n).map(|n| candidate(n, 100, 0)).collect::<Vec<_>>();
        assert!(choose(&small(16), 1600, LIMITS).is_empty());
        assert_eq!(choose(&small(17), 1700, LIMITS).len(), 17);
        assert_eq!(choose(&small(17), 1700, Limits { repack: 1000, ..LIMITS }).len(), 10);
        let large: Vec<_> = (0..17).map(|n| candidate(n, 200, 0)).collect();
        assert!(choose(&large, 3400, LIMITS).is_empty());
    }

    proptest! {
        #[test]
        fn limits_hold(packs in prop::collection::vec((1u64..2000, 0u64..100), 0..30), repack in 0u64..20_000, percent in 0.0..30.0f64) {
            let packs: Vec<_> = packs
                .iter()
                .enumerate()
                .map(|(n, (len, share))| candidate(n as u8, *len, len * share / 100))
                .collect();
            let needed = packs.iter().map(|c| c.len - c.unused).sum();
            let limits = Limits { unused: Unused::Percent(percent), repack, rekey: 0, pack_bytes: 1000 };
            let chosen = choose(&packs, needed, limits);
            let is_chosen = |c: &&Candidate| chosen.contains(&c.pack);
            prop_assert!(packs.iter().filter(is_chosen).map(|c| c.moves).sum::<u64>() <= repack);
            let mut once = chosen.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), chosen.len());
            // Without a limit on writing, what stays is within its limit, but for packs that are hardly worth it.
            let all = choose(&packs, needed, Limits { repack: u64::MAX, ..limits });
            let left: u64 = packs.iter().filter(|c| !all.contains(&c.pack)).map(|c| c.unused).sum();
            let hardly: u64 = packs.iter().map(|c| c.len / WORTHWHILE + 1).sum();
            prop_assert!(left <= (needed as f64 * percent / 100.0) as u64 + hardly);
        }
    }
}
