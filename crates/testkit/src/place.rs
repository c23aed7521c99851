//! Programs that a test puts somewhere to have them executed.
//!
//! A file that somebody has open for writing cannot be executed, and a descriptor of ours is for a moment also that of
//! whatever another test forks meanwhile. So another program writes them.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Puts a program there under another name: as a link where that can be, else as a copy.
pub fn place_program(program: &Path, at: &Path) {
    if std::fs::hard_link(program, at).is_err() {
        place_copy(program, at);
    }
}

/// Puts a copy there, which may be changed.
pub fn place_copy(program: &Path, at: &Path) {
    let copied = Command::new("cp").arg(program).arg(at).stdin(Stdio::null()).status();
    assert!(copied.expect("cp").success(), "{} cannot be copied to {}", program.display(), at.display());
}

/// Puts a program of this text there.
pub fn place_text(text: &[u8], at: &Path) {
    let mut writer = Command::new("sh");
    writer.args(["-c", "cat > \"$0\" && chmod 755 \"$0\""]).arg(at).stdin(Stdio::piped());
    let mut writer = writer.spawn().expect("sh");
    writer.stdin.take().expect("its stdin").write_all(text).expect("it reads");
    assert!(writer.wait().expect("sh").success(), "{} cannot be written", at.display());
}
