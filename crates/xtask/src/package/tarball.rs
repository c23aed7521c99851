//! The tarball: the static program, manual pages, completions and units, to be unpacked anywhere.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::ensure;

use super::trial::Trial;
use super::{Packaging, copy, output, program, skip, write};

pub(super) fn build(packaging: &Packaging<'_>) -> anyhow::Result<PathBuf> {
    let Packaging { root, out, program, .. } = packaging;
    let name = format!("pinfold-{}-linux-{}", program.version, std::env::consts::ARCH);
    let place = packaging.place("tarball")?;
    let tree = place.join(&name);
    copy(&program.path, &tree.join("bin/pinfold"))?;
    program.write_manual(&tree.join("share/man/man1"))?;
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/pinfold"),
        ("zsh", "share/zsh/site-functions/_pinfold"),
        ("fish", "share/fish/vendor_completions.d/pinfold.fish"),
    ] {
        write(&tree.join(path), program.completions(shell)?)?;
    }
    for unit in ["pinfold.service", "pinfold.socket"] {
        copy(&root.join("packaging/systemd").join(unit), &tree.join("share/systemd/user").join(unit))?;
    }
    for file in ["README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE"] {
        copy(&root.join(file), &tree.join(file))?;
    }
    let file = out.join(format!("{name}.tar.gz"));
    let mut tar = Command::new("tar");
    tar.args(["--sort=name", "--owner=0", "--group=0", "--numeric-owner", "--mtime=@0", "-czf"]).arg(&file);
    output(tar.arg("-C").arg(&place).arg(&name))?;
    Ok(file)
}

pub(super) fn try_it(packaging: &Packaging<'_>, file: &Path) -> anyhow::Result<()> {
    let place = packaging.place("unpacked")?;
    output(Command::new("tar").arg("-xzf").arg(file).args(["--strip-components=1", "-C"]).arg(&place))?;
    let binary = place.join("bin/pinfold");
    let version = &packaging.program.version;
    Trial::new(&place, &[&binary])?.run(version)?;
    println!("tarball: unpacked and tried");
    if !packaging.program.is_static {
        skip("the check that the program is static", "it is a dev build, which is dynamic");
        return Ok(());
    }
    ensure!(program::is_static(&binary)?, "the program in the tarball is not static");
    // The proof: it runs where there is no other file.
    let mut chroot = Command::new("chroot");
    match chroot.arg(&place).args(["/bin/pinfold", "--version"]).output() {
        Ok(done) if done.status.success() => {
            let said = String::from_utf8_lossy(&done.stdout).trim().to_owned();
            ensure!(said == format!("pinfold {version}"), "in an empty root it says {said}");
            println!("tarball: runs in a root without any other file");
        }
        _ => skip("the run in an empty root", "chroot needs root"),
    }
    Ok(())
}
