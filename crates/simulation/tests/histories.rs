//! A few thousand histories with every `cargo test`; `cargo xtask simulate` runs many more.

use pinfold_simulation::history::{run, trace};

#[test]
fn histories_come_to_a_true_end() {
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(51_000_000);
    if let Err(broken) = run(seed, 500, |_| {}) {
        panic!("seed {}: {}\n{}", broken.seed, broken.what, broken.trace.join("\n"));
    }
}

#[test]
fn a_seed_gives_the_same_history_each_time() {
    for seed in 0..50 {
        assert_eq!(trace(seed), trace(seed), "seed {seed}");
    }
}
