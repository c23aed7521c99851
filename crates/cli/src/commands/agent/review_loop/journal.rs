//! The files of a loop, in a directory of its own: state and transcript.
//!
//! `state.json` is replaced before each step; `transcript.jsonl` gets one line for each turn that ended; `transcript.md` is the
//! same for people, rewritten from it.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use pinfold_api::types::{Turn, TurnStatus, TurnUsage};
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// Version of the files.
const FORMAT: u32 = 1;

/// The directory of a loop, locked while it runs.
#[derive(Debug)]
pub(super) struct Journal {
    dir: PathBuf,
    entries: Vec<Entry>,
    _lock: File,
}

/// The state of a loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    pub(super) format: u32,
    pub(super) id: String,
    pub(super) task: String,
    pub(super) worker: String,
    pub(super) reviewer: String,
    pub(super) limit: u32,
    pub(super) iteration: u32,
    /// The reviewer's latest findings.
    pub(super) notes: Option<String>,
    /// The worker's report, until it is reviewed.
    pub(super) report: Option<String>,
    /// How often this loop was started or resumed.
    pub(super) runs: u32,
    pub(super) ending: Option<Ending>,
}

/// How a loop ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Ending {
    Passed,
    LimitReached,
}

/// A turn in the transcript.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) step: String,
    pub(super) iteration: u32,
    pub(super) role: String,
    pub(super) agent: String,
    pub(super) turn: u64,
    pub(super) status: TurnStatus,
    pub(super) prompt: String,
    pub(super) text: Option<String>,
    pub(super) cause: Option<String>,
    pub(super) retried: Option<String>,
    pub(super) usage: Option<TurnUsage>,
    pub(super) ended_at: Option<String>,
}

impl State {
    pub(super) fn new(id: String, task: String, worker: String, reviewer: String, limit: u32) -> Self {
        Self {
            format: FORMAT,
            id,
            task,
            worker,
            reviewer,
            limit,
            iteration: 1,
            notes: None,
            report: None,
            runs: 0,
            ending: None,
        }
    }
}

impl Entry {
    pub(super) fn of(step: &str, iteration: u32, role: &str, turn: &Turn) -> Self {
        Self {
            step: step.to_owned(),
            iteration,
            role: role.to_owned(),
            agent: turn.agent.clone(),
            turn: turn.number,
            status: turn.status,
            prompt: turn.prompt.clone(),
            text: turn.text.clone(),
            cause: turn.cause.clone(),
            retried: turn.retried.clone(),
            usage: turn.usage,
            ended_at: turn.ended_at.clone(),
        }
    }
}

impl Journal {
    /// Creates and locks the directory.
    pub(super) fn open(dir: &Path) -> Result<Self, Failure> {
        let trouble = |error: io::Error| Failure::internal(format!("{}: {error}", dir.display()));
        std::fs::create_dir_all(dir).map_err(trouble)?;
        let lock =
            OpenOptions::new().create(true).truncate(false).write(true).open(dir.join("lock")).map_err(trouble)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Failure::invalid(format!(
                    "the loop in {} is already running: wait for it, or interrupt it first",
                    dir.display()
                )));
            }
            Err(TryLockError::Error(error)) => return Err(trouble(error)),
        }
        let text = match std::fs::read_to_string(dir.join("transcript.jsonl")) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(trouble(error)),
        };
        // A line that a crash cut off is dropped; its turn is written again.
        let entries: Vec<Entry> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let journal = Self { dir: dir.to_owned(), entries, _lock: lock };
        let whole: String = journal
            .entries
            .iter()
            .filter_map(|entry| serde_json::to_string(entry).ok())
            .map(|line| line + "\n")
            .collect();
        if whole != text {
            journal.replace("transcript.jsonl", whole.as_bytes())?;
        }
        Ok(journal)
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(super) fn read_state(&self) -> Result<Option<State>, Failure> {
        let path = self.dir.join("state.json");
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::internal(format!("{}: {error}", path.display()))),
        };
        let damaged =
            |error: &dyn std::fmt::Display| Failure::internal(format!("{} cannot be read: {error}", path.display()));
        let state: State = serde_json::from_slice(&text).map_err(|error| damaged(&error))?;
        if state.format > FORMAT {
            return Err(damaged(&"it was written by a newer version: upgrade pinfold"));
        }
        Ok(Some(state))
    }

    pub(super) fn save(&self, state: &State) -> Result<(), Failure> {
        self.replace("state.json", &serde_json::to_vec_pretty(state)?)
    }

    /// Adds a turn that ended to the transcript, unless it is there already.
    pub(super) fn note(&mut self, entry: Entry, state: &State) -> Result<(), Failure> {
        if self.entries.iter().any(|known| known.step == entry.step) {
            return Ok(());
        }
        let line = serde_json::to_string(&entry)? + "\n";
        let path = self.dir.join("transcript.jsonl");
        let mut file = OpenOptions::new().create(true).append(true).open(&path)?;
        file.write_all(line.as_bytes())?;
        self.entries.push(entry);
        self.replace("transcript.md", render(state, &self.entries).as_bytes())
    }

    /// Rewrites the readable transcript.
    pub(super) fn finish(&self, state: &State) -> Result<(), Failure> {
        self.replace("transcript.md", render(state, &self.entries).as_bytes())
    }

    fn replace(&self, name: &str, content: &[u8]) -> Result<(), Failure> {
        let (path, fresh) = (self.dir.join(name), self.dir.join(format!("{name}.new")));
        let replaced = std::fs::write(&fresh, content).and_then(|()| std::fs::rename(&fresh, &path));
        replaced.map_err(|error| Failure::internal(format!("{}: {error}", path.display())))
    }
}

