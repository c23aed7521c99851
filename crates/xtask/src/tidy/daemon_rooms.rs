//! The rooms of the daemon, and which of them may use which: the one table. `daemon_arrows` checks it against the code, and
//! ARCHITECTURE.md shows it.

use std::collections::BTreeSet;

use super::{Finding, Tree};

/// A folder below crates/daemon/src.
pub(super) struct Room {
    pub(super) name: &'static str,
    pub(super) owns: &'static str,
    /// Rooms above this one in the table.
    pub(super) uses: &'static [&'static str],
    /// Rooms below it that it uses as an exception, each with the reason.
    pub(super) exceptions: &'static [(&'static str, &'static str)],
}

/// The rooms, each below those that it uses.
pub(super) const ROOMS: &[Room] = &[
    Room {
        name: "registry",
        owns: "the state in memory: live and recently ended processes, the links to their keepers, owners, views; finding and showing them",
        uses: &[],
        exceptions: &[("services", "a name also refers to a process that is waiting for its restart")],
    },
    Room {
        name: "telemetry",
        owns: "spans and metrics for a collector: what is sent, in which form, from a thread of its own",
        uses: &["registry"],
        exceptions: &[],
    },
    Room {
        name: "waits",
        owns: "waiting until a process exits, prints, listens, is ready or falls quiet",
        uses: &["registry", "telemetry"],
        exceptions: &[],
    },
    Room {
        name: "access",
        owns: "authentication: tokens, connections from inside a process, which owner a request may act as",
        uses: &["registry"],
        exceptions: &[
            ("events", "the parent of a new owner is in the index before the owner acts"),
            ("agents", "an owner that has a hosted agent is not new"),
        ],
    },
    Room {
        name: "events",
        owns: "the event log and the index: their one writer, readers, consumers; patterns, heartbeats, webhooks, deliveries",
        uses: &["registry", "waits", "access"],
        exceptions: &[("processes", "a command hook is run as a process")],
    },
    Room {
        name: "output",
        owns: "reading, filtering and following output; the screen of a terminal",
        uses: &["registry", "waits"],
        exceptions: &[],
    },
    Room {
        name: "services",
        owns: "readiness, leased ports, restarts",
        uses: &["registry", "waits", "events"],
        exceptions: &[("processes", "a restart stops and starts as any client does")],
    },
    Room {
        name: "keepers",
        owns: "the nursery and idle keepers, what keepers report, reconnecting, their deaths, limiting cgroups",
        uses: &["registry", "telemetry", "events", "output", "services"],
        exceptions: &[],
    },
    Room {
        name: "processes",
        owns: "what clients do with processes: start, stop, signal, pause, input, attach, list, remove",
        uses: &["registry", "telemetry", "waits", "access", "events", "output", "services", "keepers"],
        exceptions: &[
            ("agents", "a process that a hosted agent needs is not removed"),
            ("owners", "the periodic sweep also notes which sessions ended"),
        ],
    },
    Room {
        name: "agents",
        owns: "hosted agents: a client of the rest",
        uses: &["registry", "waits", "access", "events", "services", "processes"],
        exceptions: &[],
    },
    Room {
        name: "inbox",
        owns: "what needs a person: permission requests, processes that wait for input, failures not seen yet",
        uses: &["registry", "events", "output", "processes", "agents"],
        exceptions: &[],
    },
    Room {
        name: "owners",
        owns: "ending an owner, handing a process over, sessions of agents and what ended ones left, owners that fall silent",
        uses: &["registry", "access", "services", "processes", "agents"],
        exceptions: &[],
    },
    Room {
        name: "coder",
        owns: "coder's process API: a client of the rest",
        uses: &["registry", "waits", "access", "processes"],
        exceptions: &[],
    },
    Room {
        name: "recovery",
        owns: "taking over what an earlier daemon left",
        uses: &["registry", "telemetry", "events", "services", "keepers", "agents"],
        exceptions: &[],
    },
    Room {
        name: "diagnostics",
        owns: "`/healthz`, `/metrics` and `pinfold doctor`",
        uses: &["registry", "telemetry", "access", "events", "keepers"],
        exceptions: &[],
    },
    Room {
        name: "dashboard",
        owns: "the web dashboard: its embedded page, signing in, and which requests of a browser are let through to `/v1`",
        uses: &["registry", "access"],
        exceptions: &[],
    },
    Room {
        name: "server",
        owns: "listeners, connections, routes",
        uses: &[
            "registry",
            "waits",
            "access",
            "events",
            "output",
            "processes",
            "agents",
            "inbox",
            "owners",
            "coder",
            "diagnostics",
            "dashboard",
        ],
        exceptions: &[],
    },
    Room {
        name: "home",
        owns: "the daemon's directory: one daemon for each, and what happens when it is moved or removed",
        uses: &["registry", "access", "events", "services", "keepers", "processes", "agents", "server"],
        exceptions: &[],
    },
];

