//! The ids that coder's clients see: UUIDs, made from pinfold's ids and read back, without a table.
//!
//! A UUID of version 4 has 122 free bits: a tag of 60, and the 62 of the id's code under a mask that the tag gives.
//! Both depend on the home's secret, so that the UUID of a process cannot be guessed and does not reveal its id; and
//! they are the same after every restart of the daemon.

use pinfold_model::id::ProcessId;
use sha2::{Digest, Sha256};

const TAG_BITS: u32 = 60;
const CODE_MASK: u64 = (1 << ProcessId::CODE_BITS) - 1;

/// Version 4 and variant 1, in their places.
const FIXED: u128 = 4 << 76 | 2 << 62;
const FIXED_MASK: u128 = 0xf << 76 | 3 << 62;

/// Converts ids to UUIDs and back.
#[derive(Clone)]
pub(super) struct Ids {
    secret: u128,
}

impl std::fmt::Debug for Ids {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Ids")
    }
}

impl Ids {
    pub(super) fn new(secret: u128) -> Self {
        Self { secret }
    }

    /// The secret, for other hashes of this home.
    pub(super) fn secret(&self) -> u128 {
        self.secret
    }

    /// The UUID of a process.
    pub(super) fn render(&self, id: &ProcessId) -> String {
        let code = id.code();
        let tag = self.tag(code);
        let hidden = code ^ self.mask(tag);
        // The tag has the 60 bits around the version, the code the 62 after the variant.
        let bits = u128::from(tag >> 12) << 80 | u128::from(tag & 0xfff) << 64 | u128::from(hidden);
        render_uuid(bits | FIXED)
    }

    /// The process with this UUID; `None` for a UUID that was not made from an id of this home.
    pub(super) fn parse(&self, text: &str) -> Option<ProcessId> {
        let bits = parse_plain(text).filter(|bits| bits & FIXED_MASK == FIXED && render_uuid(*bits) == text)?;
        let tag = ((bits >> 80) as u64) << 12 | (bits >> 64) as u64 & 0xfff;
        let code = bits as u64 & CODE_MASK ^ self.mask(tag);
        (self.tag(code) == tag).then(|| ProcessId::from_code(code)).flatten()
    }

    fn tag(&self, code: u64) -> u64 {
        self.keyed(b't', code) >> (u64::BITS - TAG_BITS)
    }

    fn mask(&self, tag: u64) -> u64 {
        self.keyed(b'm', tag) & CODE_MASK
    }

    /// A keyed hash: all of its input has one length, so that none is the beginning of another.
    fn keyed(&self, purpose: u8, value: u64) -> u64 {
        let hash = Sha256::new().chain_update(self.secret.to_be_bytes()).chain_update([purpose]);
        let hash = hash.chain_update(value.to_be_bytes()).finalize();
        hash.iter().take(8).fold(0, |sum, byte| sum << 8 | u64::from(*byte))
    }
}

/// Parses a UUID in every form that coder accepts: with hyphens, after `urn:uuid:`, in braces, or as 32 digits.
pub(super) fn parse_uuid(text: &str) -> Option<u128> {
    let urn = "urn:uuid:";
    match text.len() {
        32 => parse_hex(text),
        45 if text.is_char_boundary(9) && text[..9].eq_ignore_ascii_case(urn) => parse_plain(&text[9..]),
        38 => parse_plain(text.strip_prefix('{')?.strip_suffix('}')?),
        _ => parse_plain(text),
    }
}

/// 8, 4, 4, 4 and 12 digits.
fn parse_plain(text: &str) -> Option<u128> {
    let hyphens = text.len() == 36 && text.bytes().enumerate().all(|(at, byte)| (byte == b'-') == is_hyphen(at));
    if hyphens { parse_hex(&text.replace('-', "")) } else { None }
}

fn is_hyphen(at: usize) -> bool {
    matches!(at, 8 | 13 | 18 | 23)
}

fn parse_hex(text: &str) -> Option<u128> {
    let digits = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| digits)
}

/// The canonical text: lower case, with hyphens.
pub(super) fn render_uuid(bits: u128) -> String {
    let digits = format!("{bits:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_ids() -> impl Iterator<Item = ProcessId> {
        let numbers = (0..200).chain([1 << 30, 1 << 41, (1 << 50) + 7, (1 << 60) - 1]);
        numbers.map(|number| ProcessId::from_number(number, 9))
    }

    #[test]
    fn ids_go_there_and_back_and_look_like_version_4() {
        let ids = Ids::new(0x0123_4567_89ab_cdef);
        for id in some_ids() {
            let uuid = ids.render(&id);
            assert_eq!(ids.parse(&uuid), Some(id));
            assert!(uuid.as_bytes()[14] == b'4' && b"89ab".contains(&uuid.as_bytes()[19]), "{uuid}");
        }
    }

    #[test]
    fn only_the_very_text_that_was_given_out_is_taken() {
        let (ids, other) = (Ids::new(1), Ids::new(2));
        for id in some_ids().take(20) {
            let uuid = ids.render(&id);
            assert_eq!(other.parse(&uuid), None, "another home's");
            assert_eq!(ids.parse(&uuid.to_uppercase()), None, "{uuid}");
            for at in (0..36).filter(|at| !is_hyphen(*at)) {
                let mut changed = uuid.clone().into_bytes();
                changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
                assert_eq!(ids.parse(std::str::from_utf8(&changed).expect("ASCII")), None, "{uuid} at {at}");
            }
        }
        for text in ["", "k3v9x2", "00000000-0000-4000-8000-000000000000", "☃☃☃☃☃☃☃☃☃☃☃☃"] {
            assert_eq!(ids.parse(text), None, "{text}");
        }
    }

    #[test]
    fn uuids_are_taken_in_four_forms_and_nothing_else_is() {
        let plain = "6ba7b810-9dad-11d1-80b4-00c04fd430c8";
        let bits = parse_uuid(plain).expect("a UUID");
        assert_eq!(render_uuid(bits), plain);
        let short = plain.replace('-', "");
        for text in [format!("urn:uuid:{plain}"), format!("{{{plain}}}"), short.clone(), plain.to_uppercase()] {
            assert_eq!(parse_uuid(&text), Some(bits), "{text}");
        }
        let bad = [
            "",
            "not-a-uuid",
            &plain[1..],
            &format!("({plain})"),
            &format!("+{}", &short[1..]),
            "☃".repeat(15).as_str(),
        ]
        .map(str::to_owned);
        for text in bad {
            assert_eq!(parse_uuid(&text), None, "{text}");
        }
    }
}
