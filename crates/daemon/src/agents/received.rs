//! The messages that an agent sent over its WebSocket, in a file that is read like the stdout of another agent.
//!
//! Bound: the latest [`MAX_KEPT`] bytes. Older ones are replaced by a hole in the file, so that offsets do not change. A
//! reader of the hole gets the first complete message after it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use pinfold_os::fsio;

/// Bytes that are kept: several messages of the maximum length.
const MAX_KEPT: u64 = 64 << 20;
/// The size by which the hole grows.
const STEP: u64 = 16 << 20;

/// A part of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The offset of its first byte: later than requested if that was dropped.
    pub(super) at: u64,
    pub(super) bytes: Vec<u8>,
}

/// The first offset that is still kept in a file of this length.
fn kept_from(length: u64) -> u64 {
    length.saturating_sub(MAX_KEPT) / STEP * STEP
}

/// Appends a message; returns the new length of the file.
pub(super) fn append(path: &Path, text: &str) -> io::Result<u64> {
    let mut file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
    let before = file.metadata()?.len();
    let whole = if text.ends_with('\n') { text.to_owned() } else { format!("{text}\n") };
    file.write_all(whole.as_bytes())?;
    let length = before + whole.len() as u64;
    if kept_from(length) > kept_from(before) {
        fsio::punch_hole(&file, kept_from(before)..kept_from(length))?;
    }
    Ok(length)
}

/// Reads at most `max` bytes from this offset on.
pub(super) fn read(path: &Path, at: u64, max: usize) -> io::Result<Piece> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Piece { at, bytes: vec![] }),
        Err(error) => return Err(error),
    };
    let kept = kept_from(file.metadata()?.len());
    let at = if at < kept { next_message(&file, kept, max)? } else { at };
    Ok(Piece { at, bytes: read_at(&file, at, max)? })
}

/// The offset after the next end of a message, or the end of the file.
fn next_message(file: &File, mut at: u64, max: usize) -> io::Result<u64> {
    loop {
        let bytes = read_at(file, at, max)?;
        match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => return Ok(at + end as u64 + 1),
            None if bytes.is_empty() => return Ok(at),
            None => at += bytes.len() as u64,
        }
    }
}

fn read_at(file: &File, at: u64, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; max];
    let mut filled = 0;
    while filled < max {
        match file.read_at(&mut bytes[filled..], at + filled as u64)? {
            0 => break,
            count => filled += count,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_latest_bytes_are_kept_and_the_rest_takes_no_room() {
        let path = std::env::temp_dir().join(format!("pinfold-stream-{}", std::process::id()));
        let message = format!("{{\"text\":\"{}\"}}", "x".repeat(3 << 20));
        let mut length = 0;
        for _ in 0..40 {
            length = append(&path, &message).expect("written");
        }
        let file = std::fs::metadata(&path).expect("a file");
        assert_eq!((length, file.len()), (40 * (message.len() as u64 + 1), length));
        assert!(file.blocks() * 512 <= MAX_KEPT + STEP + (4 << 20), "{} blocks", file.blocks());
        let piece = read(&path, 0, 4 << 20).expect("read");
        assert!(piece.at >= kept_from(length) && piece.at.is_multiple_of(message.len() as u64 + 1), "{}", piece.at);
        assert!(piece.bytes.starts_with(message.as_bytes()));
        let latest = read(&path, length - 10, 100).expect("read");
        assert_eq!((latest.at, latest.bytes.len()), (length - 10, 10));
        std::fs::remove_file(path).expect("removed");
    }
}
