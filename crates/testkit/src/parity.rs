//! Damage that parity doesn't make up for.

use std::ops::Range;

const FOOTER: usize = 48;

/// Where a pack's parity is, from its footer; empty if it has none, or if this is no pack.
pub fn parity_of(object: &[u8]) -> Range<usize> {
    let Some(end) = object.len().checked_sub(FOOTER).filter(|at| object[*at..].starts_with(b"drumend\x01")) else {
        return 0..0;
    };
    let parity = u32::from_le_bytes(object[end + 20..][..4].try_into().unwrap_or_default()) as usize;
    end.saturating_sub(parity)..end
}

/// Wipe a pack's parity, so that what is damaged besides stays so. Leaves other objects alone.
pub fn wipe_parity(object: &mut [u8]) {
    let parity = parity_of(object);
    object[parity].fill(0);
}
