//! The messages between the daemon and a keeper, and between the daemon and the nursery that forks keepers.
//!
//! A frame is four bytes of length (little endian) and that many bytes of JSON. The first frame on every
//! link is the keeper's [`FromKeeper::Hello`] with [`VERSION`]. docs/keeper-protocol.md describes the exchange.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::cached_json::CachedJson;
use crate::facts::{Fact, History, Intent};
use crate::id::ProcessId;
use crate::input::{Input, InputResult, StdinState, as_base64};
use crate::outcome::{Cause, StartStep};
use crate::ready::Readiness;
use crate::signal::Signal;
use crate::spec::{PtySize, StopManner};

/// The version of this protocol. A daemon adopts keepers of its own version and older ones. An older one gets no second
/// process, since it may not know all fields of its order. Version 2 added stdin, 3 terminals, 4 [`Order::next`], 5 the
/// step at which a start was refused and the reason why a keeper was not forked. Since version 6 a keeper locks its
/// record, distinguishes its daemon from other clients, answers messages that it does not know, and can start a daemon. Version 7
/// added sandboxes, 8 their namespaces and what they refused.
pub const VERSION: u32 = 8;
/// From this version on an unknown message is answered, and no reason to hang up.
pub const ANSWERS_UNKNOWN: u32 = 6;
/// No frame is longer: a command of 1 MiB and an environment of 2 MiB fit with their escapes.
pub const MAX_FRAME: usize = 16 << 20;
/// What is read at once, at least: most messages fit.
const ROOM: usize = 4096;
/// Bytes of the length before each frame.
pub const HEADER: usize = 4;
/// How an order begins.
const START: &[u8] = br#"{"do":"start","#;
/// The news of a fact: before its process's id, between the two, and after the fact.
const FACT: [&str; 3] = [r#"{"say":"fact","id":""#, r#"","fact":"#, "}"];

/// The first and only frame to the nursery; after it come sockets, one for each keeper to fork.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NurserySetup {
    pub version: u32,
    pub home: PathBuf,
    pub durable_over_power_loss: bool,
    /// The name of the cgroup to make for keepers' cgroups; none if containment by cgroup is switched off.
    pub cgroup_name: Option<String>,
    /// How to start the next daemon of this home.
    #[serde(default)]
    pub daemon: Option<DaemonLaunch>,
    /// The soft limit on open descriptors that commands get; none to leave it as it is.
    #[serde(default)]
    pub descriptor_limit: Option<u64>,
}

/// The daemon's program and environment, as the daemon that started the nursery had them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonLaunch {
    pub program: PathBuf,
    pub env: Vec<(OsString, OsString)>,
}

/// Messages from the daemon to a keeper.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum ToKeeper {
    /// Make this process's directory ahead of time.
    Prepare {
        id: ProcessId,
    },
    /// Run this. Answered by a `Fact`: started, or finished with `failed_to_start`.
    /// The intent's spec has blank environment values; the real ones are beside it and are never written.
    Start(Box<Order>),
    /// End the tree of this process. Answered by `Stopped` when it is empty or survivors are certain.
    /// Every request names its process: by the time it arrives, the keeper may keep another.
    Stop {
        request: u64,
        id: ProcessId,
        cause: Cause,
        manner: StopManner,
    },
    /// Send a signal to the tree. Answered by `Signaled`.
    Signal {
        request: u64,
        id: ProcessId,
        signal: Signal,
        by: String,
    },
    /// Freeze or thaw the tree. Answered by `Signaled`.
    Pause {
        request: u64,
        id: ProcessId,
    },
    Resume {
        request: u64,
        id: ProcessId,
    },
    /// Write down that it belongs to another owner. Answered by the `Fact`, and by `HandedOver`.
    HandOver {
        request: u64,
        id: ProcessId,
        to: String,
        ancestors: Vec<String>,
        purpose: String,
    },
    /// Write down what came of looking for its readiness. Answered by the `Fact`; not at all if the process is over.
    Readiness {
        id: ProcessId,
        readiness: Readiness,
    },
    /// Tell once, with `Output`, when there is more output than this.
    WatchOutput {
        id: ProcessId,
        beyond: u64,
    },
    /// Write this to its stdin. Answered by `Input` at once, with how much of it is held or written.
    Input {
        request: u64,
        id: ProcessId,
        input: Input,
    },
    /// Give its terminal another size. Answered by `Resized`.
    Resize {
        request: u64,
        id: ProcessId,
        size: PtySize,
    },
    /// Answer the terminal queries (such as for the cursor position) in its output before this byte, unless they were
    /// answered before.
    Reply {
        id: ProcessId,
        through: u64,
        #[serde(with = "as_base64")]
        bytes: Vec<u8>,
    },
    /// Exit, if there is no process to keep.
    Retire,
    /// Start the daemon of this home, outside of this keeper's tree. Sent by a client inside a managed process.
    /// Answered by `DaemonStarted`.
    StartDaemon {
        request: u64,
    },
    /// The keeper's message is unknown here.
    Unknown {
        error: String,
    },
}

