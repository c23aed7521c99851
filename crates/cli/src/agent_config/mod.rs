//! The configuration files of agents, which `pinfold connect` edits: which agents there are, where they keep their files, and how
//! our entries get in and out again.
//!
//! Whatever is written here belongs to somebody else: every byte that is not ours stays as it is.

pub(crate) mod entry;
pub(crate) mod file;
pub(crate) mod hooks;
pub(crate) mod jsonc;
pub(crate) mod place;
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

/// Whose configuration is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scope {
    /// This user, in every directory
    #[default]
    User,
    /// This directory, for everybody who works in it
    Project,
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Change {
    /// It was not there and is now.
    Added,
    /// It was there with another path or home, and is up to date now.
    Updated,
    /// It was there already.
    Unchanged,
    /// It was there and is gone.
    Removed,
    /// There was nothing to take out.
    Absent,
}

/// Why a configuration was left as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The line it is about, where there is one.
    pub(crate) line: Option<usize>,
    pub(crate) what: String,
}

impl Refusal {
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Refusal { line: None, what: what.into() }
    }
}

impl From<jsonc::parse::Flaw> for Refusal {
    fn from(flaw: jsonc::parse::Flaw) -> Self {
        Refusal { line: Some(flaw.line), what: flaw.what }
    }
}

impl Agent {
    /// As its makers write it.
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

    /// The word for it on the command line.
    pub(crate) fn word(self) -> &'static str {
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
