//! Every use of a room of the daemon by another is in the table of [`daemon_rooms`](super::daemon_rooms).
//!
//! A room uses another by a path (`crate::waits::…`), by a method of `Core` that the other defines (`core.stop_entry(…)`), or by
//! the other's part of `Core` (`core.index_writer.…`). The check reads text, not types: it misses a use through a variable of
//! another name. Tests may use anything.

use std::collections::{BTreeMap, BTreeSet};

use super::daemon_rooms::{COMPOSING, ROOMS, Room, SHARED, SOURCES, is_known, may_use};
use super::{Finding, Source, Tree};

/// Every use of a room by another is in the table, and the table has no cycles except its exceptions.
pub(crate) fn the_daemons_rooms_use_only_what_the_table_allows(tree: &Tree) -> Vec<Finding> {
    let daemon: Vec<(&Source, &str)> =
        tree.sources.iter().filter_map(|source| Some((source, place_of(source)?))).collect();
    let owners = Owners::of(&daemon);
    let (mut findings, mut used) = (Vec::new(), BTreeSet::new());
    for (source, place) in &daemon {
        if !is_known(place) {
            let message = format!(
                "`{place}` is not in the table of the daemon's rooms: add it to ROOMS (crates/xtask/src/tidy/daemon_rooms.rs)"
            );
            findings.push(Finding::new(&source.path, 1, message));
        } else if !COMPOSING.contains(place) {
            let uses = uses(source, place, &owners);
            findings
                .extend(uses.iter().filter(|one| !may_use(place, one.used)).map(|one| one.objection(source, place)));
            used.extend(uses.iter().map(|one| (*place, one.used)));
        }
    }
    let rooms: BTreeSet<&str> = daemon.iter().map(|(_, place)| *place).collect();
    findings.extend(ROOMS.iter().filter(|room| rooms.contains(room.name)).flat_map(|room| unused(room, &used)));
    findings
}

/// The folder or top-level file of the daemon that a source is in.
fn place_of(source: &Source) -> Option<&str> {
    let below = source.path.to_str()?.strip_prefix(SOURCES)?;
    let first = below.split('/').next()?;
    Some(first.trim_end_matches(".rs"))
}

/// One use of a room by another.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use<'a> {
    line: usize,
    used: &'a str,
    how: String,
}

impl Use<'_> {
    fn objection(&self, source: &Source, place: &str) -> Finding {
        let message = format!(
            "`{place}` may not use `{}` ({}): move the code to the room it belongs to, or allow it in ROOMS with the reason",
            self.used, self.how
        );
        Finding::new(&source.path, self.line, message)
    }
}

/// Entries of the table that no code needs any more.
fn unused(room: &'static Room, used: &BTreeSet<(&str, &str)>) -> Vec<Finding> {
    let allowed = room.uses.iter().chain(room.exceptions.iter().map(|(name, _)| name));
    let unused = allowed.filter(|name| !used.contains(&(room.name, **name)));
    let table = "crates/xtask/src/tidy/daemon_rooms.rs";
    let message = |name: &&str| format!("`{}` no longer uses `{name}`: remove it from ROOMS", room.name);
    unused.map(|name| Finding::new(table, 1, message(name))).collect()
}

/// The uses of other rooms in a file, except in its tests.
fn uses<'a>(source: &'a Source, place: &str, owners: &'a Owners) -> BTreeSet<Use<'a>> {
    let by_path = paths(&source.code).into_iter().filter(|(_, name)| is_known(name));
    let by_path = by_path.map(|(at, used)| Use { line: line_at(source, at), used, how: format!("crate::{used}") });
    let by_core = uses_of_core(&source.code).into_iter().filter_map(|(at, name)| {
        Some(Use { line: line_at(source, at), used: owners.room_of(name)?, how: format!("core.{name}") })
    });
    let in_test = |line: usize| source.test_lines.get(line - 1).copied().unwrap_or(false);
    by_path.chain(by_core).filter(|one| one.used != place && !in_test(one.line)).collect()
}

/// Which room each method and field of `Core` belongs to.
#[derive(Debug, Default)]
struct Owners {
    rooms: BTreeMap<String, String>,
}

impl Owners {
    fn of(daemon: &[(&Source, &str)]) -> Self {
        let mut rooms = BTreeMap::new();
        for (source, place) in daemon {
            if *place == "core" {
                rooms.extend(fields_of_core(&source.code));
                continue;
            }
            for (from, to) in impls_of_core(&source.code) {
                let methods = source.code[from..to]
                    .match_indices("fn ")
                    .filter_map(|(at, _)| word(&source.code[from + at + 3..]));
                rooms.extend(methods.map(|name| (name.to_owned(), (*place).to_owned())));
            }
        }
        Self { rooms }
    }

    fn room_of(&self, name: &str) -> Option<&str> {
        self.rooms.get(name).map(String::as_str)
    }
}

/// The fields of `Core` whose types come from a room, by what core.rs imports.
fn fields_of_core(code: &str) -> BTreeMap<String, String> {
    let mut types = BTreeMap::new();
    for import in code.lines().filter_map(|line| line.trim().strip_prefix("use crate::")) {
        let room = word(import).unwrap_or_default();
        for name in import.split(|letter: char| !letter.is_alphanumeric() && letter != '_') {
            if name.starts_with(char::is_uppercase) {
                types.insert(name, room);
            }
        }
    }
    let fields =
        code.split_once("struct Core {").and_then(|(_, rest)| rest.split_once("\n}")).map_or("", |(fields, _)| fields);
    let named = fields.lines().filter_map(|line| line.split_once(": "));
    let owned = named.filter_map(|(name, kind)| {
        let mut words = kind.split(|letter: char| !letter.is_alphanumeric());
        let room = words.find_map(|word| types.get(word))?;
        Some((name.split_whitespace().last()?.to_owned(), (*room).to_owned()))
    });
    owned.filter(|(_, room)| !SHARED.contains(&room.as_str())).collect()
}

