//! What the sizes of the chunker cost and save: the study behind `docs/decisions/0002-chunker.md`.
//!
//! ```text
//! dedup inserts               64 MiB of random bytes, and again with 20 small inserts
//! dedup log                   64 MiB of log lines, and again with 50 lines put in, taken out or changed
//! dedup sql                   the same with the lines of a database dump
//! dedup image FILE SHARE      FILE, and again with one in SHARE of its 4 KiB blocks overwritten
//! dedup VERSION...            the given files as one stream each, or directories with each file a stream
//! dedup keys DATA...          any of these under 64 keys, at 64 KiB
//! ```
//!
//! A row is a `normal` size, the bits of normalisation, and min and max as parts of `normal`. `kept` is the total of
//! bytes over the bytes of different chunks. `repo` is what a repository would hold, in percent of all bytes, at
//! 110 bytes of overhead for each different chunk, if data does not compress, and if it compresses to a third.

#[path = "../tests/reference/mod.rs"]
mod reference;

use std::collections::HashSet;
use std::error::Error;
use std::path::Path;

use reference::{next, random, verdict, weights};

const OVERHEAD: f64 = 110.0;

/// Keys that `dedup keys` tries.
const KEYS: u64 = 64;

/// One stream, with every position in it that passes stage 1, and how many low bits of its verdict are zero.
struct Stream {
    data: Vec<u8>,
    candidates: Vec<(usize, u32)>,
}

impl Stream {
    fn new(data: Vec<u8>, secret: &[u8; 32]) -> Stream {
        let c = weights(secret);
        let at = |p: usize| verdict(secret, &c, &data[p - 64..p]).map(|v| (p, v.trailing_zeros()));
        let candidates = (64..data.len()).filter_map(at).collect();
        Stream { data, candidates }
    }

    /// Cuts as the chunker does, but with any number of bits.
    fn cuts(&self, min: usize, normal: usize, max: usize, level: u32) -> Vec<usize> {
        let bits = normal.ilog2() - 8;
        let (mut cuts, mut start, mut i) = (Vec::new(), 0, 0);
        while start < self.data.len() {
            let end = self.data.len().min(start + max);
            while i < self.candidates.len() && self.candidates[i].0 < start + min {
                i += 1;
            }
            start = loop {
                match self.candidates.get(i) {
                    Some(&(p, zeros)) if p < end => {
                        i += 1;
                        if zeros >= if p - start < normal { bits + level } else { bits - level } {
                            break p;
                        }
                    }
                    _ => break end,
                }
            };
            cuts.push(start);
        }
        cuts
    }
}

/// What one choice of sizes makes of all streams together.
#[derive(Default)]
struct Outcome {
    total: usize,
    count: usize,
    different: usize,
    /// Bytes of different chunks.
    kept: usize,
    /// Bytes in chunks that were cut at `max`.
    forced: usize,
    squares: f64,
}

impl Outcome {
    fn of(streams: &[Stream], normal: usize, level: u32, below: usize, above: usize) -> Outcome {
        let (mut seen, mut o) = (HashSet::new(), Outcome::default());
        for stream in streams {
            let mut from = 0;
            for to in stream.cuts((normal / below).max(64), normal, normal * above, level) {
                o.count += 1;
                o.squares += ((to - from) as f64).powi(2);
                if to - from == normal * above {
                    o.forced += to - from;
                }
                if seen.insert(*blake3::hash(&stream.data[from..to]).as_bytes()) {
                    o.kept += to - from;
                }
                from = to;
            }
            o.total += stream.data.len();
        }
        o.different = seen.len();
        o
    }

    fn mean(&self) -> f64 {
        self.total as f64 / self.count as f64
    }

    fn ratio(&self) -> f64 {
        self.total as f64 / self.kept as f64
    }
}

fn row(streams: &[Stream], normal: usize, level: u32, below: usize, above: usize) {
    let o = Outcome::of(streams, normal, level, below, above);
    let mean = o.mean();
    let repo = |ratio: f64| (o.kept as f64 / ratio + OVERHEAD * o.different as f64) / o.total as f64 * 100.0;
    println!(
        "{:4}K  level {level}  min 1/{below} max {above}x  mean {:6.1}K sd {:4.2}  chunks {:7} different {:7}  \
         kept {:7.3}  repo {:6.2} % {:6.2} %",
        normal >> 10,
        mean / 1024.0,
        (o.squares / o.count as f64 - mean * mean).max(0.0).sqrt() / mean,
        o.count,
        o.different,
        o.ratio(),
        repo(1.0),
        repo(3.0),
    );
}

fn key(number: u64) -> [u8; 32] {
    *random(32, 1000 + number).first_chunk().expect("32 bytes")
}

