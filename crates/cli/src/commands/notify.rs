//! What `run` asks for on behalf of an owner: what it is told, and what its end means.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use pinfold_api::input::Span;
use pinfold_api::types::{Lifetime, Notify, StartRequest};

/// Options about the owner of a process.
#[derive(Debug, Args)]
#[command(next_help_heading = "Owner")]
pub(crate) struct NotifyArgs {
    /// The chat, session or agent it belongs to [default: $PINFOLD_OWNER, so that what a kept process runs is its owner's]
    #[arg(long)]
    pub(crate) owner: Option<String>,
    /// The owner's parent, who sees it too
    #[arg(long, value_name = "OWNER")]
    pub(crate) parent: Option<String>,
    /// When its owner ends: keep it, stop it with its `owner`, or hand it over to the `parent` [default: keep]
    #[arg(long, value_parser = PossibleValuesParser::new(["keep", "owner", "parent"]).map(lifetime_of))]
    pub(crate) lifetime: Option<Lifetime>,
    /// With --lifetime owner or parent: the owner counts as ended when nothing is heard of it for so long
    #[arg(long, value_name = "D")]
    pub(crate) owner_grace: Option<String>,
    /// What it is for, in a few words for people
    #[arg(long, value_name = "TEXT")]
    pub(crate) intent: Option<String>,
    /// Tell the owner of lines that match this regular expression; may be repeated
    #[arg(long, value_name = "RE")]
    pub(crate) notify_pattern: Vec<String>,
    /// Tell the owner every so often that it lives, with its new output
    #[arg(long, value_name = "D")]
    pub(crate) heartbeat: Option<String>,
    /// Post what the owner is told to this http or https address
    #[arg(long, value_name = "URL")]
    pub(crate) webhook: Option<String>,
    /// Run this shell command for whatever the owner is told, its end above all; PINFOLD_EVENT holds the event
    #[arg(long, value_name = "SCRIPT")]
    pub(crate) on_end_command: Option<String>,
}

impl NotifyArgs {
    /// Puts all of it into a request. `inherited` is the owner of whoever asks.
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
