//! Fuzzes `targets::band`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    drumlin_fuzz::targets::band(bytes);
});
