//! What an agent sends by its WebSocket, in a file of its own: appended here, and read from there like the stdout of
//! another agent.
//!
//! Bound: the latest [`KEPT`] bytes. What is older is given back to the file system as a hole, so that places in the file
//! stay what they are; whoever reads there is taken to the first whole message after it, and told of the gap.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use pinfold_os::fsio;

/// Bytes that are kept, several of the longest messages.
const KEPT: u64 = 64 << 20;
/// What is given back at a time.
const STEP: u64 = 16 << 20;

/// A piece of the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// The place of its first byte: further on than was asked for, where that is no longer kept.
    pub(super) at: u64,
    pub(super) bytes: Vec<u8>,
}

/// The first place that is still kept in a file of this length.
fn kept_from(length: u64) -> u64 {
    length.saturating_sub(KEPT) / STEP * STEP
}

/// Appends a message; the length of the file after it.
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

/// At most so many bytes from this place on.
pub(super) fn read(path: &Path, at: u64, most: usize) -> io::Result<Piece> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Piece { at, bytes: vec![] }),
        Err(error) => return Err(error),
    };
    let kept = kept_from(file.metadata()?.len());
    let at = if at < kept { next_message(&file, kept, most)? } else { at };
    Ok(Piece { at, bytes: read_at(&file, at, most)? })
}

/// The place after the next end of a message, or the end of the file.
fn next_message(file: &File, mut at: u64, most: usize) -> io::Result<u64> {
    loop {
        let bytes = read_at(file, at, most)?;
        match bytes.iter().position(|byte| *byte == b'\n') {
            Some(end) => return Ok(at + end as u64 + 1),
            None if bytes.is_empty() => return Ok(at),
            None => at += bytes.len() as u64,
        }
    }
}

fn read_at(file: &File, at: u64, most: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; most];
    let mut filled = 0;
    while filled < most {
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
        assert!(file.blocks() * 512 <= KEPT + STEP + (4 << 20), "{} blocks", file.blocks());
        let piece = read(&path, 0, 4 << 20).expect("read");
        assert!(piece.at >= kept_from(length) && piece.at.is_multiple_of(message.len() as u64 + 1), "{}", piece.at);
        assert!(piece.bytes.starts_with(message.as_bytes()));
        let latest = read(&path, length - 10, 100).expect("read");
        assert_eq!((latest.at, latest.bytes.len()), (length - 10, 10));
        std::fs::remove_file(path).expect("removed");
    }
}