/// Files and folders that every room may use, and that use no room.
pub(super) const SHARED: &[&str] = &[
    "clock",
    "config",
    "emulator",
    "extract",
    "http_client",
    "json",
    "log",
    "metrics",
    "mutex",
    "query",
    "request_error",
    "running",
    "threads",
];
/// Files that combine the rooms and use all of them. Rooms may use only `core` of these.
pub(super) const COMPOSING: &[&str] = &["core", "fuzz_entry", "lib", "run"];

/// Where the rooms are.
pub(super) const SOURCES: &str = "crates/daemon/src/";

/// ARCHITECTURE.md shows the table as it is.
pub(crate) fn the_architecture_shows_the_daemons_rooms(tree: &Tree) -> Vec<Finding> {
    let shown: BTreeSet<&str> = tree.architecture.lines().collect();
    let missing = render().into_iter().filter(|line| !shown.contains(line.as_str()));
    missing
        .map(|line| Finding::new("ARCHITECTURE.md", 1, format!("the daemon's rooms lack the line: {line}")))
        .collect()
}

/// The header of each room's mod.rs says which rooms it may use, as the table does.
pub(crate) fn the_daemons_rooms_say_what_they_may_use(tree: &Tree) -> Vec<Finding> {
    let header = |room: &Room| {
        let path = format!("{SOURCES}{}/mod.rs", room.name);
        let source = tree.sources.iter().find(|source| source.path.as_os_str() == path.as_str())?;
        let line = may_use_line(room);
        let says = source.text.lines().any(|said| said == line);
        (!says).then(|| Finding::new(path, 1, format!("the header lacks the line: {line}")))
    };
    ROOMS.iter().filter_map(header).collect()
}

fn may_use_line(room: &Room) -> String {
    let uses = if room.uses.is_empty() { "no other room".to_owned() } else { room.uses.join(", ") };
    let exceptions: Vec<&str> = room.exceptions.iter().map(|(name, _)| *name).collect();
    let exceptions =
        if exceptions.is_empty() { String::new() } else { format!("; by exception: {}", exceptions.join(", ")) };
    format!("//! May use: {uses}{exceptions}.")
}

/// The lines of the table in ARCHITECTURE.md.
fn render() -> Vec<String> {
    let row = |room: &Room| {
        let uses = if room.uses.is_empty() { "-".to_owned() } else { room.uses.join(", ") };
        format!("| [{0}]({SOURCES}{0}/mod.rs) | {1} | {uses} |", room.name, room.owns)
    };
    let exception = |room: &'static Room| {
        room.exceptions.iter().map(move |(used, reason)| format!("- `{} → {used}`: {reason}.", room.name))
    };
    ROOMS.iter().map(row).chain(ROOMS.iter().flat_map(exception)).collect()
}

pub(super) fn is_known(place: &str) -> bool {
    SHARED.contains(&place) || COMPOSING.contains(&place) || ROOMS.iter().any(|room| room.name == place)
}

pub(super) fn may_use(place: &str, used: &str) -> bool {
    if SHARED.contains(&used) || used == "core" {
        return true;
    }
    let room = ROOMS.iter().find(|room| room.name == place);
    room.is_some_and(|room| room.uses.contains(&used) || room.exceptions.iter().any(|(name, _)| *name == used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_uses_only_rooms_above_it_in_the_table() {
        let names: Vec<&str> = ROOMS.iter().map(|room| room.name).collect();
        for (place, room) in ROOMS.iter().enumerate() {
            let position = |used: &str| names.iter().position(|name| *name == used).expect(used);
            assert!(room.uses.iter().all(|used| position(used) < place), "{} uses a room below it", room.name);
            assert!(room.exceptions.iter().all(|(used, _)| position(used) > place), "{}: no exception", room.name);
            assert!(room.exceptions.iter().all(|(_, reason)| !reason.is_empty()));
        }
    }

    #[test]
    fn a_table_that_is_not_shown_is_found() {
        let shown = Tree { architecture: render().join("\n"), ..Tree::default() };
        assert_eq!(the_architecture_shows_the_daemons_rooms(&shown), []);
        assert_eq!(the_architecture_shows_the_daemons_rooms(&Tree::default()).len(), render().len());
    }

    #[test]
    fn a_header_that_says_something_else_is_found() {
        let source =
            |text: &str| super::super::Source::new(format!("{SOURCES}waits/mod.rs"), "daemon", text.to_owned());
        let check = |text| the_daemons_rooms_say_what_they_may_use(&Tree::of(vec![source(text)])).len();
        assert_eq!(check("//! Waits.\n//!\n//! May use: registry, telemetry.\n"), 0);
        assert_eq!(check("//! Waits.\n//!\n//! May use: registry, server.\n"), 1);
    }
}
