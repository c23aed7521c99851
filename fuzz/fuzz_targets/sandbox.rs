//! Looks for bytes that break the target of this name.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pinfold_hostile::run("sandbox", bytes));
