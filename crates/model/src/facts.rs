//! What is known of a process: the facts that are recorded and sent, in the order in which they happen.
//!
//! [`Fact`] is both a line of the record in the store and a message on the keeper's link, so that what is
//! sent is what is written. [`History`] is what the facts add up to.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cached_json::CachedJson;
use crate::event::EventKind;
use crate::id::ProcessId;
use crate::lifecycle::End;
use crate::link::KeeperIdentity;
use crate::outcome::{Cause, Outcome};
use crate::ready::{Readiness, ReadyState, ReadyVerdict};
use crate::sandbox::Refusals;
use crate::spec::Spec;
use crate::units::Moment;

/// How these facts begin.
const STARTED: &str = r#"{"fact":"started","#;
const FINISHED: &str = r#"{"fact":"finished","#;

/// One line of a process's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "fact", rename_all = "snake_case")]
pub enum Fact {
    Intended(Box<Intent>),
    Started(Start),
    Exited(Exit),
    Closed {
        at: Moment,
    },
    HandedOver(Handover),
    /// It is ready, or was not in time.
    Readiness(Readiness),
    /// A remark for readers of the record.
    Noted {
        text: String,
        at: Moment,
    },
    /// What its sandbox refused so far. A later one replaces it.
    Refused {
        refusals: Refusals,
        at: Moment,
    },
    Finished(Finish),
    Lost {
        evidence: String,
        at: Moment,
    },
}

/// The start as requested, before anything ran. Environment values are blanked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The version of the record's format.
    pub format: u32,
    pub id: ProcessId,
    pub spec: Spec,
    /// The value of `PINFOLD_MARK` in its environment, by which its descendants are recognised.
    pub mark: String,
    pub at: Moment,
    /// Boot and keeper: where to look for its remains.
    pub boot_id: String,
    pub keeper: KeeperIdentity,
}

/// The leader runs. Its identity is evidence only: nothing is signalled by these numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    pub pid: u32,
    pub start_time: u64,
    pub at: Moment,
}

/// The leader ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exit {
    pub end: End,
    pub at: Moment,
    /// False if exit and end were written as one `finished` line.
    pub told_apart: bool,
}

/// It belongs to another owner from here on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    pub to: String,
    /// The new owner's parent, its parent, and so on.
    pub ancestors: Vec<String>,
    /// What the new owner is to do with it.
    pub purpose: String,
    pub at: Moment,
}

/// The process has finished: its tree is empty and its output is closed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finish {
    pub end: End,
    /// When the leader ended.
    pub exited_at: Moment,
    pub at: Moment,
    /// Whether all output ends were closed, or somebody outside the tree still holds one.
    pub closed: bool,
    /// Bytes of output since the start, kept or not.
    pub output_bytes: u64,
    /// Bytes that could not be written to disk.
    pub output_lost: u64,
    pub usage: Usage,
}

/// What the whole tree has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Usage {
    pub cpu_ms: u64,
    pub max_rss_bytes: u64,
    /// Maximum number of processes seen alive at once.
    // Sampled: a short burst may be missed.
    pub processes: u32,
}

impl Fact {
    /// The fact in this text. The two that somebody waits for in every life are parsed as what they are: to find that out,
    /// serde reads a fact twice.
    pub fn parse(text: &str) -> serde_json::Result<Self> {
        if text.starts_with(STARTED) {
            return serde_json::from_str(text).map(Self::Started);
        }
        if text.starts_with(FINISHED) {
            return serde_json::from_str(text).map(Self::Finished);
        }
        serde_json::from_str(text)
    }

    /// The event that reports this fact; there is none for an intent, a note and refusals.
    pub fn event(&self) -> Option<EventKind> {
        match self {
            Fact::Intended(_) | Fact::Noted { .. } | Fact::Refused { .. } => None,
            Fact::Started(_) => Some(EventKind::Started),
            Fact::Exited(_) => Some(EventKind::Exited),
            Fact::Closed { .. } => Some(EventKind::Closed),
            Fact::HandedOver(_) => Some(EventKind::HandedOver),
            Fact::Readiness(Readiness { verdict: ReadyVerdict::Ready, .. }) => Some(EventKind::Ready),
            Fact::Readiness(_) => Some(EventKind::NotReady),
            Fact::Finished(_) => Some(EventKind::Finished),
            Fact::Lost { .. } => Some(EventKind::Lost),
        }
    }

