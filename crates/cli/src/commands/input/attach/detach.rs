//! Finds the detach keys in what is typed.

/// Typed bytes without the detach keys.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Typed {
    Bytes(Vec<u8>),
    Detach,
}

/// The key sequence, and how much of it has been typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DetachKeys {
    keys: Vec<u8>,
    typed: usize,
}

impl DetachKeys {
    /// The default: ctrl+p ctrl+q.
    pub(crate) fn usual() -> Self {
        Self { keys: vec![0x10, 0x11], typed: 0 }
    }

    /// Parses `ctrl+p,ctrl+q`, `ctrl+]` or `~,.`; empty for none.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let keys = text.split(',').filter(|key| !key.is_empty());
        Ok(Self { keys: keys.map(parse_key).collect::<Result<_, _>>()?, typed: 0 })
    }

    /// Filters typed bytes. A partial key sequence is held back until the next byte decides.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Typed {
        let mut passed = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            if self.keys.get(self.typed) == Some(&byte) {
                self.typed += 1;
                if self.typed == self.keys.len() {
                    return Typed::Detach;
                }
                continue;
            }
            passed.extend(&self.keys[..self.typed]);
            // Not the sequence: pass on what was held back. This byte may start the sequence again.
            self.typed = usize::from(self.keys.len() > 1 && self.keys.first() == Some(&byte));
            if self.typed == 0 {
                passed.push(byte);
            }
        }
        Typed::Bytes(passed)
    }
}

fn parse_key(key: &str) -> Result<u8, String> {
    let lower = key.to_ascii_lowercase();
    let letter = lower.strip_prefix("ctrl+").or_else(|| lower.strip_prefix("ctrl-"));
    match (letter.map(str::as_bytes), key.as_bytes()) {
        (Some([letter @ (b'a'..=b'z' | b'@' | b'['..=b'_')]), _) => Ok(letter.to_ascii_uppercase() & 0x1f),
        (None, [byte @ 0x20..=0x7e]) => Ok(*byte),
        _ => Err(format!(
            "`{key}` cannot be a detach key: use one character, or ctrl+ and a letter, such as ctrl+p,ctrl+q"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(typed: Typed) -> Vec<u8> {
        match typed {
            Typed::Bytes(bytes) => bytes,
            Typed::Detach => panic!("left"),
        }
    }

    #[test]
    fn the_sequence_is_found_wherever_it_is_cut() {
        let keys = DetachKeys::parse("ctrl+p,ctrl+q").expect("keys");
        assert_eq!(keys.clone().take(b"ls\r\x10\x11more"), Typed::Detach);
        let mut cut = keys.clone();
        assert_eq!(passed(cut.take(b"a\x10")), b"a");
        assert_eq!(cut.take(b"\x11"), Typed::Detach);
        let mut other = keys.clone();
        assert_eq!(passed(other.take(b"\x10")), b"");
        assert_eq!(passed(other.take(b"x")), b"\x10x");
        let mut twice = keys;
        assert_eq!(passed(twice.take(b"\x10\x10")), b"\x10");
        assert_eq!(twice.take(b"\x11"), Typed::Detach);
    }

    #[test]
    fn without_keys_everything_passes() {
        let mut none = DetachKeys::parse("").expect("none");
        assert_eq!(passed(none.take(b"\x10\x11\0")), b"\x10\x11\0");
        assert_eq!(DetachKeys::parse("ctrl+]").expect("one").take(b"\x1d"), Typed::Detach);
        for bad in ["ctrl+", "ctrl+ö", "enter", "ctrl+p,xx"] {
            assert!(DetachKeys::parse(bad).is_err(), "{bad}");
        }
    }
}
