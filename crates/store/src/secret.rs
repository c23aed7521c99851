//! The secret that webhooks are signed with: made at its first use, kept in one file that only its owner can read.

use std::io;

use pinfold_os::fsio::random;

use crate::layout::{Home, replace_file};

/// Bytes of a secret that is made here.
pub const SECRET_BYTES: usize = 32;

/// The text of the file; if there is none, the text that `write` makes of random bytes is put there first.
pub fn read_or_make(home: &Home, write: impl FnOnce(&[u8; SECRET_BYTES]) -> String) -> io::Result<String> {
    let path = home.webhook_key();
    match std::fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        found => return found,
    }
    let text = write(&random()?);
    replace_file(&path, format!("{text}\n").as_bytes())?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, mode_of};

    #[test]
    fn a_secret_is_made_once_and_nobody_else_can_read_it() {
        let home = Scratch::home();
        let made = read_or_make(&home, |bytes| format!("{bytes:?}")).expect("made");
        assert_eq!(mode_of(&home.webhook_key()), 0o600);
        let again = read_or_make(&home, |_| panic!("there is one")).expect("read");
        assert_eq!(again.trim_end(), made);
        std::fs::remove_file(home.webhook_key()).expect("removed");
        assert_ne!(read_or_make(&home, |bytes| format!("{bytes:?}")).expect("made"), made);
    }
}
