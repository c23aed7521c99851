//! `cargo xtask package`: builds the packages into target/package, installs each into an empty place and tries it there.

mod deb;
mod npm;
mod program;
mod sbom;
mod tarball;
mod trial;
mod upgrade;
mod wheel;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, bail, ensure};

use crate::cargo_build::target_directory;
use program::Program;

/// What to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    Wheel,
    Npm,
    Deb,
    Tarball,
}

/// How the program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// As it ships: optimised, static.
    Release,
    /// As the tests have it, dynamic: checks the packages without another build.
    Dev,
}

/// What to do.
#[derive(Debug, clap::Args)]
pub struct Options {
    /// Packages to build; all by default
    kinds: Vec<Kind>,
    /// How the program is built
    #[arg(long, value_enum, default_value = "release")]
    profile: Profile,
    /// Build only, and install nothing
    #[arg(long)]
    no_trial: bool,
}

/// A package is built from this.
struct Packaging<'a> {
    root: &'a Path,
    /// Where packages are written.
    out: PathBuf,
    /// Where they are assembled and installed; removed at the end.
    work: PathBuf,
    program: Program,
}

/// Builds, tries, and lists what was built.
pub fn run(root: &Path, options: &Options) -> anyhow::Result<ExitCode> {
    let out = target_directory(root)?.join("package");
    let work = out.join("work");
    remove(&out)?;
    std::fs::create_dir_all(&work)?;
    let program = Program::build(root, &work.join("program"), options.profile, None)?;
    let packaging = Packaging { root, out, work, program };
    let all = [Kind::Tarball, Kind::Deb, Kind::Wheel, Kind::Npm];
    let kinds = if options.kinds.is_empty() { &all[..] } else { &options.kinds[..] };
    for kind in kinds {
        packaging.make(*kind, options)?;
    }
    sbom::write(&packaging)?;
    checksums(&packaging.out)?;
    remove(&packaging.work)?;
    Ok(ExitCode::SUCCESS)
}

impl Packaging<'_> {
    fn make(&self, kind: Kind, options: &Options) -> anyhow::Result<()> {
        let tries = !options.no_trial;
        match kind {
            Kind::Tarball => {
                let file = tarball::build(self)?;
                tries.then(|| tarball::try_it(self, &file)).transpose()?;
            }
            Kind::Deb => match missing("dpkg-deb") {
                Some(why) => skip("deb", &why),
                None => {
                    let file = deb::build(self)?;
                    tries.then(|| deb::try_it(self, &file)).transpose()?;
                }
            },
            Kind::Wheel => match missing("python3") {
                Some(why) => skip("wheel", &why),
                None => {
                    let file = wheel::build(self, &self.program)?;
                    if tries && wheel::try_it(self, &file)? {
                        upgrade::try_it(self, &file, options.profile)?;
                    }
                }
            },
            Kind::Npm => match missing("npm") {
                Some(why) => skip("npm", &why),
                None => {
                    if let Some(files) = npm::build(self)? {
                        tries.then(|| npm::try_it(self, &files)).transpose()?;
                    }
                }
            },
        }
        Ok(())
    }

    /// An empty directory of this name.
    fn place(&self, name: &str) -> anyhow::Result<PathBuf> {
        let place = self.work.join(name);
        remove(&place)?;
        std::fs::create_dir_all(&place)?;
        Ok(place)
    }
}

/// Says that a package is not built here.
fn skip(what: &str, why: &str) {
    println!("SKIPPED {what}: {why}");
}

fn missing(program: &str) -> Option<String> {
    let found = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    (!found).then(|| format!("{program} is not installed"))
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_dir_all(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Runs a program to its end; its output is shown only if it fails.
fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    if !output.status.success() {
        let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        bail!("{command:?} failed with {}:\n{stdout}{stderr}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Writes a file, and the directories above it.
fn write(path: &Path, text: impl AsRef<[u8]>) -> anyhow::Result<()> {
    if let Some(above) = path.parent() {
        std::fs::create_dir_all(above)?;
    }
    std::fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Copies a file with its mode, and makes the directories above it.
fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    if let Some(above) = to.parent() {
        std::fs::create_dir_all(above)?;
    }
    std::fs::copy(from, to).with_context(|| format!("cannot copy {}", from.display())).map(drop)
}

/// Writes SHA256SUMS beside the packages, in the form that `sha256sum --check` reads.
fn checksums(out: &Path) -> anyhow::Result<()> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(out)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            names.push(entry.file_name());
        }
    }
    names.sort();
    ensure!(!names.is_empty(), "no package was built");
    let sums = output(Command::new("sha256sum").arg("--").args(&names).current_dir(out))?;
    write(&out.join("SHA256SUMS"), &sums)?;
    output(Command::new("sha256sum").args(["--check", "--strict", "--quiet", "SHA256SUMS"]).current_dir(out))?;
    print!("{sums}");
    Ok(())
}
