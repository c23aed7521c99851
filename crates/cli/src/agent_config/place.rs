//! Where each agent keeps its configuration.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Agent, Refusal, Scope};

/// What decides where things are.
pub(crate) struct Surroundings<'a> {
    pub(crate) variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// The directory that a project's configuration is for.
    pub(crate) here: &'a Path,
}

/// The file with an agent's servers.
pub(crate) fn servers(agent: Agent, scope: Scope, around: &Surroundings<'_>) -> Result<PathBuf, Refusal> {
    let here = around.here;
    Ok(match (agent, scope) {
        (Agent::Codex, Scope::Project) => here.join(".codex/config.toml"),
        (Agent::Codex, Scope::User) => codex_home(around)?.join("config.toml"),
        (Agent::Claude, Scope::Project) => here.join(".mcp.json"),
        (Agent::Claude, Scope::User) => claude_servers(around)?,
        (Agent::Gemini, Scope::Project) => here.join(".gemini/settings.json"),
        (Agent::Gemini, Scope::User) => {
            around.set("GEMINI_CLI_HOME").map_or_else(|| around.home(), Ok)?.join(".gemini/settings.json")
        }
        (Agent::Opencode, Scope::Project) => first_there(here, &["opencode.json", "opencode.jsonc"]),
        (Agent::Opencode, Scope::User) => match around.set("OPENCODE_CONFIG") {
            Some(file) => file,
            None => {
                first_there(&around.config()?.join("opencode"), &["opencode.jsonc", "opencode.json", "config.json"])
            }
        },
        (Agent::Cursor, Scope::Project) => here.join(".cursor/mcp.json"),
        (Agent::Cursor, Scope::User) => around.home()?.join(".cursor/mcp.json"),
        (Agent::Vscode, Scope::Project) => here.join(".vscode/mcp.json"),
        (Agent::Vscode, Scope::User) => around.config()?.join("Code/User/mcp.json"),
    })
}

/// The file with Claude Code's hooks.
pub(crate) fn claude_settings(scope: Scope, around: &Surroundings<'_>) -> Result<PathBuf, Refusal> {
    let directory = match scope {
        Scope::Project => around.here.join(".claude"),
        Scope::User => claude_home(around)?,
    };
    Ok(directory.join("settings.json"))
}

/// The file with Codex' hooks.
pub(crate) fn codex_hooks(scope: Scope, around: &Surroundings<'_>) -> Result<PathBuf, Refusal> {
    let directory = match scope {
        Scope::Project => around.here.join(".codex"),
        Scope::User => codex_home(around)?,
    };
    Ok(directory.join("hooks.json"))
}

impl Surroundings<'_> {
    fn set(&self, name: &str) -> Option<PathBuf> {
        (self.variable)(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    fn home(&self) -> Result<PathBuf, Refusal> {
        self.set("HOME").ok_or_else(|| Refusal::new("HOME is not set: say which file with --config"))
    }

    /// Where programs keep their configuration.
    fn config(&self) -> Result<PathBuf, Refusal> {
        match self.set("XDG_CONFIG_HOME") {
            Some(config) => Ok(config),
            None => Ok(self.home()?.join(".config")),
        }
    }
}

fn claude_home(around: &Surroundings<'_>) -> Result<PathBuf, Refusal> {
    match around.set("CLAUDE_CONFIG_DIR") {
        Some(directory) => Ok(directory),
        None => Ok(around.home()?.join(".claude")),
    }
}

/// Its older versions kept the file within their directory, and it still looks there first.
fn claude_servers(around: &Surroundings<'_>) -> Result<PathBuf, Refusal> {
    let older = claude_home(around)?.join(".config.json");
    if older.exists() {
        return Ok(older);
    }
    let directory = around.set("CLAUDE_CONFIG_DIR").map_or_else(|| around.home(), Ok)?;
    Ok(directory.join(".claude.json"))
}

fn codex_home(around: &Surroundings<'_>) -> Result<PathBuf, Refusal> {
    match around.set("CODEX_HOME") {
        Some(directory) => Ok(directory),
        None => Ok(around.home()?.join(".codex")),
    }
}

/// The first of these files that exists, else the first.
fn first_there(directory: &Path, names: &[&str]) -> PathBuf {
    let there = names.iter().map(|name| directory.join(name)).find(|file| file.exists());
    there.unwrap_or_else(|| directory.join(names[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(agent: Agent, scope: Scope, variables: &[(&str, &str)]) -> String {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let around = Surroundings { variable: &variable, here: Path::new("/work") };
        servers(agent, scope, &around).expect("a place").display().to_string()
    }

    #[test]
    fn every_agent_has_its_places() {
        let home = &[("HOME", "/h")];
        for (agent, user, project) in [
            (Agent::Codex, "/h/.codex/config.toml", "/work/.codex/config.toml"),
            (Agent::Claude, "/h/.claude.json", "/work/.mcp.json"),
            (Agent::Gemini, "/h/.gemini/settings.json", "/work/.gemini/settings.json"),
            (Agent::Opencode, "/h/.config/opencode/opencode.jsonc", "/work/opencode.json"),
            (Agent::Cursor, "/h/.cursor/mcp.json", "/work/.cursor/mcp.json"),
            (Agent::Vscode, "/h/.config/Code/User/mcp.json", "/work/.vscode/mcp.json"),
        ] {
            assert_eq!(found(agent, Scope::User, home), user);
            assert_eq!(found(agent, Scope::Project, home), project);
        }
    }

    #[test]
    fn the_agents_own_variables_move_them() {
        for (agent, variable, place) in [
            (Agent::Codex, "CODEX_HOME", "/v/config.toml"),
            (Agent::Claude, "CLAUDE_CONFIG_DIR", "/v/.claude.json"),
            (Agent::Gemini, "GEMINI_CLI_HOME", "/v/.gemini/settings.json"),
            (Agent::Opencode, "XDG_CONFIG_HOME", "/v/opencode/opencode.jsonc"),
            (Agent::Opencode, "OPENCODE_CONFIG", "/v"),
            (Agent::Vscode, "XDG_CONFIG_HOME", "/v/Code/User/mcp.json"),
        ] {
            assert_eq!(found(agent, Scope::User, &[("HOME", "/h"), (variable, "/v")]), place);
        }
        let nowhere = Surroundings { variable: &|_| None, here: Path::new("/work") };
        let refused = servers(Agent::Cursor, Scope::User, &nowhere).expect_err("no home");
        assert!(refused.what.contains("--config"), "{refused:?}");
    }
}
