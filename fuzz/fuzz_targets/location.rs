//! Fuzzes where a repository is, and names of objects.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    drumlin_fuzz::location(bytes);
});