/// Where `impl Core { … }` begins and ends.
fn impls_of_core(code: &str) -> Vec<(usize, usize)> {
    let begins = code.match_indices("impl Core {").map(|(at, _)| at);
    begins.map(|from| (from, code[from..].find("\n}").map_or(code.len(), |length| from + length))).collect()
}

/// What follows each `crate::`; each name of `crate::{a, b}`.
fn paths(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, start) in code.match_indices("crate::") {
        let rest = &code[at + start.len()..];
        match rest.strip_prefix('{').and_then(|group| group.split_once('}')) {
            Some((group, _)) => found.extend(group.split(',').filter_map(|name| Some((at, word(name.trim())?)))),
            None => found.extend(word(rest).map(|name| (at, name))),
        }
    }
    found
}

/// Names of methods and fields used on a `core`, or on `self` inside `impl Core`.
fn uses_of_core(code: &str) -> Vec<(usize, &str)> {
    let inside = impls_of_core(code);
    let mut found = Vec::new();
    for receiver in ["core", "self"] {
        for (at, _) in code.match_indices(receiver) {
            let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
            let begins = at == 0 || !is_part(code.as_bytes()[at - 1]);
            let is_core = receiver == "core" || inside.iter().any(|(from, to)| (*from..*to).contains(&at));
            let rest = code[at + receiver.len()..].trim_start();
            if let Some(name) = rest.strip_prefix('.').and_then(word).filter(|_| begins && is_core) {
                found.push((at, name));
            }
        }
    }
    found
}

/// The identifier at the start of a text.
fn word(text: &str) -> Option<&str> {
    let end = text.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_').unwrap_or(text.len());
    (end > 0).then(|| &text[..end])
}

fn line_at(source: &Source, at: usize) -> usize {
    source.code[..at].bytes().filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let source =
            |(path, text): &(&str, &str)| Source::new(format!("{SOURCES}{path}"), "daemon", (*text).to_owned());
        let findings = the_daemons_rooms_use_only_what_the_table_allows(&Tree::of(files.iter().map(source).collect()));
        let of_sources = findings.into_iter().filter(|finding| finding.file.starts_with(SOURCES));
        of_sources.map(|finding| format!("{}: {}", finding.line, finding.message)).collect()
    }

    #[test]
    fn a_path_against_the_table_is_found_with_its_line() {
        let found =
            found(&[("waits/a.rs", "use crate::clock::now;\nuse crate::registry::Entry;\nuse crate::server::x;\n")]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("3: `waits` may not use `server`"), "{found:?}");
    }

    #[test]
    fn an_arrow_that_nothing_needs_is_found() {
        let source = Source::new(format!("{SOURCES}telemetry/a.rs"), "daemon", String::new());
        let findings = the_daemons_rooms_use_only_what_the_table_allows(&Tree::of(vec![source]));
        assert!(
            findings.len() == 1 && findings[0].message.contains("`telemetry` no longer uses `registry`"),
            "{findings:?}"
        );
    }

    #[test]
    fn a_group_of_paths_is_found() {
        assert_eq!(found(&[("waits/a.rs", "use crate::{clock, keepers, registry};\n")]).len(), 1);
    }

    #[test]
    fn a_method_of_core_belongs_to_the_room_that_defines_it() {
        let defines = ("processes/a.rs", "impl Core {\n    pub(crate) fn stop_it(&self) {}\n}\n");
        let calls = "fn f(core: &Core) {\n    core\n        .stop_it();\n}\n";
        assert_eq!(found(&[defines, ("waits/b.rs", calls)]).len(), 1);
        assert_eq!(found(&[defines, ("owners/b.rs", calls)]), [""; 0]);
        let own = "impl Core {\n    fn g(&self) {\n        self.stop_it();\n    }\n}\n";
        assert_eq!(found(&[defines, ("output/b.rs", own)]).len(), 1);
        let other = "impl Other {\n    fn g(&self) {\n        self.stop_it();\n    }\n}\n";
        assert_eq!(found(&[defines, ("output/b.rs", other)]), [""; 0]);
    }

    #[test]
    fn a_field_of_core_belongs_to_the_room_of_its_type() {
        let core =
            ("core.rs", "use crate::agents::Agents;\npub(crate) struct Core {\n    pub(crate) agents: Agents,\n}\n");
        assert_eq!(found(&[core, ("waits/a.rs", "fn f(core: &Core) { core.agents.all(); }\n")]).len(), 1);
        assert_eq!(found(&[core, ("owners/a.rs", "fn f(core: &Core) { core.agents.all(); }\n")]), [""; 0]);
    }

    #[test]
    fn shared_files_use_no_room_and_tests_use_anything() {
        assert_eq!(found(&[("clock.rs", "use crate::registry::Entry;\n")]).len(), 1);
        assert_eq!(found(&[("waits/a.rs", "#[cfg(test)]\nmod tests {\n    use crate::server::x;\n}\n")]), [""; 0]);
    }

    #[test]
    fn a_room_that_is_not_in_the_table_is_found() {
        assert!(found(&[("attic/mod.rs", "")])[0].contains("`attic` is not in the table"));
    }
}
