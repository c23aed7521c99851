//! Which room may use which: DESIGN §3, read against every manifest.

use super::{Finding, Tree};

/// A room and the rooms that it may use.
type Arrow = (&'static str, &'static [&'static str]);

/// The arrows as drawn. A room that is not here is not drawn.
const ARROWS: &[Arrow] = &[
    ("model", &[]),
    ("os", &[]),
    ("api", &[]),
    ("agents", &["api"]),
    ("store", &["os", "model"]),
    ("keeper", &["store", "os", "model"]),
    ("daemon", &["store", "os", "model", "api", "agents"]),
    ("mcp", &["api"]),
    ("cli", &["daemon", "keeper", "api", "mcp"]),
    ("testkit", &["model", "os", "store", "api", "keeper", "daemon"]),
    ("hostile", &["model", "store", "api", "daemon", "mcp"]),
    ("clients", &["api", "testkit"]),
    ("simulation", &["model", "os", "store", "keeper"]),
    ("xtask", &["model", "api", "testkit", "clients"]),
];

/// Rooms for development: used in tests, never in the product.
const DEV_ONLY: &[&str] = &["testkit", "clients", "hostile", "simulation", "xtask"];

/// Tables of what goes into a program, and of what only its tests use.
const TABLES: &[(&str, For)] =
    &[("dependencies", For::Product), ("build-dependencies", For::Product), ("dev-dependencies", For::Tests)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum For {
    Product,
    Tests,
}

/// Every dependency of a room on a room is an arrow of the drawing.
pub(crate) fn rooms_use_only_what_the_arrows_allow(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for manifest in &tree.rooms {
        let Some(allowed) = allowed_for(&manifest.room) else {
            let message =
                format!("the room `{}` is not drawn: add it to DESIGN §3 and to `ARROWS` here", manifest.room);
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
        // Tests stand outside the drawing: they may look at anything.
        For::Tests => None,
        For::Product if dev_only => {
            Some(format!("`{used}` is for development: `{room}` may have it in [dev-dependencies] alone"))
        }
        For::Product => {
            let list = if allowed.is_empty() { "none of ours".to_owned() } else { allowed.join(", ") };
            Some(format!(
                "no arrow leads from `{room}` to `{used}` (DESIGN §3: {list}); move the code to the room it is in"
            ))
        }
    }
}

fn allowed_for(room: &str) -> Option<&'static [&'static str]> {
    ARROWS.iter().find(|(name, _)| *name == room).map(|(_, allowed)| *allowed)
}

/// The room of a package of ours.
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
        assert!(findings[0].message.contains("from `model` to `os`"), "{}", findings[0].message);
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
        assert!(messages("utils", "")[0].contains("not drawn"));
    }
}
