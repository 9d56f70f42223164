//! What the fuzz targets call. Those of the format are the ones that `crates/format/tests/hostile` runs on every
//! toolchain.

use drumlin_chunk::{Chunker, Params, Path, WINDOW};
use drumlin_store::{Location, name};

#[path = "../../crates/format/tests/hostile/targets/mod.rs"]
pub mod targets;

/// Here libFuzzer watches the memory: see the README.
pub mod memory {
    /// The result of `f`.
    pub fn bounded<T>(_most: usize, f: impl FnOnce() -> T) -> T {
        f()
    }
}

/// Three sizes, a byte of the secret, how often the rest is repeated, and the rest.
pub fn chunker(bytes: &[u8]) {
    let Some(([min, normal, max, secret, times], data)) = bytes.split_first_chunk::<5>() else { return };
    let normal = 1u32 << (12 + normal % 4);
    let (min, max) = (u32::from(*min) * normal / 256, normal.saturating_add(u32::from(*max) * 97));
    let Ok(params) = Params::new(min, normal, max) else {
        assert!((min as usize) < WINDOW);
        return;
    };
    let data = data.repeat(usize::from(*times) + 1);
    let portable = Chunker::with_path(&[*secret; 32], params, Path::Portable).expect("every processor has it");
    let lens: Vec<usize> = portable.chunks(&data).map(<[u8]>::len).collect();
    assert_eq!(lens.iter().sum::<usize>(), data.len());
    assert!(lens.iter().all(|len| *len <= max as usize));
    assert!(lens.iter().rev().skip(1).all(|len| *len >= min as usize));
    for chunker in Path::ALL.into_iter().filter_map(|path| Chunker::with_path(&[*secret; 32], params, path)) {
        let same = chunker.chunks(&data).map(<[u8]>::len).eq(lens.iter().copied());
        assert!(same, "{:?} cuts otherwise", chunker.path());
    }
}

/// A location as a user writes it, and the same as the name of an object.
pub fn location(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match Location::parse(text) {
        Ok(location) => assert_ne!(location, Location::Local("".into())),
        Err(e) => assert!(!e.to_string().is_empty()),
    }
    assert_eq!(Location::parse(&format!("./{text}")), Ok(Location::Local(format!("./{text}").into())));
    if name::is_name(text) {
        assert!(!text.is_empty() && text.is_ascii() && !text.starts_with(['/', '.']) && !text.contains("/."));
        assert!(!text.ends_with('/') && !text.contains("//") && !text.contains('\0') && !text.starts_with("tmp/"));
    }
}
