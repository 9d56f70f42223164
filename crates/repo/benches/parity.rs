//! GB/s at which packs of a few sizes get their parity, as a first backup appends blocks.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drumlin_format::parity::Head;
use drumlin_repo::pack::Encoder;

/// Blocks of a first backup of what can't be compressed; just written by whoever sealed them, so in the cache.
const BLOCK_BYTES: usize = (1 << 20) + 16;

fn parity(c: &mut Criterion) {
    let block: Vec<u8> = (0..BLOCK_BYTES as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    let mut group = c.benchmark_group("parity");
    for len in [20_000, 200_000, 2_000_000, 64 << 20] {
        group.throughput(Throughput::Bytes(len as u64));
        group.bench_function(BenchmarkId::from_parameter(len), |b| {
            b.iter(|| {
                let mut encoder = Encoder::default();
                let mut left = len;
                while left > 0 {
                    let piece = left.min(block.len());
                    encoder.write(&block[..piece]);
                    left -= piece;
                }
                encoder.finish(&Head { header: [0; 32], table_offset: len as u64 - 1000, table_len: 1000 })
            });
        });
    }
    group.finish();
}

criterion_group!(benches, parity);
criterion_main!(benches);
