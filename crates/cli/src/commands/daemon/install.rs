//! `daemon install` and `daemon uninstall`: units of the user's systemd, which start the daemon with the first connection.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use pinfold_api::error::ErrorCode;
use pinfold_daemon::config::Paths;
use serde::Serialize;

use crate::console::Console;
use crate::daemon_on_demand;
use crate::exit;
use crate::failure::Failure;

const SERVICE: &str = "pinfold.service";
const SOCKET: &str = "pinfold.socket";
const SERVICE_TEXT: &str = include_str!("../../../../../packaging/systemd/pinfold.service");
const SOCKET_TEXT: &str = include_str!("../../../../../packaging/systemd/pinfold.socket");
/// What the packaged units have in the places that depend on the user.
const PACKAGED_PROGRAM: &str = "/usr/bin/pinfold";
const PACKAGED_SOCKET: &str = "%h/.local/state/pinfold/socket";
/// The first line of a file that `daemon install` wrote: only such a file is overwritten or removed.
const MARK: &str = "# Written by `pinfold daemon install`; `pinfold daemon uninstall` removes it.\n";

/// What was installed or removed.
#[derive(Debug, Serialize)]
struct Changed {
    units: Vec<PathBuf>,
    installed: bool,
    /// Whether the user's services run without a login.
    #[serde(skip_serializing_if = "Option::is_none")]
    lingers: Option<bool>,
}

/// The units of this user, with their texts.
fn units(paths: &Paths) -> Result<[(&'static str, String); 2], Failure> {
    if paths.moved_home().is_some() {
        return Err(Failure::invalid(
            "the units are for the default home: leave out --home and PINFOLD_HOME, or run `pinfold daemon run` for that home",
        ));
    }
    let program = daemon_on_demand::own_executable()?;
    let service = SERVICE_TEXT.replace(PACKAGED_PROGRAM, &quoted(&program)?);
    let socket = SOCKET_TEXT.replace(PACKAGED_SOCKET, &unit_path(&paths.socket())?);
    Ok([(SERVICE, format!("{MARK}{service}")), (SOCKET, format!("{MARK}{socket}"))])
}

/// A path in a unit: `%` begins a specifier there.
fn unit_path(path: &Path) -> Result<String, Failure> {
    let text = path.to_str().filter(|text| !text.contains(['\n', '\r']));
    let refused = || Failure::invalid(format!("{} cannot be written into a unit: use another path", path.display()));
    text.map(|text| text.replace('%', "%%")).ok_or_else(refused)
}

/// A program in `ExecStart=`, which takes it apart at spaces and replaces variables.
fn quoted(path: &Path) -> Result<String, Failure> {
    let text = unit_path(path)?.replace('\\', "\\\\").replace('"', "\\\"").replace('$', "$$");
    Ok(if text.contains([' ', '\t', '\'', '"', '\\', ';']) { format!("\"{text}\"") } else { text })
}

/// Where the user's own units are.
fn directory() -> Result<PathBuf, Failure> {
    let set = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let base = set("XDG_CONFIG_HOME").or_else(|| set("HOME").map(|home| home.join(".config")));
    let base = base.ok_or_else(|| Failure::invalid("neither XDG_CONFIG_HOME nor HOME is set: set HOME"))?;
    Ok(base.join("systemd/user"))
}

/// Prints the units.
pub(super) fn print(paths: &Paths, console: &mut Console) -> Result<u8, Failure> {
    for (name, text) in units(paths)? {
        console.text(&format!("# {name}\n{text}\n"))?;
    }
    Ok(0)
}

/// Writes the units and enables them. A daemon that runs is stopped first, its processes run on.
pub(super) async fn install(paths: &Paths, console: &mut Console) -> Result<u8, Failure> {
    let units = units(paths)?;
    super::check_outside(paths)?;
    check_systemd()?;
    let directory = directory()?;
    for (name, _) in &units {
        check_ours(&directory.join(name))?;
    }
    std::fs::create_dir_all(&directory).map_err(|error| unwritable(&directory, &error))?;
    for (name, text) in &units {
        let (path, new) = (directory.join(name), directory.join(format!("{name}.new")));
        let written = std::fs::write(&new, text).and_then(|()| std::fs::rename(&new, &path));
        written.map_err(|error| unwritable(&path, &error))?;
    }
    // systemd replaces the socket of a daemon that runs, which would listen again: first the one, then the other.
    super::stop_if_running(paths).await?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["enable", SERVICE, SOCKET])?;
    systemctl(&["restart", SOCKET])?;
    let lingers = lingers();
    let paths: Vec<PathBuf> = units.iter().map(|(name, _)| directory.join(name)).collect();
    if console.json {
        console.document(&Changed { units: paths, installed: true, lingers })?;
        return Ok(0);
    }
    for path in &paths {
        console.text(&format!("wrote {}\n", path.display()))?;
    }
    console.text("the next command starts the daemon as a unit; a restart of the unit ends no process\n")?;
    if lingers == Some(false) {
        console.text("it runs while you are logged in: `loginctl enable-linger` lets it run from boot on\n")?;
    }
    Ok(0)
}

