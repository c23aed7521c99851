//! Secrets of a home: created once from the kernel's random numbers, in files with mode 0600.

use std::io;
use std::path::Path;

use pinfold_os::fsio::random;

use crate::Durability;
use crate::layout::{Home, replace_file};

/// Size of a new webhook secret in bytes.
pub const SECRET_BYTES: usize = 32;

/// The secret in this file: 32 hex digits. A missing or damaged file is replaced by a new secret; what was derived from
/// the old one is then no longer recognized.
pub fn open_secret(path: &Path) -> io::Result<u128> {
    let known = match std::fs::read_to_string(path) {
        Ok(text) => parse(text.trim_end()),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::InvalidData) => None,
        Err(error) => return Err(error),
    };
    if let Some(secret) = known {
        return Ok(secret);
    }
    let secret = u128::from_le_bytes(random()?);
    replace_file(path, format!("{secret:032x}\n").as_bytes(), Durability::Power)?;
    Ok(secret)
}

fn parse(text: &str) -> Option<u128> {
    let digits = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u128::from_str_radix(text, 16).ok().filter(|_| digits)
}

/// The secret that webhooks are signed with. If there is none, `write` encodes random bytes as text, which is stored.
/// Unlike [`open_secret`] it never replaces an existing file: the receivers know the secret too.
pub fn read_or_make(home: &Home, write: impl FnOnce(&[u8; SECRET_BYTES]) -> String) -> io::Result<String> {
    let path = home.webhook_key();
    match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        read => return read,
    }
    let text = write(&random()?);
    replace_file(&path, format!("{text}\n").as_bytes(), Durability::Power)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, mode_of};

    #[test]
    fn a_secret_stays_is_private_and_differs_between_homes() {
        let (one, other) = (Scratch::home(), Scratch::home());
        let secret = open_secret(&one.coder_key()).expect("a secret");
        assert_eq!(open_secret(&one.coder_key()).expect("again"), secret);
        assert_eq!(mode_of(&one.coder_key()), 0o600);
        assert_ne!(open_secret(&other.coder_key()).expect("another"), secret);
    }

    #[test]
    fn a_damaged_secret_is_replaced() {
        let home = Scratch::home();
        let secret = open_secret(&home.coder_key()).expect("a secret");
        for content in [&b"0123"[..], b"", b"+0123456789abcdef0123456789abcde", b"\xff\xfe"] {
            std::fs::write(home.coder_key(), content).expect("written");
            let fresh = open_secret(&home.coder_key()).expect("a new one");
            assert_ne!(fresh, secret);
            assert_eq!(open_secret(&home.coder_key()).expect("again"), fresh);
        }
    }

    #[test]
    fn the_webhooks_secret_is_made_once_and_nobody_else_can_read_it() {
        let home = Scratch::home();
        let made = read_or_make(&home, |bytes| format!("{bytes:?}")).expect("made");
        assert_eq!(mode_of(&home.webhook_key()), 0o600);
        let again = read_or_make(&home, |_| panic!("there is one")).expect("read");
        assert_eq!(again.trim_end(), made);
        std::fs::remove_file(home.webhook_key()).expect("removed");
        assert_ne!(read_or_make(&home, |bytes| format!("{bytes:?}")).expect("made"), made);
    }
}
