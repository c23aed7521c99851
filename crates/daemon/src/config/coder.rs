//! The settings of `/api/v0/processes`.

use std::time::Duration;

use pinfold_model::units::parse_duration;
use serde::Deserialize;

use super::Text;

/// Settings of `/api/v0/processes`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Coder {
    /// Maximum wait of `wait=true`.
    pub wait_cap: Duration,
    /// How long an ended process stays in the list.
    pub list_for: Duration,
    /// The working directory of commands that set none, if it exists.
    pub workdir: Option<String>,
    /// A shell command whose output is added to the environment.
    pub env_command: Option<String>,
}

impl Default for Coder {
    fn default() -> Self {
        let five_minutes = Duration::from_secs(300);
        Self { wait_cap: five_minutes, list_for: five_minutes, workdir: None, env_command: None }
    }
}

/// The section's contents.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileCoder {
    wait_cap: Option<Text>,
    list_for: Option<Text>,
    workdir: Option<String>,
    env_command: Option<String>,
}

impl FileCoder {
    /// The settings, or the name of an invalid one and what is wrong.
    pub(super) fn try_into_coder(self) -> Result<Coder, (&'static str, String)> {
        let default = Coder::default();
        let duration = |setting, text: Option<Text>, default| match text {
            Some(text) => parse_duration(&text.text()).map_err(|bad| (setting, bad.to_string())),
            None => Ok(default),
        };
        let workdir = self.workdir.filter(|workdir| !workdir.is_empty());
        if workdir.as_deref().is_some_and(|workdir| !workdir.starts_with('/')) {
            return Err(("coder.workdir", "give an absolute directory".to_owned()));
        }
        Ok(Coder {
            wait_cap: duration("coder.wait_cap", self.wait_cap, default.wait_cap)?,
            list_for: duration("coder.list_for", self.list_for, default.list_for)?,
            workdir,
            env_command: self.env_command.filter(|command| !command.trim().is_empty()),
        })
    }
}

impl Coder {
    pub(super) fn render_toml(&self) -> String {
        let text = |text: &Option<String>| toml::Value::String(text.clone().unwrap_or_default());
        format!(
            "\n[coder]\n# maximum wait of `wait=true` on /api/v0/processes\nwait_cap = \"{}s\"\n\
             # how long an ended process stays in that list; by id it is found until retention removes it\n\
             list_for = \"{}s\"\n\
             # directory of commands that name none, if it exists; \"\" for the home directory\nworkdir = {}\n\
             # a shell command whose output lines NAME=VALUE are added to the environment; \"\" for none\n\
             env_command = {}\n",
            self.wait_cap.as_secs_f64(),
            self.list_for.as_secs_f64(),
            text(&self.workdir),
            text(&self.env_command),
        )
    }
}
