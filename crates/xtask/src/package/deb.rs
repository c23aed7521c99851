//! The Debian package: program, manual pages, completions and the user's units.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};

use super::trial::Trial;
use super::{Packaging, copy, missing, output, skip, write};

/// Files that must be there once it is installed.
const INSTALLED: &[&str] = &[
    "usr/bin/pinfold",
    "usr/share/man/man1/pinfold.1.gz",
    "usr/share/man/man1/pinfold-run.1.gz",
    "usr/share/bash-completion/completions/pinfold",
    "usr/share/zsh/vendor-completions/_pinfold",
    "usr/share/fish/vendor_completions.d/pinfold.fish",
    "usr/lib/systemd/user/pinfold.service",
    "usr/lib/systemd/user/pinfold.socket",
    "usr/share/doc/pinfold/copyright",
];

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

pub(super) fn build(packaging: &Packaging<'_>) -> anyhow::Result<PathBuf> {
    let Packaging { root, out, program, .. } = packaging;
    let tree = packaging.place("deb")?;
    copy(&program.path, &tree.join("usr/bin/pinfold"))?;
    let manual = tree.join("usr/share/man/man1");
    program.write_manual(&manual)?;
    output(Command::new("sh").args(["-c", "gzip -9 -n -- \"$0\"/*.1"]).arg(&manual))?;
    for (shell, path) in [
        ("bash", "usr/share/bash-completion/completions/pinfold"),
        ("zsh", "usr/share/zsh/vendor-completions/_pinfold"),
        ("fish", "usr/share/fish/vendor_completions.d/pinfold.fish"),
    ] {
        write(&tree.join(path), program.completions(shell)?)?;
    }
    for unit in ["pinfold.service", "pinfold.socket"] {
        copy(&root.join("packaging/systemd").join(unit), &tree.join("usr/lib/systemd/user").join(unit))?;
    }
    let mit = std::fs::read_to_string(root.join("LICENSE-MIT"))?;
    let copyright = format!(
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: pinfold\n\n\
         Files: *\nCopyright: the pinfold authors\nLicense: Expat or Apache-2.0\n\nLicense: Expat\n{}\nLicense: Apache-2.0\n \
         On Debian systems, the text is in /usr/share/common-licenses/Apache-2.0.\n",
        indented(&mit)
    );
    write(&tree.join("usr/share/doc/pinfold/copyright"), copyright)?;
    write(&tree.join("DEBIAN/control"), control(packaging, installed_kib(&tree)?))?;
    let file = out.join(format!("pinfold_{}_{}.deb", program.version, architecture()));
    let mut build = Command::new("dpkg-deb");
    if !program.is_static {
        // Not for release, so it need not be small.
        build.args(["-Zgzip", "-z1"]);
    }
    output(build.args(["--root-owner-group", "--build"]).arg(&tree).arg(&file))?;
    Ok(file)
}

fn control(packaging: &Packaging<'_>, kib: u64) -> String {
    let depends = if packaging.program.is_static { "" } else { "Depends: libc6, libgcc-s1\n" };
    format!(
        "Package: pinfold\nVersion: {}\nArchitecture: {}\nMaintainer: the pinfold authors <pinfold@localhost>\n\
         Installed-Size: {kib}\n{depends}Section: utils\nPriority: optional\n\
         Description: process manager for AI agents\n \
         Runs commands and keeps them: output, exit code and every child process,\n \
         also when the client, the chat or the manager itself ends.\n",
        packaging.program.version,
        architecture()
    )
}

/// A text as a field of a control file has it.
fn indented(text: &str) -> String {
    text.trim()
        .lines()
        .map(|line| if line.trim().is_empty() { " .\n".to_owned() } else { format!(" {line}\n") })
        .collect()
}

fn installed_kib(tree: &Path) -> anyhow::Result<u64> {
    let said = output(Command::new("du").args(["-sk", "--apparent-size"]).arg(tree))?;
    said.split_whitespace().next().and_then(|size| size.parse().ok()).context("du says no size")
}

/// Installs it into an empty root with dpkg, tries it, and removes it again.
pub(super) fn try_it(packaging: &Packaging<'_>, file: &Path) -> anyhow::Result<()> {
    if missing("dpkg").is_some() {
        skip("the installation of the deb", "dpkg is not installed");
        return Ok(());
    }
    let root = packaging.place("debian-root")?;
    for path in ["var/lib/dpkg/status", "var/lib/dpkg/available"] {
        write(&root.join(path), "")?;
    }
    std::fs::create_dir_all(root.join("var/lib/dpkg/updates"))?;
    std::fs::create_dir_all(root.join("var/lib/dpkg/info"))?;
    let dpkg = |arguments: &[&str]| {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("--root").arg(&root).args([
            "--force-not-root",
            "--force-bad-path",
            "--force-depends",
            "--log=/dev/null",
        ]);
        dpkg.args(arguments);
        dpkg
    };
    output(dpkg(&["--install"]).arg(file))?;
    for path in INSTALLED {
        ensure!(root.join(path).is_file(), "{path} is not installed");
    }
    let binary = root.join("usr/bin/pinfold");
    Trial::new(&root, &[&binary])?.run(&packaging.program.version)?;
    verify_units(packaging, &root)?;
    output(&mut dpkg(&["--purge", "pinfold"]))?;
    ensure!(!root.join("usr").exists(), "something is left in {} after the removal", root.display());
    println!("deb: installed, tried and removed");
    Ok(())
}

/// Has systemd read the units, with the program in its place.
fn verify_units(packaging: &Packaging<'_>, root: &Path) -> anyhow::Result<()> {
    if missing("systemd-analyze").is_some() {
        skip("the check of the units", "systemd-analyze is not installed");
        return Ok(());
    }
    let place = packaging.place("units")?;
    let binary = root.join("usr/bin/pinfold");
    for unit in ["pinfold.service", "pinfold.socket"] {
        let text = std::fs::read_to_string(root.join("usr/lib/systemd/user").join(unit))?;
        write(&place.join(unit), text.replace("/usr/bin/pinfold", &binary.to_string_lossy()))?;
    }
    let mut verify = Command::new("systemd-analyze");
    verify.args(["--user", "--man=no", "verify"]).arg(place.join("pinfold.service")).arg(place.join("pinfold.socket"));
    // systemd wants a directory for its sockets, also to read units.
    let done = verify.env("XDG_RUNTIME_DIR", &place).output()?;
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(done.status.success() && !said.contains("pinfold."), "systemd-analyze: {said}");
    Ok(())
}
