//! GB/s of each path over whole streams, beside a scalar gear chunker of the FastCDC kind.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use drumlin_chunk::{Chunker, Params, Path};

fn random(len: usize, mut s: u64) -> Vec<u8> {
    let mut v = Vec::with_capacity(len + 8);
    while v.len() < len {
        s = s.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = s;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        v.extend_from_slice(&(z ^ (z >> 31)).to_le_bytes());
    }
    v.truncate(len);
    v
}

/// FastCDC's gear hash, one byte a step, two bits of normalisation: the yardstick.
struct Gear {
    table: [u64; 256],
    params: Params,
}

impl Gear {
    fn new(params: Params) -> Gear {
        let r = random(2048, 42);
        Gear { table: core::array::from_fn(|i| u64::from_le_bytes(*r[8 * i..].first_chunk().unwrap())), params }
    }

    fn cut(&self, data: &[u8]) -> usize {
        let (min, normal) = (self.params.min as usize, self.params.normal as usize);
        let end = data.len().min(self.params.max as usize);
        if end <= min {
            return end;
        }
        let bits = self.params.normal.trailing_zeros();
        let mut hash = 0u64;
        for &b in &data[min - 64..min] {
            hash = (hash << 1).wrapping_add(self.table[b as usize]);
        }
        let mut at = min;
        for (stop, bits) in [(end.min(normal), bits + 2), (end, bits - 2)] {
            let mask = !0 << (64 - bits);
            for &b in &data[at..stop] {
                hash = (hash << 1).wrapping_add(self.table[b as usize]);
                at += 1;
                if hash & mask == 0 {
                    return at;
                }
            }
        }
        end
    }
}

fn run(data: &[u8], cut: impl Fn(&[u8]) -> usize) -> usize {
    let (mut rest, mut count) = (data, 0);
    while !rest.is_empty() {
        rest = &rest[cut(rest)..];
        count += 1;
    }
    count
}

fn benches(c: &mut Criterion) {
    let secret: [u8; 32] = core::array::from_fn(|i| (i * 37 + 11) as u8);
    // Never a cut in a warm 1 MiB (strict to the end), so this is the bare rate of both stages.
    let mut g = c.benchmark_group("scan 1 MiB warm");
    let data = random(1 << 20, 7);
    g.throughput(Throughput::Bytes(data.len() as u64 - 64));
    let params = Params::new(64, 1 << 30, 1 << 31).unwrap();
    for path in Path::ALL {
        if let Some(chunker) = Chunker::with_path(&secret, params, path) {
            g.bench_function(BenchmarkId::from_parameter(format!("{path:?}")), |b| b.iter(|| chunker.cut(&data)));
        }
    }
    let gear = Gear::new(params);
    g.bench_function("gear", |b| b.iter(|| gear.cut(&data)));
    g.finish();

    let stream = random(32 << 20, 7);
    for normal in [1 << 14, 1 << 16, 1 << 20] {
        let params = Params::around(normal).unwrap();
        let mut g = c.benchmark_group(format!("stream 32 MiB, normal {} KiB", normal >> 10));
        g.throughput(Throughput::Bytes(stream.len() as u64)).sample_size(20);
        for path in Path::ALL {
            if let Some(chunker) = Chunker::with_path(&secret, params, path) {
                g.bench_function(format!("{path:?}"), |b| b.iter(|| run(&stream, |d| chunker.cut(d))));
            }
        }
        let gear = Gear::new(params);
        g.bench_function("gear", |b| b.iter(|| run(&stream, |d| gear.cut(d))));
        g.finish();
    }

    // Runs of one byte: zeros, which pass the filter under no key, and ones under a key that lets all of them pass.
    let mut unlucky = secret;
    unlucky[..8].fill(0);
    unlucky[24] = 0x0b;
    for (name, byte, secret) in [("zeros", 0, secret), ("ones, unlucky key", 1, unlucky)] {
        let run_of_one = vec![byte; 32 << 20];
        let mut g = c.benchmark_group(name);
        g.throughput(Throughput::Bytes(run_of_one.len() as u64)).sample_size(20);
        for path in Path::ALL {
            if let Some(chunker) = Chunker::with_path(&secret, Params::around(1 << 16).unwrap(), path) {
                g.bench_function(format!("{path:?}"), |b| b.iter(|| run(&run_of_one, |d| chunker.cut(d))));
            }
        }
        g.finish();
    }
}

criterion_group!(all, benches);
criterion_main!(all);
