//! Input for a process, and the queue in which the keeper holds it until it is written.
//!
//! Invariant L5, *an input is applied once*: every input has a key. An input sent again with the same key continues
//! where it stopped, or does nothing. The queue belongs to the keeper, so this holds across daemon restarts. Bounds:
//! at most [`MAX_QUEUE`] bytes are queued, and the reply says how many were accepted; [`MAX_KEYS`] keys are
//! remembered, oldest forgotten first.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

use serde::{Deserialize, Serialize};

/// The most bytes queued at once; also the longest input.
pub const MAX_QUEUE: usize = 1 << 20;
/// How many inputs are remembered by their keys.
pub const MAX_KEYS: usize = 256;
/// The longest key.
pub const MAX_KEY: usize = 128;

/// Bytes to write to a process's stdin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Unique among the inputs of the process.
    pub key: String,
    #[serde(with = "as_base64")]
    pub bytes: Vec<u8>,
    /// Whether the end of input follows the bytes.
    #[serde(default)]
    pub eof: bool,
}

/// How much of an input was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputResult {
    /// Bytes of this input that are queued or written.
    pub accepted: u64,
    /// Whether all of it was accepted, including its end.
    pub complete: bool,
    /// Whether its key was seen before.
    pub repeated: bool,
    /// Bytes queued, of this input and others.
    pub queued: u64,
    pub stdin: StdinState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StdinState {
    Open,
    /// The end was sent; it follows the queued bytes.
    Ending,
    /// The end was written.
    Ended,
    /// No process reads it any more.
    Broken,
    /// The process has no stdin.
    Absent,
    /// The key was used for another input.
    KeyTaken,
}

/// How the end of input is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndOfInput {
    /// By closing the pipe: no input can follow.
    Close,
    /// By a terminal's end-of-file key: more input can follow.
    Key(u8),
}

/// Input that is not written yet.
#[derive(Debug)]
pub struct InputQueue {
    pending: VecDeque<u8>,
    end_of_input: EndOfInput,
    state: StdinState,
    seen: VecDeque<SeenInput>,
}

#[derive(Debug)]
struct SeenInput {
    key: String,
    content_hash: u64,
    /// Accepted bytes, plus one if its end was accepted.
    taken: usize,
}

impl Input {
    /// Its bytes, plus one for its end.
    fn len_with_end(&self) -> usize {
        self.bytes.len() + usize::from(self.eof)
    }

    fn content_hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.bytes);
        hasher.write_u8(u8::from(self.eof));
        hasher.finish()
    }
}

impl InputResult {
    /// The result where nothing can be written.
    pub fn rejected(stdin: StdinState) -> Self {
        Self { accepted: 0, complete: false, repeated: false, queued: 0, stdin }
    }
}

impl InputQueue {
    pub fn new(end_of_input: EndOfInput) -> Self {
        Self { pending: VecDeque::new(), end_of_input, state: StdinState::Open, seen: VecDeque::new() }
    }

    /// Queues as much of an input as fits, starting after what was accepted before.
    pub fn accept(&mut self, input: &Input) -> InputResult {
        let content_hash = input.content_hash();
        let at = self.seen.iter().position(|seen| seen.key == input.key);
        let before = match at.map(|at| &self.seen[at]) {
            Some(seen) if seen.content_hash != content_hash => return InputResult::rejected(StdinState::KeyTaken),
            Some(seen) => seen.taken,
            None => 0,
        };
        let taken = self.take(input, before);
        match at {
            Some(at) => self.seen[at].taken = taken,
            // Nothing was accepted, so there is nothing to deduplicate.
            None if taken == 0 && input.len_with_end() > 0 => {}
            None => self.remember(SeenInput { key: input.key.clone(), content_hash, taken }),
        }
        InputResult {
            accepted: taken.min(input.bytes.len()) as u64,
            complete: taken == input.len_with_end(),
            repeated: at.is_some(),
            queued: self.pending.len() as u64,
            stdin: self.state,
        }
    }

    fn take(&mut self, input: &Input, mut taken: usize) -> usize {
        if self.state != StdinState::Open {
            return taken;
        }
        let rest = input.bytes.get(taken..).unwrap_or_default();
        let fits = rest.len().min(MAX_QUEUE.saturating_sub(self.pending.len()));
        self.pending.extend(&rest[..fits]);
        taken += fits;
        let ends = input.eof && taken == input.bytes.len();
        match self.end_of_input {
            EndOfInput::Close if ends => {
                self.state = StdinState::Ending;
                taken + 1
            }
            EndOfInput::Key(key) if ends && self.pending.len() < MAX_QUEUE => {
                self.pending.push_back(key);
                taken + 1
            }
            _ => taken,
        }
    }