    /// When it happened.
    pub fn at(&self) -> Moment {
        match self {
            Fact::Intended(intent) => intent.at,
            Fact::Started(start) => start.at,
            Fact::Exited(exit) => exit.at,
            Fact::Closed { at } | Fact::Noted { at, .. } | Fact::Refused { at, .. } | Fact::Lost { at, .. } => *at,
            Fact::HandedOver(handover) => handover.at,
            Fact::Readiness(readiness) => readiness.at,
            Fact::Finished(finish) => finish.at,
        }
    }
}

/// The status of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Starting,
    Running,
    /// The leader has exited; descendants are still running.
    Lingering,
    Finished,
    /// Its keeper died, so its end was not observed.
    Lost,
}

impl Status {
    /// Whether nothing more will happen.
    pub fn is_over(self) -> bool {
        matches!(self, Status::Finished | Status::Lost)
    }

    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Status::Starting => "starting",
            Status::Running => "running",
            Status::Lingering => "lingering",
            Status::Finished => "finished",
            Status::Lost => "lost",
        }
    }
}

/// More notes than this are not kept.
pub const MAX_NOTES: usize = 8;

/// All the facts of one process, added up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Shared, because histories are copied and the intent is the largest part of one.
    pub intent: Arc<CachedJson<Intent>>,
    pub start: Option<Start>,
    pub exit: Option<Exit>,
    pub closed_at: Option<Moment>,
    /// Every change of owner, in order.
    #[serde(default)]
    pub handovers: Vec<Handover>,
    /// What a reader should know besides, in order; at most [`MAX_NOTES`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readiness: Option<Readiness>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusals: Option<Refusals>,
    pub finish: Option<Finish>,
    pub lost: Option<(String, Moment)>,
}

impl History {
    /// The history of a process that was requested and has not started.
    pub fn new(intent: Intent) -> Self {
        Self::of(Arc::new(intent.into()))
    }

    /// As [`Self::new`], with an intent that others share.
    pub fn of(intent: Arc<CachedJson<Intent>>) -> Self {
        Self {
            intent,
            start: None,
            exit: None,
            closed_at: None,
            handovers: vec![],
            notes: vec![],
            readiness: None,
            refusals: None,
            finish: None,
            lost: None,
        }
    }

    /// Adds a fact. The first of each kind stands, and nothing is added after the end (L2).
    pub fn add(&mut self, fact: Fact) {
        if self.status().is_over() {
            return;
        }
        match fact {
            Fact::Intended(_) => {}
            Fact::Started(start) => {
                self.start.get_or_insert(start);
            }
            Fact::Exited(exit) => {
                self.exit.get_or_insert(exit);
            }
            Fact::Closed { at } => {
                self.closed_at.get_or_insert(at);
            }
            Fact::HandedOver(handover) => {
                if !self.handovers.contains(&handover) {
                    self.handovers.push(handover);
                }
            }
            Fact::Readiness(readiness) => {
                self.readiness.get_or_insert(readiness);
            }
            Fact::Noted { text, .. } => {
                if self.notes.len() < MAX_NOTES && !self.notes.contains(&text) {
                    self.notes.push(text);
                }
            }
            Fact::Refused { refusals, .. } => self.refusals = Some(refusals),
            Fact::Finished(finish) => {
                if self.start.is_some() {
                    let (end, at) = (finish.end.clone(), finish.exited_at);
                    self.exit.get_or_insert(Exit { end, at, told_apart: false });
                }
                if finish.closed {
                    self.closed_at.get_or_insert(finish.at);
                }
                self.finish = Some(finish);
            }
            Fact::Lost { evidence, at } => self.lost = Some((evidence, at)),
        }
    }

    pub fn status(&self) -> Status {
        match self {
            Self { lost: Some(_), .. } => Status::Lost,
            Self { finish: Some(_), .. } => Status::Finished,
            Self { exit: Some(_), .. } => Status::Lingering,
            Self { start: Some(_), .. } => Status::Running,
            _ => Status::Starting,
        }
    }

