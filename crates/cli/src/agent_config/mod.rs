//! The configuration files of agents, which `pinfold connect` edits: known agents, their files, adding and removing our entries.
//!
//! The files belong to the user: every byte that is not ours stays unchanged, and removing our entry restores the file byte for
//! byte.

pub(crate) mod entry;
pub(crate) mod file;
pub(crate) mod hooks;
pub(crate) mod jsonc;
pub(crate) mod location;
pub(crate) mod server;
pub(crate) mod toml;

use clap::ValueEnum;

/// An agent that pinfold can be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Agent {
    /// OpenAI Codex
    Codex,
    /// Claude Code
    Claude,
    /// Gemini CLI
    Gemini,
    /// opencode
    Opencode,
    /// Cursor
    Cursor,
    /// Visual Studio Code
    Vscode,
}

/// Which configuration to edit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// The user's configuration, for every directory
    #[default]
    User,
    /// The configuration in this directory, for everyone who works in it
    Project,
}

/// The result of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    /// The entry was added.
    Added,
    /// The entry had another path or home and was updated.
    Updated,
    /// The entry was already up to date.
    Unchanged,
    /// The entry was removed.
    Removed,
    /// There was no entry to remove.
    Absent,
}

/// Why a configuration was not changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ConfigError {
    /// The line of the problem, if known.
    pub(crate) line: Option<usize>,
    pub(crate) what: String,
}

impl ConfigError {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        ConfigError { line: None, what: what.into() }
    }
}

impl From<jsonc::parse::SyntaxError> for ConfigError {
    fn from(error: jsonc::parse::SyntaxError) -> Self {
        ConfigError { line: Some(error.line), what: error.what }
    }
}

impl Agent {
    /// The product name.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Agent::Codex => "Codex",
            Agent::Claude => "Claude Code",
            Agent::Gemini => "Gemini CLI",
            Agent::Opencode => "opencode",
            Agent::Cursor => "Cursor",
            Agent::Vscode => "VS Code",
        }
    }

    /// The name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Agent::Codex => "codex",
            Agent::Claude => "claude",
            Agent::Gemini => "gemini",
            Agent::Opencode => "opencode",
            Agent::Cursor => "cursor",
            Agent::Vscode => "vscode",
        }
    }
}
