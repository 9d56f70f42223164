//! Random numbers that a seed repeats exactly, on every machine and in every version.

/// The SplitMix64 generator (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The sequence of that seed.
    pub fn new(seed: u64) -> Self {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 if `bound` is 0. The slight bias does not matter to tests.
    pub fn below(&mut self, bound: usize) -> usize {
        if bound == 0 { 0 } else { (self.u64() % bound as u64) as usize }
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of the items; `None` if there are none.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len()))
    }

    /// That many random bytes: incompressible.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(len + 8);
        while out.len() < len {
            out.extend_from_slice(&self.u64().to_le_bytes());
        }
        out.truncate(len);
        out
    }

    /// That many bytes of something like text: compressible, and seldom the same twice.
    pub fn text(&mut self, len: usize) -> Vec<u8> {
        const WORDS: [&str; 16] = [
            "drift", "till", "ice", "esker", "moraine", "kettle", "clay", "gravel", "stone", "melt", "lobe", "valley",
            "ridge", "boulder", "sand", "water",
        ];
        let mut out = Vec::with_capacity(len + 16);
        while out.len() < len {
            out.extend_from_slice(WORDS[self.below(WORDS.len())].as_bytes());
            out.push(if self.one_in(9) { b'\n' } else { b' ' });
        }
        out.truncate(len);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_sequence() {
        let mut rng = Rng::new(1_234_567);
        assert_eq!(rng.u64(), 6_457_827_717_110_365_317);
        assert_eq!(rng.u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn lengths_and_bounds() {
        let mut rng = Rng::new(1);
        assert!((0..1000).all(|_| rng.below(7) < 7));
        assert_eq!((rng.bytes(13).len(), rng.text(1001).len(), rng.below(0)), (13, 1001, 0));
        assert_eq!(rng.pick::<u8>(&[]), None);
    }
}
