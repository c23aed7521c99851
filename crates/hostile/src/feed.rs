//! Splits input bytes into the values that a target needs. Missing bytes are zero, so that every input is valid.

/// The remaining bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Feed<'a>(pub(crate) &'a [u8]);

impl<'a> Feed<'a> {
    pub(crate) fn byte(&mut self) -> u8 {
        self.array::<1>()[0]
    }

    /// A number below 65536.
    pub(crate) fn small(&mut self) -> usize {
        u16::from_le_bytes(self.array()).into()
    }

    pub(crate) fn long(&mut self) -> u64 {
        u64::from_le_bytes(self.array())
    }

    /// At most this many bytes; fewer if fewer remain.
    pub(crate) fn bytes(&mut self, max: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(max.min(self.0.len()));
        self.0 = rest;
        taken
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut array = [0; N];
        let taken = self.bytes(N);
        array[..taken.len()].copy_from_slice(taken);
        array
    }
}

/// The bytes as text; invalid UTF-8 is replaced.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
