//! Options of `run` about the owner: who it is, what it is notified of, what happens when it ends.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use pinfold_api::input::Span;
use pinfold_api::types::{Lifetime, Notify, StartRequest};

/// Options about the owner of a process, and its notifications.
#[derive(Debug, Args)]
#[command(next_help_heading = "Owner")]
pub(crate) struct NotifyArgs {
    /// Chat, session or agent that the process belongs to [default: $PINFOLD_OWNER, the owner of the surrounding process]
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// Parent of the owner; it sees the process too
    #[arg(long, value_name = "OWNER")]
    pub(crate) parent: Option<String>,
    /// When the owner ends: `keep` the process, stop it with its `owner`, or hand it over to the `parent` [default: keep]
    #[arg(long, value_parser = PossibleValuesParser::new(["keep", "owner", "parent"]).map(lifetime_of))]
    pub(crate) lifetime: Option<Lifetime>,
    /// With --lifetime owner or parent: the owner counts as ended after this long without contact
    #[arg(long, value_name = "DURATION")]
    pub(crate) owner_grace: Option<String>,
    /// Short description of what the process is for
    #[arg(long, value_name = "TEXT")]
    pub(crate) intent: Option<String>,
    /// Notify the owner of output lines that match; may be repeated
    #[arg(long, value_name = "REGEX")]
    pub(crate) notify_pattern: Vec<String>,
    /// Notify the owner at this interval that the process still runs, with its new output
    #[arg(long, value_name = "DURATION")]
    pub(crate) heartbeat: Option<String>,
    /// POST each notification to this http or https URL
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,
    /// Run this shell command for each notification, most of all the end; PINFOLD_EVENT holds the event as JSON
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) on_end_command: Option<String>,
}

impl NotifyArgs {
    /// Sets the fields of a request. `inherited` is the owner that applies without `--owner`.
    pub(super) fn apply(&self, request: &mut StartRequest, inherited: Option<String>) {
        request.owner = self.owner.clone().or(inherited);
        request.parent = self.parent.clone();
        request.lifetime = self.lifetime;
        request.owner_grace = self.owner_grace.as_deref().map(Span::from);
        request.intent = self.intent.clone();
        let notify = Notify {
            patterns: self.notify_pattern.clone(),
            heartbeat: self.heartbeat.as_deref().map(Span::from),
            webhook: self.webhook.clone(),
            command: self.on_end_command.clone(),
            ..Notify::default()
        };
        request.notify = (notify != Notify::default()).then_some(notify);
    }
}

fn lifetime_of(word: String) -> Lifetime {
    match word.as_str() {
        "owner" => Lifetime::Owner,
        "parent" => Lifetime::Parent,
        _ => Lifetime::Keep,
    }
}
