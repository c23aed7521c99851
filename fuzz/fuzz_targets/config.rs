//! Fuzz target: passes bytes to the check of the same name in pinfold_hostile (crates/hostile).
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| pinfold_hostile::run("config", bytes));
