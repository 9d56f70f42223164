//! Fuzzes `targets::index`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    drumlin_fuzz::targets::index(bytes);
});
