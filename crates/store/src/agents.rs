//! The files of hosted agents: one directory per agent below `agents/`, written only by the daemon.
//!
//! `agent.json` is the request and never changes; `state.json` is the state of its conversation and is replaced as a
//! whole; `turns/N.json` is one turn. Their content is defined by the daemon: here they are JSON with a `format`. They
//! contain no environment values.
//!
//! Invariant S8, *an agent's state is whole*: a reader sees the content of one write, never parts of two. An unreadable
//! file affects no other agent.

use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use pinfold_model::id::ProcessId;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::Durability;
use crate::layout::{DIRECTORY_MODE, Home, replace_file};

/// The version of the files' format.
pub const AGENT_FORMAT: u32 = 1;

const AGENT: &str = "agent.json";
const STATE: &str = "state.json";
const TURNS: &str = "turns";

/// The files of one agent.
#[derive(Clone, Debug)]
pub struct AgentDir {
    path: PathBuf,
    durability: Durability,
}

#[derive(Serialize)]
struct Written<'a, T> {
    format: u32,
    content: &'a T,
}

#[derive(Deserialize)]
struct Read<T> {
    content: T,
}

#[derive(Deserialize)]
struct Format {
    format: u32,
}

impl AgentDir {
    /// Creates the directory of a new agent and writes its request.
    pub fn create<T: Serialize>(home: &Home, id: &ProcessId, durability: Durability, agent: &T) -> io::Result<Self> {
        let builder = |recursive| {
            let mut builder = DirBuilder::new();
            builder.mode(DIRECTORY_MODE).recursive(recursive);
            builder
        };
        builder(true).create(home.agents())?;
        let dir = Self::open(home, id, durability);
        builder(false).create(&dir.path)?;
        builder(false).create(dir.path.join(TURNS))?;
        dir.write(AGENT, agent)?;
        Ok(dir)
    }

    /// The directory of an existing agent.
    pub fn open(home: &Home, id: &ProcessId, durability: Durability) -> Self {
        Self { path: home.agents().join(id.as_str()), durability }
    }

    pub fn read_agent<T: DeserializeOwned>(&self) -> io::Result<T> {
        self.read(AGENT)
    }

    /// The state of its conversation; `None` if there is none yet.
    pub fn read_state<T: DeserializeOwned>(&self) -> io::Result<Option<T>> {
        absent_is_none(self.read(STATE))
    }

    pub fn commit_state<T: Serialize>(&self, state: &T) -> io::Result<()> {
        self.write(STATE, state)
    }

    pub fn read_turn<T: DeserializeOwned>(&self, number: u64) -> io::Result<Option<T>> {
        absent_is_none(self.read(&turn_name(number)))
    }

    pub fn commit_turn<T: Serialize>(&self, number: u64, turn: &T) -> io::Result<()> {
        self.write(&turn_name(number), turn)
    }

    /// The file for messages that the agent sends over a WebSocket instead of stdout.
    pub fn stream(&self, life: u64) -> PathBuf {
        self.path.join(format!("stream-{life}.jsonl"))
    }

    /// Removes the directory with everything in it.
    pub fn remove(&self) -> io::Result<()> {
        std::fs::remove_dir_all(&self.path)
    }

    fn read<T: DeserializeOwned>(&self, name: &str) -> io::Result<T> {
        let bytes = std::fs::read(self.path.join(name))?;
        let format = serde_json::from_slice::<Format>(&bytes).map_err(io::Error::other)?.format;
        if format > AGENT_FORMAT {
            let text = format!("{name} was written by a newer pinfold (format {format}): upgrade pinfold");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        Ok(serde_json::from_slice::<Read<T>>(&bytes).map_err(io::Error::other)?.content)
    }

    fn write<T: Serialize>(&self, name: &str, content: &T) -> io::Result<()> {
        let written = Written { format: AGENT_FORMAT, content };
        let path = self.path.join(name);
        replace_file(&path, &serde_json::to_vec(&written).map_err(io::Error::other)?, self.durability)
    }
}

/// Every agent that has a directory. Names that are not ids are ignored.
pub fn list_agents(home: &Home) -> io::Result<Vec<ProcessId>> {
    let entries = match std::fs::read_dir(home.agents()) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        Err(error) => return Err(error),
    };
    Ok(entries.flatten().filter_map(|entry| ProcessId::parse(entry.file_name().to_str()?).ok()).collect())
}

fn turn_name(number: u64) -> String {
    format!("{TURNS}/{number}.json")
}

fn absent_is_none<T>(read: io::Result<T>) -> io::Result<Option<T>> {
    match read {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{Scratch, mode_of};

    #[test]
    fn s8_an_agents_state_is_whole() {
        let home = Scratch::home();
        assert_eq!(list_agents(&home).expect("listed"), []);
        let id = ProcessId::from_number(1, 1);
        let dir = AgentDir::create(&home, &id, Durability::Power, &json!({ "kind": "codex" })).expect("made");
        assert_eq!(dir.read_state::<Value>().expect("read"), None);
        dir.commit_state(&json!({ "cursor": 1, "long": "x".repeat(10_000) })).expect("written");
        dir.commit_state(&json!({ "cursor": 2 })).expect("written");
        assert_eq!(dir.read_state::<Value>().expect("read"), Some(json!({ "cursor": 2 })));
        dir.commit_turn(7, &json!("seven")).expect("written");
        assert_eq!(dir.read_turn::<Value>(7).expect("read"), Some(json!("seven")));
        assert_eq!(dir.read_turn::<Value>(8).expect("read"), None);
        assert_eq!(dir.read_agent::<Value>().expect("read"), json!({ "kind": "codex" }));
        assert_eq!(list_agents(&home).expect("listed"), std::slice::from_ref(&id));
        assert_eq!(mode_of(&home.agents().join(id.as_str()).join(STATE)), 0o600);
        assert!(AgentDir::create(&home, &id, Durability::Programs, &json!({})).is_err(), "it is there already");
        dir.remove().expect("removed");
        assert_eq!(list_agents(&home).expect("listed"), []);
    }

    #[test]
    fn a_newer_format_and_a_torn_file_are_reported_and_not_changed() {
        let home = Scratch::home();
        let id = ProcessId::from_number(1, 1);
        let dir = AgentDir::create(&home, &id, Durability::Programs, &json!({})).expect("made");
        let path = home.agents().join(id.as_str()).join(STATE);
        std::fs::write(&path, r#"{"format":9,"content":{"new":"ways"}}"#).expect("written");
        let error = dir.read_state::<Value>().expect_err("refused").to_string();
        assert!(error.contains("newer pinfold"), "{error}");
        std::fs::write(&path, r#"{"format":1,"cont"#).expect("written");
        assert!(dir.read_state::<Value>().is_err());
        assert!(path.exists());
    }
}