impl ToKeeper {
    /// The process that this is about, if it is about one that is kept already.
    pub fn process(&self) -> Option<&ProcessId> {
        match self {
            ToKeeper::Stop { id, .. }
            | ToKeeper::Signal { id, .. }
            | ToKeeper::Pause { id, .. }
            | ToKeeper::Resume { id, .. }
            | ToKeeper::HandOver { id, .. }
            | ToKeeper::Readiness { id, .. }
            | ToKeeper::WatchOutput { id, .. }
            | ToKeeper::Input { id, .. }
            | ToKeeper::Resize { id, .. }
            | ToKeeper::Reply { id, .. } => Some(id),
            ToKeeper::Prepare { .. }
            | ToKeeper::Start(_)
            | ToKeeper::Retire
            | ToKeeper::StartDaemon { .. }
            | ToKeeper::Unknown { .. } => None,
        }
    }

    /// What a keeper answers that does not keep the process, or not any more.
    pub fn answer_without_process(&self) -> Option<FromKeeper> {
        match *self {
            ToKeeper::Stop { request, .. } => Some(FromKeeper::Stopped { request, survivors: vec![] }),
            ToKeeper::Signal { request, .. } | ToKeeper::Pause { request, .. } | ToKeeper::Resume { request, .. } => {
                Some(FromKeeper::Signaled { request, reached: 0, refused: vec![] })
            }
            ToKeeper::HandOver { request, .. } => Some(FromKeeper::HandedOver { request, done: false }),
            ToKeeper::Input { request, .. } => {
                Some(FromKeeper::Input { request, taken: InputResult::rejected(StdinState::Absent) })
            }
            ToKeeper::Resize { request, .. } => Some(FromKeeper::Resized { request, done: false }),
            _ => None,
        }
    }
}

/// A start order for a keeper; the intent is kept as the JSON that was sent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order<I = Arc<CachedJson<Intent>>> {
    pub intent: I,
    pub env: BTreeMap<String, Option<String>>,
    /// Where controllers can limit it; empty for one without limits.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub limit_places: Vec<LimitPlace>,
    /// The id of the keeper's next process. Its directory is created as soon as this process is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<ProcessId>,
}

