//! The SBOM: what is linked into the program, as CycloneDX 1.5, from `cargo metadata`.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, ensure};
use serde_json::{Value, json};

use super::{Packaging, output};

/// Writes the SBOM beside the packages.
pub(super) fn write(packaging: &Packaging<'_>) -> anyhow::Result<()> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    cargo.args(["metadata", "--format-version=1", "--locked", "--filter-platform", &platform]);
    let metadata: Value = serde_json::from_str(&output(cargo.current_dir(packaging.root))?)?;
    let version = &packaging.program.version;
    let sbom = render(&metadata, "pinfold", version)?;
    let file = packaging.out.join(format!("pinfold-{version}.cdx.json"));
    super::write(&file, format!("{sbom:#}\n"))
}

/// The SBOM of a package of the workspace: itself, and what it is built with for use at run time.
fn render(metadata: &Value, name: &str, version: &str) -> anyhow::Result<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let packages: BTreeMap<String, Value> =
        list(&metadata["packages"]).into_iter().map(|package| (text(&package["id"]), package)).collect();
    let nodes: BTreeMap<String, Value> =
        list(&metadata["resolve"]["nodes"]).into_iter().map(|node| (text(&node["id"]), node)).collect();
    let root = packages.iter().find(|(_, package)| package["name"] == name && package["source"].is_null());
    let (root, _) = root.with_context(|| format!("cargo metadata has no package {name}"))?;
    let (mut found, mut queue) = (BTreeSet::from([root.clone()]), vec![root.clone()]);
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    while let Some(id) = queue.pop() {
        let node = nodes.get(&id).with_context(|| format!("cargo metadata does not resolve {id}"))?;
        for dependency in list(&node["deps"]) {
            // Neither for tests nor for build scripts.
            if !list(&dependency["dep_kinds"]).iter().any(|kind| kind["kind"].is_null()) {
                continue;
            }
            let on = text(&dependency["pkg"]);
            edges.entry(id.clone()).or_default().insert(on.clone());
            if found.insert(on.clone()) {
                queue.push(on);
            }
        }
    }
    let reference = |id: &str| {
        let package = &packages[id];
        let version = if id == root { version } else { package["version"].as_str().unwrap_or_default() };
        format!("pkg:cargo/{}@{version}", text(&package["name"]))
    };
    let component = |id: &String, kind: &str| {
        let package = &packages[id];
        let mut component = json!({
            "type": kind,
            "bom-ref": reference(id),
            "name": package["name"],
            "version": if id == root { json!(version) } else { package["version"].clone() },
            "purl": reference(id),
        });
        if let Some(license) = package["license"].as_str() {
            // Some older crates separate licences by a slash, which is no SPDX expression.
            component["licenses"] = json!([{"expression": license.replace('/', " OR ")}]);
        }
        component
    };
    ensure!(found.len() > 1, "{name} has no dependencies in cargo metadata");
    let components: Vec<Value> = found.iter().filter(|id| *id != root).map(|id| component(id, "library")).collect();
    let dependencies: Vec<Value> = found
        .iter()
        .map(|id| {
            let on: Vec<String> = edges.get(id).into_iter().flatten().map(|id| reference(id)).collect();
            json!({"ref": reference(id), "dependsOn": on})
        })
        .collect();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": component(root, "application")},
        "components": components,
        "dependencies": dependencies,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_linked_is_listed() {
        let package = |name: &str, source: Value| json!({"id": name, "name": name, "version": "1.0.0", "source": source, "license": "MIT/Apache-2.0"});
        let dependency = |name: &str, kind: Value| json!({"pkg": name, "dep_kinds": [{"kind": kind}]});
        let metadata = json!({
            "packages": [package("pinfold", Value::Null), package("used", json!("r")), package("tests", json!("r")), package("deep", json!("r"))],
            "resolve": {"nodes": [
                {"id": "pinfold", "deps": [dependency("used", Value::Null), dependency("tests", json!("dev"))]},
                {"id": "used", "deps": [dependency("deep", Value::Null)]},
                {"id": "deep", "deps": []},
                {"id": "tests", "deps": []},
            ]},
        });
        let sbom = render(&metadata, "pinfold", "2.0.0").expect("an SBOM");
        let names: Vec<&Value> =
            sbom["components"].as_array().expect("components").iter().map(|one| &one["name"]).collect();
        assert_eq!(names, ["deep", "used"]);
        assert_eq!(sbom["components"][0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(sbom["metadata"]["component"]["purl"], "pkg:cargo/pinfold@2.0.0");
        let root =
            sbom["dependencies"].as_array().expect("edges").iter().find(|one| one["ref"] == "pkg:cargo/pinfold@2.0.0");
        assert_eq!(root.expect("the root")["dependsOn"], json!(["pkg:cargo/used@1.0.0"]));
        assert!(render(&metadata, "other", "2.0.0").is_err());
    }
}
