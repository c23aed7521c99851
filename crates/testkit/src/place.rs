//! Puts executable files at a path.
//!
//! A file that is open for writing cannot be executed (ETXTBSY), and if another test forks while we write, its child has
//! our descriptor until it calls exec. So another program writes the files.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Puts a program at the path: as a hard link if possible, otherwise as a copy.
pub fn place_program(program: &Path, at: &Path) {
    if std::fs::hard_link(program, at).is_err() {
        place_copy(program, at);
    }
}

/// Puts a copy of a program at the path; the copy may be changed.
pub fn place_copy(program: &Path, at: &Path) {
    let copied = Command::new("cp").arg(program).arg(at).stdin(Stdio::null()).status();
    assert!(copied.expect("cp").success(), "{} cannot be copied to {}", program.display(), at.display());
}

/// Writes an executable file with this content.
pub fn place_text(text: &[u8], at: &Path) {
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(at).stdin(Stdio::piped());
    let mut writer = writer.spawn().expect("sh");
    writer.stdin.take().expect("its stdin").write_all(text).expect("it reads");
    assert!(writer.wait().expect("sh").success(), "{} cannot be written", at.display());
}
