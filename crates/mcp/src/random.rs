//! Names that nobody can guess.

use std::fmt::Write as _;
use std::io::Read;

/// So many random bytes, as hexadecimal digits.
pub(crate) fn hex(bytes: usize) -> String {
    let mut random = vec![0; bytes];
    // There is no Linux without it; should it fail, the mark of a fence is only easier to guess.
    let _ = std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random));
    random.iter().fold(String::with_capacity(bytes * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