/// How far the outcome depends on the key: where lines are much alike, what the filter sees has few different values.
fn keys(data: &[Vec<u8>]) {
    const LEVELS: [u32; 3] = [1, 2, 3];
    let mut by_level = LEVELS.map(|_| Vec::new());
    for k in 0..KEYS {
        let secret = key(k);
        let streams: Vec<Stream> = data.iter().map(|d| Stream::new(d.clone(), &secret)).collect();
        for (outcomes, level) in by_level.iter_mut().zip(LEVELS) {
            outcomes.push(Outcome::of(&streams, 1 << 16, level, 4, 4));
        }
    }
    for (outcomes, level) in by_level.iter().zip(LEVELS) {
        let spread = |f: fn(&Outcome) -> f64| {
            let mut v: Vec<f64> = outcomes.iter().map(f).collect();
            v.sort_by(f64::total_cmp);
            format!("{:.3} {:.3} {:.3} {:.3}", v[0], v[v.len() / 10], v[v.len() / 2], v[v.len() - 1])
        };
        println!(
            "64K  level {level}  least, tenth, median, most of {KEYS} keys: mean {} K, cut at max {} %, kept {}",
            spread(|o| o.mean() / 1024.0),
            spread(|o| o.forced as f64 / o.total as f64 * 100.0),
            spread(Outcome::ratio),
        );
    }
}

/// The file, or every regular file below, in order of names.
fn gather(path: &Path, into: &mut Vec<Vec<u8>>) -> std::io::Result<()> {
    if path.is_dir() {
        let mut names = std::fs::read_dir(path)?.map(|e| Ok(e?.path())).collect::<std::io::Result<Vec<_>>>()?;
        names.sort();
        for name in names.iter().filter(|n| n.symlink_metadata().is_ok_and(|m| m.is_dir() || m.is_file())) {
            gather(name, into)?;
        }
    } else {
        into.push(std::fs::read(path)?);
    }
    Ok(())
}

fn inserts() -> Vec<Vec<u8>> {
    let (old, mut seed) = (random(64 << 20, 1), 2);
    let mut new = old.clone();
    for _ in 0..20 {
        let at = next(&mut seed) as usize % new.len();
        let bytes = random(1 + next(&mut seed) as usize % 100, seed);
        new.splice(at..at, bytes);
    }
    vec![old, new]
}

/// `old`, and again with 50 lines put in, taken out or changed.
fn edited(old: Vec<u8>) -> Vec<Vec<u8>> {
    let (mut new, mut seed) = (old.clone(), 4);
    for i in 0..50 {
        let at = next(&mut seed) as usize % new.len();
        let from = new[..at].iter().rposition(|&b| b == b'\n').map_or(0, |n| n + 1);
        let to = new[at..].iter().position(|&b| b == b'\n').map_or(new.len(), |n| at + n + 1);
        let line: &[u8] = b"1700000000.000 host99 audit[1]: a line that was not there before\n";
        match i % 3 {
            0 => drop(new.splice(from..from, line.iter().copied())),
            1 => drop(new.drain(from..to)),
            _ => drop(new.splice(from..to, line.iter().copied())),
        }
    }
    vec![old, new]
}

fn sql(len: usize, mut seed: u64) -> Vec<u8> {
    let mut text = Vec::with_capacity(len + 200);
    for id in 0.. {
        let r = next(&mut seed);
        let line = format!(
            "INSERT INTO `customer_address` VALUES ({id},'{}','Main Street {}',NULL,NULL,'2024-{:02}-{:02} \
             00:00:00',0,0.00,'active');\n",
            r % 100_000,
            (r >> 20) % 300,
            (r >> 40) % 12 + 1,
            (r >> 50) % 28 + 1
        );
        text.extend_from_slice(line.as_bytes());
        if text.len() >= len {
            break;
        }
    }
    text
}

fn image(file: &str, share: usize) -> std::io::Result<Vec<Vec<u8>>> {
    let (old, mut seed) = (std::fs::read(file)?, 5);
    let mut new = old.clone();
    let blocks = new.len() / 4096;
    for _ in 0..blocks / share {
        let block = next(&mut seed) as usize % blocks;
        new[block * 4096..][..4096].copy_from_slice(&random(4096, seed));
    }
    Ok(vec![old, new])
}

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let (by_key, names) = match args.split_first() {
        Some((&"keys", names)) => (true, names),
        _ => (false, &args[..]),
    };
    let data = match *names {
        [] => return Err("which data? see the head of this file".into()),
        ["inserts"] => inserts(),
        ["log"] => edited(reference::log(64 << 20, 3)),
        ["sql"] => edited(sql(64 << 20, 3)),
        ["image", file, share] => image(file, share.parse::<usize>()?.max(1))?,
        _ => {
            let mut all = Vec::new();
            for name in names {
                gather(Path::new(name), &mut all)?;
            }
            all
        }
    };
    if by_key {
        println!("{}", args.join(" "));
        keys(&data);
        return Ok(());
    }
    let secret = key(0);
    let streams: Vec<Stream> = data.into_iter().map(|d| Stream::new(d, &secret)).collect();
    let total: usize = streams.iter().map(|s| s.data.len()).sum();
    println!("{}: {} streams, {} MiB", args.join(" "), streams.len(), total >> 20);
    for normal in [14, 15, 16, 17].map(|b| 1usize << b) {
        for level in [0, 1, 2, 3] {
            row(&streams, normal, level, 4, 4);
        }
        for (below, above) in [(64, 4), (8, 4), (2, 4), (1, 4), (4, 2), (4, 8)] {
            row(&streams, normal, 2, below, above);
        }
    }
    Ok(())
}