/// The transcript for people.
fn render(state: &State, entries: &[Entry]) -> String {
    let mut text = format!(
        "# Loop {}\n\nWorker: {}. Reviewer: {}.\n\n## Task\n\n{}\n",
        state.id, state.worker, state.reviewer, state.task
    );
    for entry in entries {
        text.push_str(&format!("\n## {} {}: {}\n\n", entry.iteration, entry.role, status(entry.status)));
        for note in [&entry.retried, &entry.cause].into_iter().flatten() {
            text.push_str(&format!("_{note}_\n\n"));
        }
        text.push_str(entry.text.as_deref().unwrap_or("_No answer._").trim_end());
        text.push('\n');
    }
    match state.ending {
        Some(Ending::Passed) => {
            text.push_str(&format!("\nPassed after {} of {} iterations.\n", state.iteration, state.limit));
        }
        Some(Ending::LimitReached) => {
            text.push_str(&format!("\nNot passed after {} iterations, the limit.\n", state.limit))
        }
        None => {}
    }
    text
}

fn status(status: TurnStatus) -> &'static str {
    match status {
        TurnStatus::Completed => "completed",
        TurnStatus::Interrupted => "interrupted",
        TurnStatus::Failed => "failed",
        TurnStatus::Lost => "lost",
        TurnStatus::Queued | TurnStatus::Running => "unfinished",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("pinfold-test-journal-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        dir
    }

    #[test]
    fn a_turn_is_recorded_once_even_after_a_crash() {
        let dir = scratch("once");
        let state = State::new("l".into(), "do".into(), "codex".into(), "claude".into(), 3);
        let turn = Turn { number: 1, text: Some("done".into()), status: TurnStatus::Completed, ..Turn::default() };
        let entry = Entry::of("1-work", 1, "worker", &turn);
        {
            let mut journal = Journal::open(&dir).expect("opened");
            assert!(Journal::open(&dir).is_err(), "one at a time");
            journal.save(&state).expect("saved");
            journal.note(entry.clone(), &state).expect("noted");
            journal.note(entry.clone(), &state).expect("noted");
        }
        let mut torn = OpenOptions::new().append(true).open(dir.join("transcript.jsonl")).expect("there");
        torn.write_all(b"{\"step\":\"1-rev").expect("torn");
        let mut journal = Journal::open(&dir).expect("opened");
        assert_eq!(journal.read_state().expect("read"), Some(state.clone()));
        journal.note(entry, &state).expect("noted");
        let text = std::fs::read_to_string(dir.join("transcript.jsonl")).expect("read");
        assert_eq!(text.lines().count(), 1, "{text}");
        let readable = std::fs::read_to_string(dir.join("transcript.md")).expect("read");
        assert!(readable.contains("## 1 worker: completed\n\ndone"), "{readable}");
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