    fn remember(&mut self, seen: SeenInput) {
        if self.seen.len() >= MAX_KEYS {
            self.seen.pop_front();
        }
        self.seen.push_back(seen);
    }

    /// Queues bytes that no client sent: a reply of the terminal emulator. Dropped if the queue is full.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.state == StdinState::Open && self.pending.len() + bytes.len() <= MAX_QUEUE {
            self.pending.extend(bytes);
        }
    }

    /// The next bytes to write.
    pub fn front(&self) -> &[u8] {
        self.pending.as_slices().0
    }

    /// Removes bytes from the front, after they were written.
    pub fn advance(&mut self, count: usize) {
        self.pending.drain(..count.min(self.pending.len()));
    }

    pub fn len(&self) -> usize {
        self.pending.len()
    }

    pub fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Whether everything is written and the pipe is to be closed.
    pub fn should_end(&self) -> bool {
        self.state == StdinState::Ending && self.pending.is_empty()
    }

    pub fn mark_ended(&mut self) {
        self.state = StdinState::Ended;
    }

    /// The reader is gone: drops queued input.
    pub fn mark_broken(&mut self) {
        self.state = StdinState::Broken;
        self.pending = VecDeque::new();
    }

    pub fn state(&self) -> StdinState {
        self.state
    }
}

/// Bytes as base64 text in JSON.
pub(crate) mod as_base64 {
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn input(key: &str, bytes: &[u8]) -> Input {
        Input { key: key.into(), bytes: bytes.into(), eof: false }
    }

    fn written(queue: &mut InputQueue) -> Vec<u8> {
        let mut all = Vec::new();
        while !queue.is_empty() {
            let front = queue.front().to_vec();
            queue.advance(front.len());
            all.extend(front);
        }
        all
    }

    #[test]
    fn l5_an_input_is_applied_once() {
        let mut queue = InputQueue::new(EndOfInput::Close);
        assert!(!queue.accept(&input("a", b"one")).repeated);
        let again = queue.accept(&input("a", b"one"));
        assert!(again.repeated && again.complete && again.accepted == 3);
        assert_eq!(written(&mut queue), b"one");
        assert!(queue.accept(&input("a", b"one")).complete);
        assert_eq!(written(&mut queue), b"");
        assert_eq!(queue.accept(&input("a", b"two")).stdin, StdinState::KeyTaken);
    }

    #[test]
    fn input_that_did_not_fit_continues_where_it_stopped() {
        let mut queue = InputQueue::new(EndOfInput::Close);
        let bytes: Vec<u8> = (0..MAX_QUEUE + 500).map(|at| at as u8).collect();
        let long = Input { key: "long".into(), bytes, eof: true };
        let first = queue.accept(&long);
        assert_eq!((first.accepted, first.complete, first.stdin), (MAX_QUEUE as u64, false, StdinState::Open));
        assert_eq!(queue.accept(&input("other", b"x")).accepted, 0);
        queue.advance(400);
        assert_eq!(queue.accept(&long).accepted, MAX_QUEUE as u64 + 400);
        let mut all = long.bytes[..400].to_vec();
        all.extend(written(&mut queue));
        let last = queue.accept(&long);
        assert!(last.complete && last.stdin == StdinState::Ending);
        all.extend(written(&mut queue));
        assert!(queue.should_end() && all == long.bytes);
    }

    #[test]
    fn no_input_follows_the_end_of_a_pipe_but_it_may_follow_that_of_a_terminal() {
        let end = Input { key: "end".into(), bytes: vec![], eof: true };
        let mut pipe = InputQueue::new(EndOfInput::Close);
        assert!(pipe.accept(&end).complete && pipe.should_end());
        assert_eq!(
            pipe.accept(&input("late", b"x")),
            InputResult { stdin: StdinState::Ending, ..InputResult::rejected(StdinState::Open) }
        );
        let mut terminal = InputQueue::new(EndOfInput::Key(4));
        assert!(terminal.accept(&end).complete && terminal.accept(&input("more", b"x")).complete);
        assert_eq!(written(&mut terminal), [4, b'x']);
    }

    #[test]
    fn the_oldest_keys_are_forgotten_first() {
        let mut queue = InputQueue::new(EndOfInput::Close);
        for number in 0..=MAX_KEYS {
            queue.accept(&input(&number.to_string(), b"x"));
        }
        assert!(queue.accept(&input("1", b"x")).repeated);
        assert!(!queue.accept(&input("0", b"x")).repeated);
    }

    #[test]
    fn every_byte_survives_encoding() {
        let sent = input("k", &(0..=255).collect::<Vec<u8>>());
        let text = serde_json::to_string(&sent).expect("serialises");
        assert_eq!(serde_json::from_str::<Input>(&text).expect("parses"), sent);
    }
}
