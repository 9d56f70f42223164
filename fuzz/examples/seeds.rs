//! Writes valid inputs to `corpus/<target>/`, to begin with: `cargo run --example seeds` in the folder `fuzz`.

use std::fs;
use std::path::Path;

fn main() -> std::io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let put = |target: &str, number: usize, bytes: &[u8]| {
        fs::create_dir_all(corpus.join(target))?;
        fs::write(corpus.join(target).join(format!("seed-{number:02}")), bytes)
    };
    for target in &drumlin_fuzz::targets::ALL {
        for (number, sample) in (target.samples)().iter().enumerate() {
            put(target.name, number, sample)?;
        }
    }
    let locations = ["/srv/repo", "./a:b", "file:///srv/a%20b", "sftp://me:secret@host:22/x", "u@h:/x", "data/0f/0ff2"];
    for (number, location) in locations.iter().enumerate() {
        put("location", number, location.as_bytes())?;
    }
    for number in 0..4u8 {
        let noise = (0..4000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8);
        let bytes: Vec<u8> = [64, number, 200, number, 4].into_iter().chain(noise).collect();
        put("chunker", number.into(), &bytes)?;
    }
    Ok(())
}
