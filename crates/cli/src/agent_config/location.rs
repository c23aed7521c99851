//! The paths of each agent's configuration files.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::{Agent, ConfigError, Scope};

/// What the paths depend on.
pub(crate) struct Context<'a> {
    pub(crate) variable: &'a dyn Fn(&str) -> Option<OsString>,
    /// Working directory: that of a project's configuration.
    pub(crate) here: &'a Path,
}

/// The file with an agent's MCP servers.
pub(crate) fn servers(agent: Agent, scope: Scope, context: &Context<'_>) -> Result<PathBuf, ConfigError> {
    let here = context.here;
    Ok(match (agent, scope) {
        (Agent::Codex, Scope::Project) => here.join(".codex/config.toml"),
        (Agent::Codex, Scope::User) => codex_home(context)?.join("config.toml"),
        (Agent::Claude, Scope::Project) => here.join(".mcp.json"),
        (Agent::Claude, Scope::User) => claude_servers(context)?,
        (Agent::Gemini, Scope::Project) => here.join(".gemini/settings.json"),
        (Agent::Gemini, Scope::User) => {
            context.set("GEMINI_CLI_HOME").map_or_else(|| context.home(), Ok)?.join(".gemini/settings.json")
        }
        (Agent::Opencode, Scope::Project) => first_there(here, &["opencode.json", "opencode.jsonc"]),
        (Agent::Opencode, Scope::User) => match context.set("OPENCODE_CONFIG") {
            Some(file) => file,
            None => {
                first_there(&context.config()?.join("opencode"), &["opencode.jsonc", "opencode.json", "config.json"])
            }
        },
        (Agent::Cursor, Scope::Project) => here.join(".cursor/mcp.json"),
        (Agent::Cursor, Scope::User) => context.home()?.join(".cursor/mcp.json"),
        (Agent::Vscode, Scope::Project) => here.join(".vscode/mcp.json"),
        (Agent::Vscode, Scope::User) => context.config()?.join("Code/User/mcp.json"),
    })
}

/// The file with Claude Code's hooks.
pub(crate) fn claude_settings(scope: Scope, context: &Context<'_>) -> Result<PathBuf, ConfigError> {
    let directory = match scope {
        Scope::Project => context.here.join(".claude"),
        Scope::User => claude_home(context)?,
    };
    Ok(directory.join("settings.json"))
}

/// The file with Codex' hooks.
pub(crate) fn codex_hooks(scope: Scope, context: &Context<'_>) -> Result<PathBuf, ConfigError> {
    let directory = match scope {
        Scope::Project => context.here.join(".codex"),
        Scope::User => codex_home(context)?,
    };
    Ok(directory.join("hooks.json"))
}

impl Context<'_> {
    fn set(&self, name: &str) -> Option<PathBuf> {
        (self.variable)(name).filter(|value| !value.is_empty()).map(PathBuf::from)
    }

    fn home(&self) -> Result<PathBuf, ConfigError> {
        self.set("HOME").ok_or_else(|| ConfigError::new("HOME is not set: set it, or give the file with --config"))
    }

    /// The user's directory for configuration files.
    fn config(&self) -> Result<PathBuf, ConfigError> {
        match self.set("XDG_CONFIG_HOME") {
            Some(config) => Ok(config),
            None => Ok(self.home()?.join(".config")),
        }
    }
}

fn claude_home(context: &Context<'_>) -> Result<PathBuf, ConfigError> {
    match context.set("CLAUDE_CONFIG_DIR") {
        Some(directory) => Ok(directory),
        None => Ok(context.home()?.join(".claude")),
    }
}

/// Older versions of Claude Code kept the file in `.claude`, and newer ones still look there first.
fn claude_servers(context: &Context<'_>) -> Result<PathBuf, ConfigError> {
    let older = claude_home(context)?.join(".config.json");
    if older.exists() {
        return Ok(older);
    }
    let directory = context.set("CLAUDE_CONFIG_DIR").map_or_else(|| context.home(), Ok)?;
    Ok(directory.join(".claude.json"))
}

fn codex_home(context: &Context<'_>) -> Result<PathBuf, ConfigError> {
    match context.set("CODEX_HOME") {
        Some(directory) => Ok(directory),
        None => Ok(context.home()?.join(".codex")),
    }
}

/// The first of these files that exists, otherwise the first.
fn first_there(directory: &Path, names: &[&str]) -> PathBuf {
    let there = names.iter().map(|name| directory.join(name)).find(|file| file.exists());
    there.unwrap_or_else(|| directory.join(names[0]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(agent: Agent, scope: Scope, variables: &[(&str, &str)]) -> String {
        let variable = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.into());
        let context = Context { variable: &variable, here: Path::new("/work") };
        servers(agent, scope, &context).expect("a place").display().to_string()
    }

    #[test]
    fn every_agent_has_its_own_paths() {
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
    fn the_variables_of_an_agent_change_its_paths() {
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
        let nowhere = Context { variable: &|_| None, here: Path::new("/work") };
        let refused = servers(Agent::Cursor, Scope::User, &nowhere).expect_err("no home");
        assert!(refused.what.contains("--config"), "{refused:?}");
    }
}
