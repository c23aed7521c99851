//! Process ids: short, never reused, and found by any unambiguous prefix.
//!
//! An id is a counter run through a keyed permutation: ids look random, so prefixes differ early, and cannot repeat,
//! because the store never reuses a counter value.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Digits and letters without `i l o u`, so that an id can be read aloud and typed.
const ALPHABET: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Characters of an id while the counter is below 2^30; later ids grow by two characters at a time.
const MIN_CHARS: u32 = 6;
const MAX_CHARS: u32 = 12;
/// Four rounds make a Feistel network shuffle well; it need not be secret.
const ROUNDS: u64 = 4;

/// The id of a process; never reused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct ProcessId(String);

/// Why a text is not a process id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a process id: ids are 6 to 12 characters of 0-9 and a-z")]
pub struct BadId(String);

impl ProcessId {
    /// Bits of [`Self::code`].
    pub const CODE_BITS: u32 = 5 * MAX_CHARS + 2;

    /// The id with this number under this seed. Different numbers give different ids.
    pub fn from_number(number: u64, seed: u64) -> Self {
        let mut chars = MIN_CHARS;
        while chars < MAX_CHARS && number >> (5 * chars) != 0 {
            chars += 2;
        }
        let shuffled = permute(number, seed, 5 * chars);
        let digit = |index: u32| ALPHABET[(shuffled >> (5 * index)) as usize & 31] as char;
        Self((0..chars).rev().map(digit).collect())
    }

    /// The id as a number below 2^[`Self::CODE_BITS`], from its characters and length.
    pub fn code(&self) -> u64 {
        let length = (self.0.len() as u64).saturating_sub(u64::from(MIN_CHARS)) / 2;
        length << (5 * MAX_CHARS) | self.0.bytes().fold(0, |sum, byte| sum << 5 | digit_value(byte).unwrap_or(0))
    }

    /// The id with this code, if there is one.
    pub fn from_code(code: u64) -> Option<Self> {
        let chars = MIN_CHARS + 2 * u32::try_from(code >> (5 * MAX_CHARS)).ok()?;
        let value = code & ((1 << (5 * MAX_CHARS)) - 1);
        if chars > MAX_CHARS || value.checked_shr(5 * chars).is_some_and(|rest| rest != 0) {
            return None;
        }
        let digit = |index: u32| ALPHABET[(value >> (5 * index)) as usize & 31] as char;
        Some(Self((0..chars).rev().map(digit).collect()))
    }

    /// Parses a complete id.
    pub fn parse(text: &str) -> Result<Self, BadId> {
        let fits = (MIN_CHARS..=MAX_CHARS).contains(&(text.len() as u32)) && text.len().is_multiple_of(2);
        if fits && is_prefix(text) { Ok(Self(text.to_owned())) } else { Err(BadId(text.chars().take(40).collect())) }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether the text could be a prefix of an id.
pub fn is_prefix(text: &str) -> bool {
    !text.is_empty() && text.len() <= MAX_CHARS as usize && text.bytes().all(|byte| digit_value(byte).is_some())
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for ProcessId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

fn digit_value(byte: u8) -> Option<u64> {
    ALPHABET.iter().position(|&digit| digit == byte).map(|index| index as u64)
}

/// The round function (splitmix64's finaliser).
fn scramble(half: u64, seed: u64, round: u64) -> u64 {
    let mut value = half ^ seed.rotate_left(round as u32 * 16) ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

/// A Feistel network over an even number of bits: a bijection for any round function.
fn permute(number: u64, seed: u64, bits: u32) -> u64 {
    let (half, mask) = (bits / 2, (1 << (bits / 2)) - 1);
    let (mut left, mut right) = (number >> half & mask, number & mask);
    for round in 0..ROUNDS {
        (left, right) = (right, left ^ scramble(right, seed, round) & mask);
    }
    left << half | right
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    /// The number from which an id was made.
    fn number_of(id: &ProcessId, seed: u64) -> u64 {
        let value = id.0.bytes().fold(0, |sum, byte| sum << 5 | digit_value(byte).unwrap_or(0));
        unpermute(value, seed, 5 * id.0.len() as u32)
    }

    /// The inverse of [`permute`].
    fn unpermute(value: u64, seed: u64, bits: u32) -> u64 {
        let (half, mask) = (bits / 2, (1 << (bits / 2)) - 1);
        let (mut left, mut right) = (value >> half & mask, value & mask);
        for round in (0..ROUNDS).rev() {
            (left, right) = (right ^ scramble(left, seed, round) & mask, left);
        }
        left << half | right
    }

    #[test]
    fn consecutive_numbers_give_different_ids() {
        let ids: HashSet<_> = (0..20_000).map(|number| ProcessId::from_number(number, 7)).collect();
        assert_eq!(ids.len(), 20_000);
        assert!(ids.iter().all(|id| id.as_str().len() == 6));
    }

    #[test]
    fn ids_get_longer_when_the_counter_needs_it() {
        assert_eq!(ProcessId::from_number(1 << 30, 7).as_str().len(), 8);
        assert_eq!(ProcessId::from_number((1 << 30) - 1, 7).as_str().len(), 6);
    }

    #[test]
    fn invalid_ids_are_refused() {
        for text in ["", "abc", "../../etc", "ABCDEF", "abcdeu", "abcdefg", "0123456789abcd", "ab/def", "☃☃"] {
            assert!(ProcessId::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_invalid_code_gives_no_id() {
        assert_eq!(ProcessId::from_code(0).map(|id| id.as_str().to_owned()).as_deref(), Some("000000"));
        for code in [1 << 30, (1 << 60) | (1 << 40), 4 << 60, u64::MAX] {
            assert_eq!(ProcessId::from_code(code), None, "{code}");
        }
    }

    proptest! {
        #[test]
        fn number_and_id_are_one_to_one(number in 0u64..1 << 50, seed: u64) {
            let id = ProcessId::from_number(number, seed);
            prop_assert_eq!(number_of(&id, seed), number);
            prop_assert!(id.code() >> ProcessId::CODE_BITS == 0);
            prop_assert_eq!(ProcessId::from_code(id.code()), Some(id.clone()));
            prop_assert_eq!(ProcessId::parse(id.as_str()), Ok(id));
        }
    }
}
