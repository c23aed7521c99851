//! The wheel: the Python client and the program, so that `pip install pinfold` brings both and `uvx pinfold` runs the program.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;

use super::program::Program;
use super::trial::Trial;
use super::{Packaging, output, skip};

/// The platforms that the program runs on: a static one on every Linux.
fn platforms(program: &Program) -> String {
    let arch = std::env::consts::ARCH;
    match program.is_static {
        true => format!("manylinux_2_17_{arch}.musllinux_1_1_{arch}"),
        // Only for this machine: such a wheel is no release.
        false => format!("linux_{arch}"),
    }
}

pub(super) fn build(packaging: &Packaging<'_>, program: &Program) -> anyhow::Result<PathBuf> {
    let mut build = Command::new("python3");
    build.arg(packaging.root.join("packaging/wheel/build.py")).arg(packaging.root.join("sdk/python"));
    build.arg(&program.path).args([&program.version, &platforms(program)]).arg(&packaging.out);
    Ok(PathBuf::from(output(&mut build)?.trim()))
}

/// Installs it into an empty virtual environment; false if there can be none here.
pub(super) fn try_it(packaging: &Packaging<'_>, file: &Path) -> anyhow::Result<bool> {
    let Some(environment) = environment(packaging, "wheel-installed", file)? else { return Ok(false) };
    let binary = environment.join("bin/pinfold");
    Trial::new(&environment, &[&binary])?.run(&packaging.program.version)?;
    println!("wheel: installed with pip and tried");
    uvx(packaging, file)?;
    Ok(true)
}

/// A virtual environment with this wheel, without its dependencies: those are for the client.
pub(super) fn environment(packaging: &Packaging<'_>, name: &str, wheel: &Path) -> anyhow::Result<Option<PathBuf>> {
    let place = packaging.place(name)?;
    if output(Command::new("python3").args(["-m", "venv"]).arg(&place)).is_err() {
        skip("the installation of the wheel", "python3 cannot make a virtual environment: install python3-venv");
        return Ok(None);
    }
    install(&place, wheel)?;
    Ok(Some(place))
}

/// Installs a wheel, in the place of an earlier version if there is one.
pub(super) fn install(environment: &Path, wheel: &Path) -> anyhow::Result<()> {
    let mut pip = Command::new(environment.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--upgrade"]);
    output(pip.arg(wheel)).map(drop)
}

/// Runs it as `uvx` does, if uv is here or can be had.
fn uvx(packaging: &Packaging<'_>, file: &Path) -> anyhow::Result<()> {
    let tools = packaging.place("uv")?;
    let uv = match super::missing("uv") {
        None => PathBuf::from("uv"),
        Some(_) => {
            let pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"];
            if output(Command::new("python3").args(pip).arg(&tools).arg("uv>=0.7,<1")).is_err() {
                skip("uvx", "uv cannot be installed: is the package index reachable?");
                return Ok(());
            }
            tools.join("bin/uv")
        }
    };
    let mut run = Command::new(uv);
    run.args(["tool", "run", "--quiet", "--from"]).arg(file).args(["pinfold", "--version"]);
    run.env("UV_CACHE_DIR", tools.join("cache")).env("UV_TOOL_DIR", tools.join("tools"));
    // Downloads the client's dependencies as well.
    match output(&mut run) {
        Ok(said) => {
            ensure!(said.trim() == format!("pinfold {}", packaging.program.version), "uvx says {said}");
            println!("wheel: run with uvx");
        }
        Err(error) => {
            ensure!(!error.to_string().contains("pinfold-"), "{error}");
            skip("uvx", "the client's dependencies cannot be installed: is the package index reachable?");
        }
    }
    Ok(())
}
