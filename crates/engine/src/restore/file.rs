//! The identity of a written file, read back where its chunks did not come in order.

use drumlin_host::place::{NewFile, Result};
use drumlin_seal::Hasher;

const READ_BYTES: usize = 256 << 10;

/// The identity of a file's whole contents: bytes outside of holes, then the holes (offset and length, 8 bytes each,
/// little-endian, as `holes` has them). `hashed` bytes at its start have gone into `hasher` already.
pub(super) fn whole(
    file: &NewFile,
    size: u64,
    hashed: u64,
    mut hasher: Hasher,
    holes: &[u8],
    buffer: &mut Vec<u8>,
) -> Result<[u8; 32]> {
    let mut at = hashed;
    let mut holes_left = holes.chunks_exact(16).map(|h| {
        let number = |b: &[u8]| u64::from_le_bytes(b.try_into().unwrap_or([0; 8]));
        (number(&h[..8]), number(&h[8..]))
    });
    loop {
        let hole = holes_left.next();
        let end = hole.map_or(size, |(start, _)| start);
        while at < end {
            let want = usize::try_from(end - at).unwrap_or(READ_BYTES).min(READ_BYTES);
            buffer.resize(want, 0);
            let got = file.read_at(at, &mut buffer[..want])?;
            if got == 0 {
                // Shorter than it should be: the identity will tell.
                break;
            }
            hasher.update(&buffer[..got]);
            at += got as u64;
        }
        match hole {
            Some((start, len)) => at = start + len,
            None => break,
        }
    }
    hasher.update(holes);
    Ok(*hasher.finalize().as_bytes())
}
