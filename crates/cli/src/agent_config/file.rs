//! Reads a configuration file, edits it and replaces it atomically.
//!
//! Symbolic links stay links, and their target is replaced. Mode and owner are kept. If the file was changed by another program
//! since it was read, it is read and edited again.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use super::{Change, ConfigError, Scope};
use crate::failure::Failure;

/// How often to retry if the file keeps changing.
const TRIES: usize = 5;
/// Some editors write it at the start of UTF-8 files.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// The new text and what changed; `None` removes the file.
pub(crate) type Edited = (Option<String>, Change);

/// Reads, edits and writes a file. A missing file is treated as empty.
pub(crate) fn edit(
    path: &Path,
    scope: Scope,
    edit: impl Fn(&str) -> Result<Edited, ConfigError>,
) -> Result<Change, Failure> {
    let target = resolve(path).map_err(|error| trouble(path, &error))?;
    for _ in 0..TRIES {
        let before = read(&target).map_err(|error| trouble(path, &error))?;
        let text = before.as_deref().unwrap_or_default();
        let (mark, text) = text.strip_prefix(BYTE_ORDER_MARK).map_or(("", text), |text| (BYTE_ORDER_MARK, text));
        let (after, change) = edit(text).map_err(|error| refused(path, &error))?;
        if matches!(change, Change::Unchanged | Change::Absent) {
            return Ok(change);
        }
        let is_link = target != path;
        // The target of a link is emptied, not removed: somebody put it there on purpose.
        let after = if is_link { Some(after.unwrap_or_default()) } else { after };
        let after = after.map(|text| format!("{mark}{text}"));
        if commit(&target, scope, before.as_deref(), after.as_deref()).map_err(|error| trouble(path, &error))? {
            return Ok(change);
        }
    }
    Err(Failure::internal(format!(
        "{}: another program keeps changing it: close the agent and try again",
        path.display()
    )))
}

/// The error for a file that was not changed.
pub(crate) fn refused(path: &Path, error: &ConfigError) -> Failure {
    let line = error.line.map(|line| format!("{line}: ")).unwrap_or_else(|| " ".to_owned());
    Failure::invalid(format!("{}:{line}{}; nothing was changed", path.display(), error.what))
}

fn trouble(path: &Path, error: &io::Error) -> Failure {
    Failure::internal(format!("{}: {error}", path.display()))
}

/// Follows symbolic links, also to a file that does not exist yet.
fn resolve(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    // The kernel's limit.
    for _ in 0..40 {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes).map(Some).map_err(|_| io::Error::other("not UTF-8; nothing was changed")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Replaces the old text by the new one; `false` if the file has changed since.
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

/// Writes the text to a temporary file with the mode and owner of the file it replaces.
fn write(temporary: &Path, path: &Path, scope: Scope, text: &str) -> io::Result<()> {
    // A user's configuration may contain secrets later; a project's is shared.
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

    /// A temporary directory, removed on drop.
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

    fn to(text: &str) -> impl Fn(&str) -> Result<Edited, ConfigError> {
        move |_| Ok((Some(text.to_owned()), Change::Added))
    }

    #[test]
    fn links_modes_and_byte_order_marks_are_kept() {
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
    fn a_missing_file_is_created_with_its_directories_and_can_be_removed() {
        let place = Place::new("missing");
        let path = place.0.join("a/b/c");
        edit(&path, Scope::User, to("new")).expect("edited");
        assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o777, 0o600);
        edit(&path, Scope::User, |_| Ok((None, Change::Removed))).expect("edited");
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_changes_meanwhile_is_edited_again() {
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
    fn an_error_names_file_and_line() {
        let place = Place::new("refusal");
        let path = place.0.join("file");
        let error = ConfigError { line: Some(7), what: "odd".into() };
        let failure = edit(&path, Scope::User, |_| Err(error.clone())).expect_err("refused");
        assert!(failure.error.message.ends_with("file:7: odd; nothing was changed"), "{}", failure.error.message);
        assert!(failure.exit == 2 && !path.exists());
        fs::write(&path, b"\xff").expect("written");
        assert!(edit(&path, Scope::User, to("x")).expect_err("refused").error.message.contains("not UTF-8"));
    }
}