/// Messages from a keeper to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "say", rename_all = "snake_case")]
pub enum FromKeeper {
    /// The keeper and its process. The first message on every link.
    Hello { version: u32, keeper: KeeperIdentity, kept: Option<Box<Kept>> },
    /// The nursery could not fork the keeper that was to have this link.
    Unborn { errno: i32 },
    /// A fact, written to the record before it is sent.
    Fact { id: ProcessId, fact: Fact },
    /// Nothing was started and nothing is left of it. Without a step the store refused it; with one, the directory or
    /// the requested program does not exist, or no process could be created (`spawn`).
    Refused {
        id: ProcessId,
        error: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<StartStep>,
    },
    /// There is this much output now.
    Output { id: ProcessId, bytes: u64 },
    /// The tree is empty, or these are left.
    Stopped { request: u64, survivors: Vec<Survivor> },
    /// The signal reached this many; these refused it.
    Signaled { request: u64, reached: u32, refused: Vec<Survivor> },
    /// The handover is written; false if the process is over, or the disk refused it.
    HandedOver { request: u64, done: bool },
    /// Whether its terminal has the requested size.
    Resized { request: u64, done: bool },
    /// Whether it waits for input, as far as that is known; sent when it changes.
    Waiting { id: ProcessId, waiting: Waiting },
    /// The result of an input.
    Input { request: u64, taken: InputResult },
    /// This keeper has no process and is ready for the next one.
    Idle,
    /// A daemon was launched, or the error why not. If it then fails to start, the reason is in its log.
    DaemonStarted { request: u64, error: Option<String> },
    /// The message is unknown, or not allowed on this connection; it was ignored.
    Unknown { request: Option<u64>, error: String },
}

/// The keeper at the other end, and the cgroup of its process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeeperIdentity {
    pub pid: u32,
    pub start_time: u64,
    pub cgroup: Option<PathBuf>,
}

/// The state of a keeper's process when a daemon connects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub history: History,
    pub paused: bool,
    pub output_bytes: u64,
    /// What there is of a terminal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Terminal>,
    #[serde(default)]
    pub waiting: Waiting,
}

/// What the keeper knows of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terminal {
    pub size: PtySize,
    /// What the process asked before this byte of its output has been answered.
    pub answered: u64,
}

/// Whether a process waits for input.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// `None` if unknown.
    pub now: Option<bool>,
    /// How often it began to.
    pub count: u64,
}

/// Where the cgroups of one controller are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitPlace {
    /// `memory`, `pids` or `cpu`.
    pub controller: String,
    /// On the v2 hierarchy, or on a v1 one.
    pub v2: bool,
    pub path: PathBuf,
}

/// A process that could not be killed or signalled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Survivor {
    pub pid: u32,
    pub command: String,
    pub reason: String,
}

/// Why received bytes cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum BadFrame {
    #[error("a frame of {0} bytes is too long")]
    TooLong(usize),
    #[error("a frame that is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    /// JSON, but not a message that this version knows; perhaps from a newer pinfold. The next frame can still be read.
    #[error("an unknown message: {error}")]
    Unknown { request: Option<u64>, error: String },
}

/// The frame of a message, ready to send.
pub fn encode(message: &impl Serialize) -> Vec<u8> {
    let mut frame = vec![0; HEADER];
    serde_json::to_writer(&mut frame, message).expect("messages have string keys and finite numbers");
    sized(frame)
}

/// The frame of [`FromKeeper::Fact`], of a fact that is JSON already.
pub fn encode_fact(id: &ProcessId, fact: &str) -> Vec<u8> {
    let mut frame = vec![0; HEADER];
    let [before, between, after] = FACT;
    [before, id.as_str(), between, fact, after].iter().for_each(|part| frame.extend_from_slice(part.as_bytes()));
    sized(frame)
}

/// The frame with its length in its header.
fn sized(mut frame: Vec<u8>) -> Vec<u8> {
    let length = (frame.len() - HEADER) as u32;
    frame[..HEADER].copy_from_slice(&length.to_le_bytes());
    frame
}

/// Something that is sent in a frame.
pub trait Message: DeserializeOwned {
    /// The message in a frame.
    fn parse(frame: &[u8]) -> serde_json::Result<Self> {
        serde_json::from_slice(frame)
    }
}

impl Message for NurserySetup {}

impl Message for ToKeeper {
    /// `start` is parsed directly: the start of a command waits for it, and to find out the kind of a message, serde reads
    /// it twice.
    fn parse(frame: &[u8]) -> serde_json::Result<Self> {
        if !frame.starts_with(START) {
            return serde_json::from_slice(frame);
        }
        let Order::<&RawValue> { intent, env, limit_places, next } = serde_json::from_slice(frame)?;
        let intent = Arc::new(CachedJson::read(intent)?);
        Ok(Self::Start(Box::new(Order { intent, env, limit_places, next })))
    }
}

