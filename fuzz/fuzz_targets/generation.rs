//! Fuzzes `targets::generation`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    drumlin_fuzz::targets::generation(bytes);
});
