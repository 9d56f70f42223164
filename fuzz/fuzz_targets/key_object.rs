//! Fuzzes `targets::key_object`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    drumlin_fuzz::targets::key_object(bytes);
});
