//! The npm packages: `pinfold`, which has the TypeScript client and the command, and one with the program for each platform.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::trial::Trial;
use super::{Packaging, copy, output, skip, write};

/// As Node calls it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "x64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// Both tarballs, the platform's first; `None` if the client's compiler cannot be installed.
pub(super) fn build(packaging: &Packaging<'_>) -> anyhow::Result<Option<[PathBuf; 2]>> {
    let Packaging { root, program, .. } = packaging;
    let platform = format!("@pinfold/linux-{}", architecture());
    let place = packaging.place("npm-platform")?;
    copy(&program.path, &place.join("pinfold"))?;
    let manifest = json!({
        "name": platform,
        "version": program.version,
        "description": "The pinfold program for this platform; install the package pinfold",
        "license": "MIT OR Apache-2.0",
        "os": ["linux"],
        "cpu": [architecture()],
        "files": ["pinfold"],
    });
    write(&place.join("package.json"), format!("{manifest:#}\n"))?;
    let first = pack(packaging, &place)?;

    let client = root.join("sdk/typescript");
    let place = packaging.place("npm")?;
    output(Command::new("cp").arg("-R").arg(client.join(".")).arg(&place))?;
    let mut install = npm(&place);
    if let Err(error) = output(install.args(["ci", "--ignore-scripts"])) {
        skip("npm", &format!("the TypeScript compiler cannot be installed: {}", first_line(&error)));
        std::fs::remove_file(first)?;
        return Ok(None);
    }
    output(npm(&place).args(["run", "build"]))?;
    let mut manifest: Value = serde_json::from_slice(&std::fs::read(place.join("package.json"))?)?;
    let object = manifest.as_object_mut().context("package.json is no object")?;
    object.remove("devDependencies");
    object.remove("scripts");
    object.insert("version".to_owned(), json!(program.version));
    object.insert("bin".to_owned(), json!({"pinfold": "bin/pinfold.js"}));
    object.insert("files".to_owned(), json!(["dist", "bin"]));
    object.insert("optionalDependencies".to_owned(), json!({platform: program.version}));
    write(&place.join("package.json"), format!("{manifest:#}\n"))?;
    copy(&root.join("packaging/npm/pinfold.js"), &place.join("bin/pinfold.js"))?;
    Ok(Some([first, pack(packaging, &place)?]))
}

fn npm(place: &Path) -> Command {
    let mut npm = Command::new("npm");
    npm.args(["--no-audit", "--no-fund", "--loglevel=error"]).current_dir(place);
    npm
}

fn pack(packaging: &Packaging<'_>, place: &Path) -> anyhow::Result<PathBuf> {
    let said = output(npm(place).args(["pack", "--json", "--pack-destination"]).arg(&packaging.out))?;
    let said: Value = serde_json::from_str(&said).context("npm pack says no JSON")?;
    let name = said[0]["filename"].as_str().context("npm pack names no file")?;
    // npm before version 9 names a file of a scope as the package, which is not its name on disk.
    Ok(packaging.out.join(name.trim_start_matches('@').replace('/', "-")))
}

fn first_line(error: &anyhow::Error) -> String {
    error.to_string().lines().nth(1).unwrap_or("npm gave no reason").to_owned()
}

/// Installs both into an empty directory and runs the command as `npx` does.
pub(super) fn try_it(packaging: &Packaging<'_>, files: &[PathBuf; 2]) -> anyhow::Result<()> {
    let place = packaging.place("npm-installed")?;
    write(&place.join("package.json"), "{\"private\": true}\n")?;
    output(npm(&place).args(["install", "--offline", "--ignore-scripts"]).args(files))?;
    let said = output(npm(&place).args(["exec", "--offline", "--no", "pinfold", "--", "--version"]))?;
    ensure!(said.trim() == format!("pinfold {}", packaging.program.version), "npx says {said}");
    let command = place.join("node_modules/.bin/pinfold");
    Trial::new(&place, &[&command])?.run(&packaging.program.version)?;
    let imported = "import('pinfold').then((client) => console.log(typeof client.Pinfold))";
    let said = output(Command::new("node").args(["-e", imported]).current_dir(&place))?;
    ensure!(said.trim() == "function", "the client cannot be imported: {said}");
    // Where the platform's package is missing, the command says which.
    std::fs::remove_dir_all(place.join("node_modules/@pinfold"))?;
    let refused = Command::new(&command).arg("--version").output()?;
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    ensure!(refused.status.code() == Some(1) && said.contains("@pinfold/linux-"), "without its program it says {said}");
    println!("npm: installed, run with npx and imported");
    Ok(())
}