/// Disables and removes the units. The daemon stops, its processes run on.
pub(super) fn uninstall(console: &mut Console) -> Result<u8, Failure> {
    let directory = directory()?;
    let ours: Vec<PathBuf> =
        [SERVICE, SOCKET].map(|name| directory.join(name)).into_iter().filter(|path| is_ours(path)).collect();
    if ours.is_empty() {
        let none = format!("no units of `pinfold daemon install` are in {}", directory.display());
        return Err(Failure::new(ErrorCode::NotFound, none, exit::FAILED));
    }
    if check_systemd().is_ok() {
        systemctl(&["disable", "--now", SOCKET, SERVICE])?;
    }
    for path in &ours {
        std::fs::remove_file(path).map_err(|error| unwritable(path, &error))?;
    }
    if check_systemd().is_ok() {
        systemctl(&["daemon-reload"])?;
    }
    if console.json {
        console.document(&Changed { units: ours, installed: false, lingers: None })?;
        return Ok(0);
    }
    for path in &ours {
        console.text(&format!("removed {}\n", path.display()))?;
    }
    console.text("the next command starts a daemon of its own\n")?;
    Ok(0)
}

/// Fails with what to do instead if the user has no systemd.
fn check_systemd() -> Result<(), Failure> {
    let instead = "pinfold needs none: the first command starts the daemon. To start it at boot, add `@reboot pinfold daemon start` \
                   with `crontab -e`; in a container, run `pinfold daemon run` as a service; `pinfold daemon install --print` \
                   prints the units";
    let refused = |why: &str| {
        Failure::new(
            ErrorCode::NotFound,
            format!("no systemd runs for this user here ({why}): {instead}"),
            exit::FAILED,
        )
    };
    match Command::new("systemctl").args(["--user", "show-environment"]).stdin(Stdio::null()).output() {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(refused(first_line(&output.stderr))),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(refused("systemctl is not installed")),
        Err(error) => Err(refused(&error.to_string())),
    }
}

fn systemctl(arguments: &[&str]) -> Result<(), Failure> {
    let output = Command::new("systemctl").arg("--user").args(arguments).stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let (command, reason) = (arguments.join(" "), first_line(&output.stderr));
    Err(Failure::internal(format!(
        "`systemctl --user {command}` failed: {reason}: see `systemctl --user status {SERVICE}`"
    )))
}

fn first_line(text: &[u8]) -> &str {
    std::str::from_utf8(text).ok().and_then(|text| text.lines().next()).unwrap_or("it gave no reason")
}

/// Whether the user's services run without a login; `None` if that cannot be found out.
fn lingers() -> Option<bool> {
    let uid = rustix::process::getuid().as_raw().to_string();
    let output = Command::new("loginctl").args(["show-user", &uid, "--property=Linger", "--value"]).output().ok()?;
    match std::str::from_utf8(&output.stdout).ok()?.trim() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

fn is_ours(path: &Path) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.starts_with(MARK))
}

fn check_ours(path: &Path) -> Result<(), Failure> {
    match path.exists() && !is_ours(path) {
        true => Err(Failure::invalid(format!("{} was not written by pinfold: move it away first", path.display()))),
        false => Ok(()),
    }
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure::internal(format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_written_as_units_have_them() {
        let written = |path: &str| quoted(Path::new(path)).expect("a path");
        assert_eq!(written("/usr/bin/pinfold"), "/usr/bin/pinfold");
        assert_eq!(written("/home/a b/100%/$x/pinfold"), "\"/home/a b/100%%/$$x/pinfold\"");
        assert!(quoted(Path::new("/a\nExecStart=/bin/evil")).is_err());
    }

    #[test]
    fn the_packaged_units_have_the_places_that_are_replaced() {
        assert!(SERVICE_TEXT.contains(PACKAGED_PROGRAM) && SOCKET_TEXT.contains(PACKAGED_SOCKET));
        assert!(SERVICE_TEXT.contains("\nKillMode=process\n"));
    }
}
