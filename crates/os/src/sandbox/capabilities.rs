//! The capabilities of a sandboxed program: for root, those that file permissions and switching users need.
//!
//! Landlock and seccomp do not stop everything that root may do, such as changing the network or reading raw devices.
//! With `no_new_privs` exec does not give a capability back.

use std::io;

/// chown, dac_override, dac_read_search, fowner, fsetid, kill, setgid, setuid and net_bind_service.
const KEPT: u64 = 0b1111_1111 | 1 << 10;
/// `_LINUX_CAPABILITY_VERSION_3`: two words of 32 bits for each set.
const VERSION: u32 = 0x2008_0522;

#[repr(C)]
#[derive(Debug)]
struct Header {
    version: u32,
    pid: i32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct Word {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// The capabilities that a program keeps.
#[derive(Debug)]
pub(super) struct Capabilities {
    words: [Word; 2],
}

/// The capabilities that the calling thread has in effect, by bit.
pub(super) fn effective() -> io::Result<u64> {
    let [low, high] = own()?;
    Ok(u64::from(low.effective) | u64::from(high.effective) << 32)
}

/// The capabilities of the calling thread.
fn own() -> io::Result<[Word; 2]> {
    let header = Header { version: VERSION, pid: 0 };
    let mut words = [Word::default(); 2];
    // SAFETY: the header and two words are what this version reads and writes.
    match unsafe { libc::syscall(libc::SYS_capget, &raw const header, words.as_mut_ptr()) } {
        0 => Ok(words),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Capabilities {
    /// Those of the calling thread, without the ones that are not [`KEPT`].
    pub(super) fn reduced() -> io::Result<Self> {
        let mut words = own()?;
        for (word, kept) in words.iter_mut().zip([KEPT as u32, (KEPT >> 32) as u32]) {
            word.permitted &= kept;
            word.effective &= kept;
            word.inheritable = 0;
        }
        Ok(Self { words })
    }

    /// Gives up all others, in the calling thread.
    pub(super) fn apply(&self) -> bool {
        let header = Header { version: VERSION, pid: 0 };
        // SAFETY: as in `own`; the kernel only reads both.
        unsafe { libc::syscall(libc::SYS_capset, &raw const header, self.words.as_ptr()) == 0 }
    }
}