impl Message for FromKeeper {
    /// Facts are parsed directly too, because clients wait for them.
    fn parse(frame: &[u8]) -> serde_json::Result<Self> {
        match split_fact(frame) {
            Some((id, fact)) => Ok(Self::Fact { id, fact: Fact::parse(fact)? }),
            None => serde_json::from_slice(frame),
        }
    }
}

/// The id and the JSON of the fact, if the frame was made by [`encode_fact`].
fn split_fact(frame: &[u8]) -> Option<(ProcessId, &str)> {
    let [before, between, after] = FACT;
    let (id, fact) = str::from_utf8(frame).ok()?.strip_prefix(before)?.split_once(between)?;
    Some((ProcessId::parse(id).ok()?, fact.strip_suffix(after)?))
}

/// Collects received bytes and gives whole messages.
#[derive(Debug)]
pub struct Decoder {
    bytes: Vec<u8>,
    max_frame: usize,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::bounded(MAX_FRAME)
    }
}

impl Decoder {
    /// For frames of at most this many bytes.
    pub fn bounded(max_frame: usize) -> Self {
        Self { bytes: Vec::new(), max_frame }
    }

    /// Whether the buffer is longer than the longest frame, so that at least one whole frame is in it: take it before receiving more.
    pub fn is_full(&self) -> bool {
        self.bytes.len() > self.max_frame + HEADER
    }

    /// Where to put what is received, with room for a message of usual length.
    pub fn space(&mut self) -> &mut Vec<u8> {
        self.bytes.reserve(ROOM);
        &mut self.bytes
    }

    /// Adds what was received.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message, if there is one.
    pub fn try_next<M: Message>(&mut self) -> Result<Option<M>, BadFrame> {
        let Some(header) = self.bytes.first_chunk::<HEADER>() else { return Ok(None) };
        let length = u32::from_le_bytes(*header) as usize;
        if length > self.max_frame {
            return Err(BadFrame::TooLong(length));
        }
        let Some(frame) = self.bytes.get(HEADER..HEADER + length) else { return Ok(None) };
        let message = M::parse(frame).map_err(|error| explain(frame, error));
        self.bytes.drain(..HEADER + length);
        Ok(Some(message?))
    }
}

