//! Fuzzes cuts on every processor.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    drumlin_fuzz::chunker(bytes);
});
