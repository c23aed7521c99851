//! Random names that cannot be guessed.

use std::fmt::Write as _;
use std::io::Read;

/// Returns this many random bytes as hexadecimal digits.
pub(crate) fn hex(bytes: usize) -> String {
    let mut random = vec![0; bytes];
    // /dev/urandom exists on every Linux. If reading it fails, ids and fence marks are only easier to guess.
    let _ = std::fs::File::open("/dev/urandom").and_then(|mut source| source.read_exact(&mut random));
    random.iter().fold(String::with_capacity(bytes * 2), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
