//! The CRC-32 of zip archives (polynomial 0xEDB88320), eight bytes a step
//! (Kounavis and Berry, "A Systematic Approach to Building High Performance Software-Based CRC Generators", 2005).

static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut n = 0;
    while n < 256 {
        let mut crc = n as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
            bit += 1;
        }
        tables[0][n] = crc;
        n += 1;
    }
    let mut k = 1;
    while k < 8 {
        let mut n = 0;
        while n < 256 {
            let before = tables[k - 1][n];
            tables[k][n] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            n += 1;
        }
        k += 1;
    }
    tables
}

/// The checksum of some bytes after others of this checksum; 0 at the start.
pub(super) fn crc32(before: u32, bytes: &[u8]) -> u32 {
    let mut crc = !before;
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let word = u64::from_le_bytes([chunk[0], chunk[1], chunk[2], chunk[3], chunk[4], chunk[5], chunk[6], chunk[7]]);
        let word = word ^ u64::from(crc);
        crc = 0;
        for (at, table) in TABLES.iter().rev().enumerate() {
            crc ^= table[(word >> (8 * at) & 0xff) as usize];
        }
    }
    for byte in chunks.remainder() {
        crc = crc >> 8 ^ TABLES[0][((crc ^ u32::from(*byte)) & 0xff) as usize];
    }
    !crc
}

#[cfg(test)]
mod tests {
    use super::crc32;

    #[test]
    fn known_values_in_any_pieces() {
        assert_eq!(crc32(0, b"123456789"), 0xCBF4_3926);
        assert_eq!(crc32(0, b""), 0);
        let text = b"The quick brown fox jumps over the lazy dog";
        for cut in 0..text.len() {
            assert_eq!(crc32(crc32(0, &text[..cut]), &text[cut..]), 0x414F_A339);
        }
    }
}