    /// How it ended, if it did. A leader whose end was seen keeps its outcome even if its keeper died later.
    pub fn outcome(&self) -> Option<Outcome> {
        if let Some(finish) = &self.finish {
            return Some(finish.end.outcome.clone());
        }
        if let Some(exit) = &self.exit {
            return Some(exit.end.outcome.clone());
        }
        self.lost.as_ref().map(|(evidence, _)| Outcome::Lost { evidence: evidence.clone() })
    }

    pub fn cause(&self) -> Option<Cause> {
        let end = self.finish.as_ref().map(|finish| &finish.end).or(self.exit.as_ref().map(|exit| &exit.end))?;
        Some(end.cause.clone())
    }

    /// Whether the leader's exit was recorded separately, before the end of the tree.
    pub fn lingered(&self) -> bool {
        self.exit.as_ref().is_some_and(|exit| exit.told_apart)
    }

    /// When its tree was empty, or when it was recorded as lost.
    pub fn ended_at(&self) -> Option<Moment> {
        self.finish.as_ref().map(|finish| finish.at).or(self.lost.as_ref().map(|(_, at)| *at))
    }

    /// The current owner.
    pub fn owner(&self) -> &str {
        self.handovers.last().map_or(&self.intent.spec.owner, |handover| &handover.to)
    }

    /// The parent of its owner, its parent, and so on, as known when it got that owner.
    pub fn ancestors(&self) -> &[String] {
        self.handovers.last().map_or(&self.intent.spec.ancestors, |handover| &handover.ancestors)
    }

    /// Whether this kind of event is the first to report the leader's exit, and so is the completion of the process.
    pub fn is_completion(&self, kind: EventKind) -> bool {
        match kind {
            EventKind::Exited => true,
            EventKind::Finished | EventKind::Lost => !self.lingered(),
            _ => false,
        }
    }

    /// Its readiness; `None` if it was started without a readiness check.
    pub fn ready_state(&self) -> Option<ReadyState> {
        self.intent.spec.service.ready.as_ref()?;
        Some(match &self.readiness {
            Some(Readiness { verdict: ReadyVerdict::Ready, .. }) => ReadyState::Ready,
            Some(Readiness { verdict: ReadyVerdict::TimedOut, .. }) => ReadyState::TimedOut,
            None if self.status().is_over() => ReadyState::Exited,
            None => ReadyState::Waiting,
        })
    }

    /// Those of these facts that are not known yet, and the history with them.
    pub fn news(&self, facts: Vec<Fact>) -> (Vec<Fact>, History) {
        let mut after = self.clone();
        let mut is_news = |fact: &Fact| {
            let before = after.clone();
            after.add(fact.clone());
            after != before
        };
        let news = facts.into_iter().filter(|fact| is_news(fact)).collect();
        (news, after)
    }

    /// Every event that this amounts to, in order. Facts that coincided with the end have none of their own.
    pub fn events(&self) -> Vec<(EventKind, Moment)> {
        let mut events = Vec::new();
        let mut add = |kind, at: Option<Moment>| events.extend(at.map(|at| (kind, at)));
        add(EventKind::Started, self.start.as_ref().map(|start| start.at));
        self.handovers.iter().for_each(|handover| add(EventKind::HandedOver, Some(handover.at)));
        if let Some(readiness) = &self.readiness {
            let kind = Fact::Readiness(readiness.clone()).event();
            kind.into_iter().for_each(|kind| add(kind, Some(readiness.at)));
        }
        let end = self.finish.as_ref().map(|finish| finish.at);
        let closed = self.closed_at.filter(|at| end.is_none_or(|end| *at < end));
        let exited = self.exit.as_ref().map(|exit| exit.at);
        add(EventKind::Exited, exited.filter(|_| self.lingered()));
        add(EventKind::Closed, closed);
        add(EventKind::Finished, end);
        add(EventKind::Lost, self.lost.as_ref().map(|(_, at)| *at));
        events
    }

    /// The handover that this event reports.
    pub fn handover_of(&self, kind: EventKind, at: Moment) -> Option<usize> {
        let place = self.handovers.iter().position(|handover| handover.at == at);
        place.filter(|_| kind == EventKind::HandedOver)
    }

    /// Labels, for filters.
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.intent.spec.labels
    }
}
