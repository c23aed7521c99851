//! Bytes taken apart into what a target needs. What is missing is zero, so that every input is one.

/// The bytes that are left.
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

    /// So many bytes, or those that are left.
    pub(crate) fn bytes(&mut self, most: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(most.min(self.0.len()));
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

/// Text as it is, or what is left of it.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