/// The error for a frame that could not be parsed: unknown to this version, or not JSON.
fn explain(frame: &[u8], error: serde_json::Error) -> BadFrame {
    #[derive(Deserialize)]
    struct Numbered {
        request: Option<u64>,
    }
    match serde_json::from_slice(frame) {
        Ok(Numbered { request }) => BadFrame::Unknown { request, error: error.to_string() },
        Err(_) => BadFrame::NotJson(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Finish, Start, Usage};
    use crate::lifecycle::End;
    use crate::outcome::Outcome;
    use crate::spec::{Defaults, Program, Spec};
    use crate::units::Moment;

    fn id() -> ProcessId {
        ProcessId::from_number(1, 1)
    }

    #[test]
    fn messages_come_whole_out_of_any_pieces() {
        let sent =
            [ToKeeper::Retire, ToKeeper::WatchOutput { id: id(), beyond: 7 }, ToKeeper::Pause { request: 1, id: id() }];
        let bytes: Vec<u8> = sent.iter().flat_map(encode).collect();
        for piece in [1, 2, 3, 7, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut got: Vec<ToKeeper> = Vec::new();
            for part in bytes.chunks(piece) {
                decoder.extend(part);
                while let Some(message) = decoder.try_next().expect("whole") {
                    got.push(message);
                }
            }
            assert_eq!(got, sent);
        }
    }

    /// However it is parsed, an order is the same, and one that is none is an error.
    #[test]
    fn an_order_is_known_by_how_it_begins() {
        let program = Program::Argv { argv: vec!["true".into()] };
        let spec = Spec::new(program, "/".into(), &Defaults::default());
        let keeper = KeeperIdentity { pid: 1, start_time: 1, cgroup: None };
        let (mark, boot_id) = ("m".into(), "b".into());
        let intent = Intent { format: 1, id: id(), spec, mark, at: Moment(1), boot_id, keeper };
        let intent = Arc::new(intent.into());
        let order = ToKeeper::Start(Box::new(Order { intent, env: BTreeMap::new(), limit_places: vec![], next: None }));
        let frame = encode(&order);
        let frame = &frame[HEADER..];
        assert!(frame.starts_with(START), "{}", String::from_utf8_lossy(frame));
        assert_eq!(ToKeeper::parse(frame).expect("an order"), order);
        assert_eq!(serde_json::from_slice::<ToKeeper>(frame).expect("the same"), order);
        let json = |order: &ToKeeper| match order {
            ToKeeper::Start(order) => order.intent.json().to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(json(&ToKeeper::parse(frame).expect("an order")), json(&order));
        assert!(ToKeeper::parse(br#"{"do":"start","env":{}}"#).is_err());
        assert!(ToKeeper::parse(br#"{"do":"start","intent":{"format":1},"env":{}}"#).is_err());
    }

    /// However it is parsed, a fact is the same, and one that is none is an error.
    #[test]
    fn a_fact_is_known_by_how_it_begins() {
        let (end, at) = (End { outcome: Outcome::Exited { code: 3 }, cause: Cause::OnItsOwn }, Moment(7));
        let usage = Usage::default();
        let finish = Finish { end, exited_at: at, at, closed: true, output_bytes: 1, output_lost: 0, usage };
        let started = Fact::Started(Start { pid: 1, start_time: 2, at });
        for fact in [started, Fact::Finished(finish), Fact::Closed { at }] {
            let json = serde_json::to_string(&fact).expect("JSON");
            let message = FromKeeper::Fact { id: id(), fact };
            let frame = encode(&message);
            assert_eq!(encode_fact(&id(), &json), frame);
            let frame = &frame[HEADER..];
            assert!(super::split_fact(frame).is_some(), "{}", String::from_utf8_lossy(frame));
            assert_eq!(FromKeeper::parse(frame).expect("a fact"), message);
            assert_eq!(serde_json::from_slice::<FromKeeper>(frame).expect("the same"), message);
        }
        for wrong in [r#"{"fact":"started","pid":1}"#, r#"{"fact":"finished","at":1}"#, "7"] {
            let frame = format!(r#"{{"say":"fact","id":"{}","fact":{wrong}}}"#, id());
            assert!(FromKeeper::parse(frame.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn garbage_is_an_error_and_not_a_hang() {
        let mut decoder = Decoder::default();
        decoder.extend(&[0xff; 16]);
        assert!(matches!(decoder.try_next::<ToKeeper>(), Err(BadFrame::TooLong(_))));
        let mut decoder = Decoder::default();
        decoder.extend(&[3, 0, 0, 0, b'x', b'y', b'z']);
        assert!(matches!(decoder.try_next::<ToKeeper>(), Err(BadFrame::NotJson(_))));
    }

    /// What a newer pinfold may say is passed over with its number, and what follows is understood.
    #[test]
    fn an_unknown_message_is_told_apart_from_garbage() {
        let mut decoder = Decoder::default();
        for body in [r#"{"do":"dance","request":7}"#, r#"{"do":"stop","request":8}"#, r#"{"do":"retire"}"#] {
            decoder.extend(&(body.len() as u32).to_le_bytes());
            decoder.extend(body.as_bytes());
        }
        for number in [7, 8] {
            match decoder.try_next::<ToKeeper>() {
                Err(BadFrame::Unknown { request, .. }) => assert_eq!(request, Some(number)),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(decoder.try_next::<ToKeeper>().expect("known"), Some(ToKeeper::Retire));
    }
}
