//! Finding and reading a project file.

use std::path::{Path, PathBuf};

use super::{Project, ProjectError, dependencies, env_file, procfile, toml_file};

/// Names of project files, the preferred one first.
const NAMES: [&str; 2] = ["pinfold.toml", "Procfile"];
/// A project file is not larger than this, nor is an environment file.
const MAX_BYTES: u64 = 1 << 20;

/// Where a project is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Location {
    pub(crate) file: PathBuf,
    /// The directory of the file, without symbolic links: it identifies the project.
    pub(crate) directory: PathBuf,
}

impl Location {
    /// Whether this is the file that is found in its directory if none is named.
    pub(crate) fn is_default(&self) -> bool {
        let found = NAMES.into_iter().find(|name| self.directory.join(name).is_file()).unwrap_or(NAMES[0]);
        self.file.file_name().is_some_and(|name| name == found)
    }
}

/// The given file; else the nearest project file in this directory or one above it.
pub(crate) fn find(given: Option<&Path>, start: &Path) -> Result<Location, ProjectError> {
    let file = match given {
        Some(given) => start.join(given),
        None => start
            .ancestors()
            .flat_map(|directory| NAMES.map(|name| directory.join(name)))
            .find(|file| file.is_file())
            .ok_or_else(|| ProjectError {
                path: start.to_owned(),
                at: None,
                message: "no pinfold.toml or Procfile here or in a directory above: write one, or name it with --file"
                    .into(),
            })?,
    };
    let directory = file.parent().unwrap_or(start);
    let directory = directory.canonicalize().map_err(|error| unreadable(directory, &error))?;
    Ok(Location { file, directory })
}

/// Reads and checks the file, with the environment files that it names.
pub(crate) fn read(location: &Location) -> Result<Project, ProjectError> {
    let text = read_text(&location.file)?;
    let fail = |at, message| ProjectError { path: location.file.clone(), at, message };
    let is_toml = location.file.extension().is_some_and(|extension| extension == "toml");
    let mut processes = if is_toml {
        toml_file::parse(&location.file, &text, &location.directory)?
    } else {
        procfile::parse(&text).map_err(|(line, message)| fail(Some((line, 1)), message))?
    };
    if !is_toml {
        // As foreman and overmind do.
        let dotenv = location.directory.join(".env");
        if dotenv.is_file() {
            let variables = read_env(&dotenv)?;
            for process in &mut processes {
                process.request.env =
                    variables.iter().map(|(name, value)| (name.clone(), Some(value.clone()))).collect();
            }
        }
    }
    for process in &mut processes {
        let directory = match &process.request.cwd {
            Some(relative) => location.directory.join(relative),
            None => location.directory.clone(),
        };
        let directory = directory.into_os_string().into_string();
        process.request.cwd = Some(directory.map_err(|path| fail(None, format!("{} is not UTF-8", path.display())))?);
    }
    if let Some(cycle) = dependencies::find_cycle(&processes) {
        let name = |at: &usize| processes[*at].name.as_str();
        let chain: Vec<_> = cycle.iter().chain(&cycle[..1]).map(name).collect();
        let at = toml_file::position_of(&text, name(&cycle[0]));
        return Err(fail(at, format!("the dependencies form a cycle: {}", chain.join(" → "))));
    }
    Ok(Project { processes })
}

/// The variables of an environment file.
pub(super) fn read_env(path: &Path) -> Result<super::Variables, ProjectError> {
    let text = read_text(path)?;
    env_file::parse(&text).map_err(|(line, message)| ProjectError {
        path: path.to_owned(),
        at: Some((line, 1)),
        message,
    })
}

fn read_text(path: &Path) -> Result<String, ProjectError> {
    let fail = |message: String| ProjectError { path: path.to_owned(), at: None, message };
    let about = std::fs::metadata(path).map_err(|error| unreadable(path, &error))?;
    if !about.is_file() {
        return Err(fail("not a regular file".into()));
    }
    if about.len() > MAX_BYTES {
        return Err(fail(format!("larger than {MAX_BYTES} bytes")));
    }
    let bytes = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]).into_owned();
        let at = Some(super::line_and_column(&valid, valid.len()));
        ProjectError { at, ..fail("not UTF-8 text".into()) }
    })
}

fn unreadable(path: &Path, error: &std::io::Error) -> ProjectError {
    ProjectError { path: path.to_owned(), at: None, message: format!("cannot be read: {error}") }
}
