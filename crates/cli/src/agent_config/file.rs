//! A configuration file read and replaced whole: never half written, never under another's feet.
//!
//! A symbolic link stays one, and what it points to is replaced. Mode and owner stay as they were. If somebody else
//! wrote the file since it was read, it is read again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use super::{Change, Refusal, Scope};
use crate::failure::Failure;

/// How often a file is read again that changes all the time.
const TRIES: usize = 5;
/// What some editors put before UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// What an edit makes of a text: another one, or nothing at all, and then the file goes.
pub(crate) type Edited = (Option<String>, Change);

/// Reads, edits and writes. A file that is missing reads as an empty text.
pub(crate) fn edit(
    path: &Path,
    scope: Scope,
    edit: impl Fn(&str) -> Result<Edited, Refusal>,
) -> Result<Change, Failure> {
    let target = resolve(path).map_err(|error| trouble(path, &error))?;
    for _ in 0..TRIES {
        let before = read(&target).map_err(|error| trouble(path, &error))?;
        let text = before.as_deref().unwrap_or_default();
        let (mark, text) = text.strip_prefix(BYTE_ORDER_MARK).map_or(("", text), |text| (BYTE_ORDER_MARK, text));
        let (after, change) = edit(text).map_err(|refusal| refused(path, &refusal))?;
        if matches!(change, Change::Unchanged | Change::Absent) {
            return Ok(change);
        }
        let is_link = target != path;
        // What a link points to was put there on purpose, and is emptied rather than removed.
        let after = if is_link { Some(after.unwrap_or_default()) } else { after };
        let after = after.map(|text| format!("{mark}{text}"));
        if commit(&target, scope, before.as_deref(), after.as_deref()).map_err(|error| trouble(path, &error))? {
            return Ok(change);
        }
    }
    Err(Failure::trouble(format!("{}: somebody else keeps writing it: close the agent and try again", path.display())))
}

/// What to tell of a file that was left as it is.
pub(crate) fn refused(path: &Path, refusal: &Refusal) -> Failure {
    let line = refusal.line.map(|line| format!("{line}: ")).unwrap_or_else(|| " ".to_owned());
    Failure::refused(format!("{}:{line}{}; nothing was changed", path.display(), refusal.what))
}

fn trouble(path: &Path, error: &io::Error) -> Failure {
    Failure::trouble(format!("{}: {error}", path.display()))
}

/// The file itself, behind any links; also behind one that points to a file that is not there yet.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    // As many links as the kernel follows.
    for _ in 0..40 {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("a loop of symbolic links"))
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| io::Error::other("not UTF-8; nothing was changed")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Puts the new text in the place of the old one; `false` if that is no longer what is there.
fn commit(path: &Path, scope: Scope, before: Option<&str>, after: Option<&str>) -> io::Result<bool> {
    let Some(after) = after else {
        let is_same = read(path)?.as_deref() == before;
        if is_same {
            fs::remove_file(path)?;
        }
        return Ok(is_same);
    };
    let directory = path.parent().unwrap_or(Path::new("/"));
    fs::create_dir_all(directory)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = directory.join(format!(".{name}.pinfold-{}", std::process::id()));
    let written = write(&temporary, path, scope, after).and_then(|()| {
        let is_same = read(path)?.as_deref() == before;
        if is_same {
            fs::rename(&temporary, path)?;
            File::open(directory)?.sync_all()?;
        }
        Ok(is_same)
    });
    if !matches!(written, Ok(true)) {
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Writes the text to a file that has mode and owner of the one it will replace.
fn write(temporary: &Path, path: &Path, scope: Scope, text: &str) -> io::Result<()> {
    // A user's own configuration may come to hold secrets; a project's is shared.
    let mode = if scope == Scope::User { 0o600 } else { 0o666 };
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(temporary)?;
    if let Ok(old) = fs::metadata(path) {
        let new = file.metadata()?;
        if (old.uid(), old.gid()) != (new.uid(), new.gid()) {
            fchown(&file, Some(old.uid()), Some(old.gid()))?;
        }
        file.set_permissions(PermissionsExt::from_mode(old.mode() & 0o7777))?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory of its own, removed when dropped.
    struct Place(PathBuf);

    impl Place {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("pinfold-file-{}-{name}", std::process::id()));
            fs::create_dir_all(&path).expect("a directory");
            Place(path)
        }
    }

    impl Drop for Place {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn to(text: &str) -> impl Fn(&str) -> Result<Edited, Refusal> {
        move |_| Ok((Some(text.to_owned()), Change::Added))
    }

    #[test]
    fn links_modes_and_marks_stay() {
        let place = Place::new("links");
        let (real, link) = (place.0.join("real"), place.0.join("link"));
        fs::write(&real, "\u{feff}old").expect("written");
        fs::set_permissions(&real, PermissionsExt::from_mode(0o640)).expect("a mode");
        std::os::unix::fs::symlink("real", &link).expect("a link");
        assert_eq!(edit(&link, Scope::User, to("new")).expect("edited"), Change::Added);
        assert!(fs::read_link(&link).is_ok());
        assert_eq!(fs::read_to_string(&real).expect("text"), "\u{feff}new");
        assert_eq!(fs::metadata(&real).expect("a file").mode() & 0o777, 0o640);
        edit(&link, Scope::User, |_| Ok((None, Change::Removed))).expect("edited");
        assert_eq!(fs::read_to_string(&real).expect("still there"), "\u{feff}");
        assert_eq!(fs::read_dir(&place.0).expect("a directory").count(), 2, "nothing is left behind");
    }

    #[test]
    fn a_missing_file_is_made_with_its_directories_and_may_go_again() {
        let place = Place::new("missing");
        let path = place.0.join("a/b/c");
        edit(&path, Scope::User, to("new")).expect("edited");
        assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o777, 0o600);
        edit(&path, Scope::User, |_| Ok((None, Change::Removed))).expect("edited");
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_changes_meanwhile_is_edited_anew() {
        let place = Place::new("race");
        let path = place.0.join("file");
        fs::write(&path, "1").expect("written");
        let meddled = std::cell::Cell::new(false);
        let change = edit(&path, Scope::User, |text| {
            if !meddled.replace(true) {
                fs::write(&path, "2").expect("written");
            }
            Ok((Some(format!("{text}+")), Change::Added))
        });
        assert_eq!(change.expect("edited"), Change::Added);
        assert_eq!(fs::read_to_string(&path).expect("text"), "2+");
    }

    #[test]
    fn a_refusal_names_file_and_line() {
        let place = Place::new("refusal");
        let path = place.0.join("file");
        let refusal = Refusal { line: Some(7), what: "odd".into() };
        let failure = edit(&path, Scope::User, |_| Err(refusal.clone())).expect_err("refused");
        assert!(failure.error.message.ends_with("file:7: odd; nothing was changed"), "{}", failure.error.message);
        assert!(failure.exit == 2 && !path.exists());
        fs::write(&path, b"\xff").expect("written");
        assert!(edit(&path, Scope::User, to("x")).expect_err("refused").error.message.contains("not UTF-8"));
    }
}
