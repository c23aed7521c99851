//! A few thousand histories with every `cargo test`; `cargo xtask simulate` runs many more.

use pinfold_simulation::history::{run, trace};

#[test]
fn histories_pass_without_a_violation() {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(51_000_000);
    if let Err(failed) = run(seed, 500, |_| {}) {
        panic!("seed {}: {}\n{}", failed.seed, failed.what, failed.trace.join("\n"));
    }
}

#[test]
fn a_seed_gives_the_same_history_every_time() {
    for seed in 0..50 {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
    }
}
