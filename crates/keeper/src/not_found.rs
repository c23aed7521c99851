//! Explains a start whose directory or program does not exist.
//!
//! Called only after the kernel refused the start, so that a normal start checks no path twice and a path on a
//! hanging file system blocks one keeper, never the daemon.

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use pinfold_model::spec::{Program, Spec};
use pinfold_os::spawn::Step;

/// What is wrong with the request; `None` if the directory and program exist and the kernel refused for another
/// reason.
pub(crate) fn explain_not_found(step: Step, spec: &Spec, name: &OsStr, candidates: &[CString]) -> Option<String> {
    match step {
        Step::Cwd => missing_cwd(&spec.cwd),
        Step::Exec => {
            let why = missing_program(spec, name, candidates)?;
            let (what, remedy) = match spec.program {
                Program::Shell { .. } => ("shell", "install it, or name another in `shell`"),
                Program::Argv { .. } => ("program", "check its name, or run it through a shell with `command`"),
            };
            Some(format!("{what} `{}` cannot be executed: {why}: {remedy}", name.to_string_lossy()))
        }
        Step::Clone | Step::Setup | Step::Terminal | Step::Sandbox => None,
    }
}

fn missing_cwd(cwd: &Path) -> Option<String> {
    let shown = cwd.display();
    match std::fs::metadata(cwd) {
        Ok(metadata) if metadata.is_dir() => None,
        Ok(_) => Some(format!("cwd `{shown}` is not a directory: give an existing directory")),
        Err(error) => Some(format!("cwd `{shown}` cannot be entered: {error}: give an existing directory")),
    }
}

fn missing_program(spec: &Spec, name: &OsStr, candidates: &[CString]) -> Option<String> {
    if !name.as_bytes().contains(&b'/') {
        let found = candidates.iter().any(|path| is_executable(Path::new(OsStr::from_bytes(path.as_bytes()))));
        return (!found).then(|| "it is not in any directory of PATH".to_owned());
    }
    let path = spec.cwd.join(name);
    match std::fs::metadata(&path) {
        Ok(_) if is_executable(&path) => None,
        Ok(_) => Some("it is not an executable file".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

fn is_executable(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}
