//! Which crate may use which: checks every manifest against the table in ARCHITECTURE.md.

use super::{Finding, Tree};

/// A crate and the crates that it may use.
type Arrow = (&'static str, &'static [&'static str]);

/// The allowed dependencies.
const ARROWS: &[Arrow] = &[
    ("model", &[]),
    ("os", &[]),
    ("api", &["model"]),
    ("agents", &["api"]),
    ("store", &["os", "model"]),
    ("keeper", &["store", "os", "model"]),
    ("daemon", &["store", "os", "model", "api", "agents"]),
    ("mcp", &["api"]),
    ("top", &["api"]),
    ("cli", &["daemon", "keeper", "api", "mcp", "top"]),
    ("testkit", &["model", "os", "store", "api", "keeper", "daemon"]),
    ("hostile", &["model", "store", "api", "daemon", "mcp"]),
    ("clients", &["api", "testkit"]),
    ("simulation", &["model", "os", "store", "keeper"]),
    ("xtask", &["model", "api", "testkit", "clients"]),
];

/// Crates for development: used in tests, never in the product.
const DEV_ONLY: &[&str] = &["testkit", "clients", "hostile", "simulation", "xtask"];

/// Dependency tables of the product, and of tests only.
const TABLES: &[(&str, For)] =
    &[("dependencies", For::Product), ("build-dependencies", For::Product), ("dev-dependencies", For::Tests)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Product,
    Tests,
}

/// Every dependency of a crate on another is allowed by [`ARROWS`].
pub(crate) fn rooms_use_only_what_the_arrows_allow(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in &tree.rooms {
        let Some(allowed) = allowed_for(&manifest.room) else {
            let message =
                format!("the crate `{}` is not in the table: add it to ARCHITECTURE.md and to `ARROWS`", manifest.room);
            findings.push(Finding::new(&manifest.path, 1, message));
            continue;
        };
        for (table, purpose) in TABLES {
            for name in manifest.names_in(table) {
                let Some(used) = room_of(name) else { continue };
                if let Some(message) = objection(&manifest.room, allowed, used, *purpose) {
                    findings.push(Finding::new(&manifest.path, manifest.line_of(table, name), message));
                }
            }
        }
    }
    findings
}

fn objection(room: &str, allowed: &[&str], used: &str, purpose: For) -> Option<String> {
    let dev_only = DEV_ONLY.contains(&used);
    match purpose {
        _ if allowed.contains(&used) => None,
        // Tests may use any crate.
        For::Tests => None,
        For::Product if dev_only => {
            Some(format!("`{used}` is for development: `{room}` may use it only in [dev-dependencies]"))
        }
        For::Product => {
            let list = if allowed.is_empty() { "none of our crates".to_owned() } else { allowed.join(", ") };
            Some(format!("`{room}` may not use `{used}` (only: {list}): move the code to the crate it belongs to"))
        }
    }
}

fn allowed_for(room: &str) -> Option<&'static [&'static str]> {
    ARROWS.iter().find(|(name, _)| *name == room).map(|(_, allowed)| *allowed)
}

/// The directory of one of our packages.
fn room_of(package: &str) -> Option<&str> {
    match package {
        "pinfold" => Some("cli"),
        "xtask" => Some("xtask"),
        other => other.strip_prefix("pinfold-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(room: &str, manifest: &str) -> Vec<String> {
        let tree = Tree::of_manifests("", &[(room, manifest)]);
        rooms_use_only_what_the_arrows_allow(&tree).into_iter().map(|finding| finding.message).collect()
    }

    #[test]
    fn an_arrow_against_the_drawing_is_found_with_its_line() {
        let tree = Tree::of_manifests("", &[("model", "[dependencies]\nserde = \"1\"\npinfold-os.workspace = true\n")]);
        let findings = rooms_use_only_what_the_arrows_allow(&tree);
        assert_eq!(findings.len(), 1);
        assert_eq!((findings[0].line, findings[0].file.to_str()), (3, Some("crates/model/Cargo.toml")));
        assert!(findings[0].message.contains("`model` may not use `os`"), "{}", findings[0].message);
    }

    #[test]
    fn arrows_as_drawn_are_fine() {
        assert_eq!(
            messages("daemon", "[dependencies]\npinfold-store = {}\npinfold-api = {}\ntokio = \"1\"\n"),
            [""; 0]
        );
        assert_eq!(
            messages("cli", "[dependencies]\npinfold-keeper = {}\n[dev-dependencies]\npinfold-testkit = {}\n"),
            [""; 0]
        );
    }

    #[test]
    fn the_command_line_reaches_no_state_and_the_daemon_owns_no_keeper() {
        assert_eq!(messages("cli", "[dependencies]\npinfold-store = {}\n").len(), 1);
        assert_eq!(messages("daemon", "[dependencies]\npinfold-keeper = {}\n").len(), 1);
        assert_eq!(messages("daemon", "[build-dependencies]\npinfold-keeper = {}\n").len(), 1);
    }

    #[test]
    fn rooms_for_development_stay_out_of_the_product() {
        let found = messages("cli", "[dependencies]\npinfold-testkit = {}\n");
        assert!(found.len() == 1 && found[0].contains("[dev-dependencies]"), "{found:?}");
    }

    #[test]
    fn a_room_that_is_not_drawn_is_found() {
        assert!(messages("utils", "")[0].contains("not in the table"));
    }
}
