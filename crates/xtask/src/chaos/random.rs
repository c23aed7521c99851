//! Random numbers that a seed repeats: SplitMix64.

use std::time::Duration;

#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    /// A generator for one purpose: threads do not influence each other's numbers.
    pub(super) fn new(seed: u64, purpose: u64) -> Self {
        let mut dice = Self(seed ^ purpose.wrapping_mul(0xd6e8_feb8_6659_fd93));
        dice.roll();
        dice
    }

    pub(super) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `from..to`.
    pub(super) fn between(&mut self, from: u64, to: u64) -> u64 {
        from + self.roll() % (to - from).max(1)
    }

    /// A duration in this range of milliseconds.
    pub(super) fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(self.between(from, to))
    }

    /// One of these; `None` if there are none.
    pub(super) fn pick<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        let place = self.roll() as usize % among.len().max(1);
        among.get(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_decisions_and_another_makes_others() {
        let rolls = |seed, purpose| {
            let mut dice = Dice::new(seed, purpose);
            (0..50).map(|_| dice.between(10, 20)).collect::<Vec<_>>()
        };
        assert_eq!(rolls(7, 1), rolls(7, 1));
        assert_ne!(rolls(7, 1), rolls(8, 1));
        assert_ne!(rolls(7, 1), rolls(7, 2));
        assert!(rolls(7, 1).iter().all(|roll| (10..20).contains(roll)));
        assert_eq!(Dice::new(1, 1).pick::<u8>(&[]), None);
    }
}
