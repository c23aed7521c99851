//! The sandboxes of processes that ask for none, and the floors of owners.

use std::collections::BTreeMap;

use pinfold_model::sandbox::{Floor, SandboxParts, SandboxRequest};
use serde::Deserialize;

/// Default sandboxes and floors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SandboxConfig {
    /// For processes that ask for none.
    pub default: Option<SandboxParts>,
    /// What no process may exceed.
    pub floor: Option<SandboxParts>,
    /// The same for an owner and its descendants.
    pub owners: BTreeMap<String, OwnerSandbox>,
}

/// The default sandbox and the floor of one owner and its descendants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OwnerSandbox {
    pub default: Option<SandboxParts>,
    pub floor: Option<SandboxParts>,
}

/// The section's contents.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileSandbox {
    default: Option<SandboxRequest>,
    floor: Option<SandboxRequest>,
    #[serde(default)]
    owners: BTreeMap<String, FileOwner>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileOwner {
    default: Option<SandboxRequest>,
    floor: Option<SandboxRequest>,
}

impl FileSandbox {
    /// The settings, or the name of an invalid one and what is wrong.
    pub(super) fn try_into_config(self) -> Result<SandboxConfig, (&'static str, String)> {
        let home = std::env::var("HOME").unwrap_or_default();
        let parse = |setting, request: Option<SandboxRequest>| {
            let parsed = request.map(|request| request.parse(&home)).transpose();
            parsed.map_err(|bad| (setting, bad.to_string()))
        };
        let mut owners = BTreeMap::new();
        for (name, owner) in self.owners {
            let default = parse("sandbox.owners.NAME.default", owner.default)?;
            let floor = parse("sandbox.owners.NAME.floor", owner.floor)?;
            owners.insert(name, OwnerSandbox { default, floor });
        }
        let default = parse("sandbox.default", self.default)?;
        Ok(SandboxConfig { default, floor: parse("sandbox.floor", self.floor)?, owners })
    }
}

impl SandboxConfig {
    /// The sandbox of a process that asks for none: that of its owner, of the nearest ancestor, or of all.
    pub(crate) fn default_for(&self, owner: &str, ancestors: &[String]) -> Option<&SandboxParts> {
        let mut lineage = std::iter::once(owner).chain(ancestors.iter().map(String::as_str));
        let of_owner = lineage.find_map(|name| self.owners.get(name)?.default.as_ref());
        of_owner.or(self.default.as_ref())
    }

    /// What a process of this owner may not exceed: all floors of its owner, its ancestors and of all.
    pub(crate) fn floor_for(&self, owner: &str, ancestors: &[String]) -> Option<Floor> {
        let lineage = std::iter::once(owner).chain(ancestors.iter().map(String::as_str));
        let floors = lineage.filter_map(|name| self.owners.get(name)?.floor.as_ref()).chain(self.floor.as_ref());
        floors.map(Floor::from).reduce(|one, other| one.meet(&other))
    }

    pub(super) fn render_toml(&self) -> String {
        let line = |name: &str, parts: &Option<SandboxParts>, example: &str| match parts {
            Some(parts) => format!("{name} = {}\n", render(parts)),
            None => format!("# {name} = {example}\n"),
        };
        let mut text = format!(
            "\n[sandbox]\n# sandbox of processes that ask for none: see docs/sandbox.md\n{}\
             # the widest sandbox that any process may have\n{}",
            line("default", &self.default, "\"workspace-write\""),
            line("floor", &self.floor, "\"workspace-write,network=none\""),
        );
        for (name, owner) in &self.owners {
            text.push_str(&format!("\n[sandbox.owners.{}]\n", toml::Value::String(name.clone())));
            for (setting, parts) in [("default", &owner.default), ("floor", &owner.floor)] {
                if let Some(parts) = parts {
                    text.push_str(&format!("{setting} = {}\n", render(parts)));
                }
            }
        }
        text
    }
}

/// The parts as an inline table.
fn render(parts: &SandboxParts) -> String {
    toml::Value::try_from(parts).map_or_else(|_| "\"off\"".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_has_the_floors_of_its_ancestors_too() {
        let text = "default = \"read-only\"\nfloor = \"workspace-write\"\n[owners.team]\nfloor = \"workspace-write,network=none\"\n\
                    [owners.\"team/ann\"]\ndefault = {profile = \"workspace-write\", tmp = \"own\"}\n";
        let file: FileSandbox = toml::from_str(text).expect("toml");
        let config = file.try_into_config().expect("valid");
        let ancestors = ["team".to_owned()];
        let floor = config.floor_for("team/ann", &ancestors).expect("a floor");
        assert_eq!(floor.network, pinfold_model::sandbox::Network::None);
        assert_eq!(config.floor_for("bob", &[]).expect("a floor").network, pinfold_model::sandbox::Network::Full);
        let profile =
            |owner, ancestors: &[String]| config.default_for(owner, ancestors).expect("a default").profile.name();
        assert_eq!((profile("team/ann", &ancestors), profile("bob", &[])), ("workspace-write", "read-only"));
    }
}
