//! Hosted agents reach the rest of the daemon through one file, and the rest reaches them through a few names.
//!
//! Inside crates/daemon/src/agents only `host.rs` names another room or `core`, and none looks at or signals processes by
//! itself. Outside, only the names in [`EXPORTS`] are
//! used. Text is read, not types; tests may use anything.

use super::daemon_rooms::{COMPOSING, ROOMS, SOURCES};
use super::{Finding, Source, Tree};

/// The file of the folder that may use other rooms.
const HOST: &str = "agents/host.rs";
/// Modules of `os` that look at processes or signal them.
const PROCESS_MODULES: &[&str] = &["proc", "tree", "process_handle", "sweep", "spawn", "cgroup"];
/// What the rest of the daemon may use of the folder, and who uses it.
const EXPORTS: &[(&str, &str)] = &[
    ("Agents", "the field of `Core`, made in `run`"),
    ("Hosting", "the agents of this daemon: recovery, removal of ended ones, the end of an owner"),
    ("routes", "mounted by `server`"),
    ("new", "`run`"),
    ("clone", "`run`"),
    ("belong_to", "`access`: an owner with an agent is not a new one"),
    ("owners", "`processes`: an owner with an agent is not forgotten"),
    ("any_living", "`home`: the daemon has work"),
    ("any_with_owner_grace", "`owners`: whether to check for lost contact"),
];

/// Hosted agents use the rest through `host.rs`, and the rest uses only what they export.
pub(crate) fn hosted_agents_have_one_interface(tree: &Tree) -> Vec<Finding> {
    let daemon = tree.sources.iter().filter_map(|source| {
        let below = source.path.to_str()?.strip_prefix(SOURCES)?;
        Some((source, below))
    });
    let mut findings = Vec::new();
    for (source, below) in daemon {
        let found = if below.starts_with("agents/") { inside(source, below) } else { outside(source) };
        let is_test = |line: usize| source.test_lines.get(line - 1).copied().unwrap_or(false);
        findings.extend(found.into_iter().filter(|finding| !is_test(finding.line)));
    }
    findings
}

fn inside(source: &Source, below: &str) -> Vec<Finding> {
    if below == HOST || below.ends_with("_tests.rs") {
        return vec![];
    }
    let rooms = ROOMS.iter().map(|room| room.name).filter(|name| *name != "agents");
    let mut findings = Vec::new();
    for room in rooms.chain(COMPOSING.iter().copied()) {
        let message = format!("only {HOST} may use `{room}`: add what agents need to the trait `Host`");
        findings.extend(
            lines_with(source, &format!("crate::{room}")).map(|line| Finding::new(&source.path, line, &*message)),
        );
    }
    for (number, line) in source.code.lines().enumerate() {
        let Some((_, used)) = line.split_once("pinfold_os::") else { continue };
        let words = used.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
        if let Some(module) = words.into_iter().find(|word| PROCESS_MODULES.contains(word)) {
            let message = format!("agents may not use `pinfold_os::{module}`: add what they need to the trait `Host`");
            findings.push(Finding::new(&source.path, number + 1, message));
        }
    }
    let message = format!("only {HOST} may know `Core`: take a `Host` or a `Hosting`");
    findings.extend(lines_with(source, "Core").map(|line| Finding::new(&source.path, line, &*message)));
    findings
}

fn outside(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (number, line) in source.code.lines().enumerate() {
        // The crate of the protocols has the name `pinfold_agents`, and the files of the store `pinfold_store::agents`.
        for path in ["crate::agents::", " agents::", "(agents::", ".agents."] {
            for (at, _) in line.match_indices(path) {
                let rest = &line[at + path.len()..];
                let names =
                    rest.strip_prefix('{').and_then(|group| group.split_once('}')).map_or(rest, |(group, _)| group);
                let names: Vec<&str> = match rest.starts_with('{') {
                    true => names.split(',').map(str::trim).collect(),
                    false => vec![first_word(rest)],
                };
                for name in names.into_iter().filter(|name| !EXPORTS.iter().any(|(export, _)| export == name)) {
                    let message =
                        format!("`{name}` of hosted agents is not exported: see EXPORTS in agents_interface.rs");
                    findings.push(Finding::new(&source.path, number + 1, message));
                }
            }
        }
    }
    findings
}

fn first_word(text: &str) -> &str {
    let end = text.find(|letter: char| !letter.is_alphanumeric() && letter != '_').unwrap_or(text.len());
    &text[..end]
}

/// The lines in which the code contains this word.
fn lines_with<'a>(source: &'a Source, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_part = |letter: Option<char>| letter.is_some_and(|letter| letter.is_alphanumeric() || letter == '_');
    let contains = move |line: &str| {
        line.match_indices(word)
            .any(|(at, _)| !is_part(line[..at].chars().next_back()) && !is_part(line[at + word.len()..].chars().next()))
    };
    source.code.lines().enumerate().filter(move |(_, line)| contains(line)).map(|(number, _)| number + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, text: &str) -> Vec<String> {
        let source = Source::new(format!("{SOURCES}{path}"), "daemon", text.to_owned());
        let findings = hosted_agents_have_one_interface(&Tree::of(vec![source]));
        findings.into_iter().map(|finding| format!("{}: {}", finding.line, finding.message)).collect()
    }

    #[test]
    fn agents_signal_no_process_by_themselves() {
        let reached = found("agents/turns.rs", "use pinfold_os::fsio;\nuse pinfold_os::{proc, tree};\n");
        assert!(
            reached.len() == 1 && reached[0].starts_with("2: agents may not use `pinfold_os::proc`"),
            "{reached:?}"
        );
    }

    #[test]
    fn agents_use_other_rooms_only_through_the_host() {
        let text = "use crate::clock::now;\nuse crate::registry::Entry;\nfn f(core: &Core) {}\n";
        let reached = found("agents/driver.rs", text);
        assert!(
            reached.len() == 2 && reached[0].starts_with("2: only agents/host.rs may use `registry`"),
            "{reached:?}"
        );
        assert!(reached[1].starts_with("3: only agents/host.rs may know `Core`"), "{reached:?}");
        assert_eq!(found("agents/host.rs", text), [""; 0]);
        assert_eq!(
            found("agents/driver.rs", "#[cfg(test)]\nmod tests {\n    use crate::registry::Entry;\n}\n"),
            [""; 0]
        );
    }

    #[test]
    fn the_rest_uses_only_what_agents_export() {
        let text = "use crate::agents::{Agents, Hosting};\nfn f() { core.agents.owners(); agents::routes(); }\n";
        assert_eq!(found("server/a.rs", text), [""; 0]);
        assert_eq!(found("server/a.rs", "use crate::agents::Driver;\n").len(), 1);
        assert_eq!(found("owners/a.rs", "fn f() {\n    core.agents.all();\n}\n").len(), 1);
        assert_eq!(found("owners/a.rs", "use pinfold_store::agents::AgentDir;\n"), [""; 0]);
    }
}
