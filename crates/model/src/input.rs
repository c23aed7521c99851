//! Input for a process: what a client sends, and the queue in which the keeper holds it until it is written.
//!
//! Invariant L5, *an input is applied once*: every input has a key, and one that comes again under its key goes on
//! where it was left, or does nothing. The queue lives in the keeper, so this holds over the death of daemons.
//! Bounds: [`QUEUE_MOST`] bytes wait, what is beyond is not taken and the answer says how much was; [`KEYS_MOST`]
//! keys are remembered, the oldest are forgotten first.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher};

use serde::{Deserialize, Serialize};

/// Bytes that wait to be written, at most; also the longest input.
pub const QUEUE_MOST: usize = 1 << 20;
/// Inputs that are remembered by their keys.
pub const KEYS_MOST: usize = 256;
/// The longest key.
pub const KEY_MOST: usize = 128;

/// Something to write to a process's stdin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Input {
    /// Tells this input from all others of the process.
    pub key: String,
    #[serde(with = "as_base64")]
    pub bytes: Vec<u8>,
    /// Whether the end follows the bytes.
    #[serde(default)]
    pub eof: bool,
}

/// What became of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Bytes of this input that are held by the keeper or written.
    pub accepted: u64,
    /// Whether that is all of it, and its end too.
    pub complete: bool,
    /// Whether its key was known already.
    pub repeated: bool,
    /// Bytes that wait to be written, of this input and others.
    pub queued: u64,
    pub stdin: Standing,
}

/// How a stdin stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    Open,
    /// Its end was sent, and follows what is queued.
    Ending,
    /// Its end was sent and written.
    Ended,
    /// Nobody in the tree reads it any more.
    Broken,
    /// There is none.
    Absent,
    /// The key belongs to another input.
    KeyTaken,
}

/// What the end of input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The pipe is closed; nothing can follow.
    Close,
    /// A terminal's key for it; more can follow.
    Key(u8),
}

/// Input on its way.
#[derive(Debug)]
pub struct Queue {
    waiting: VecDeque<u8>,
    ending: Ending,
    standing: Standing,
    known: VecDeque<Known>,
}

/// An input that was seen before.
#[derive(Debug)]
struct Known {
    key: String,
    print: u64,
    /// Bytes taken, and one more for its end.
    taken: usize,
}

impl Input {
    /// Its bytes, and one more for its end.
    fn units(&self) -> usize {
        self.bytes.len() + usize::from(self.eof)
    }

    /// Tells it from an input of other content.
    fn print(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        hasher.write(&self.bytes);
        hasher.write_u8(u8::from(self.eof));
        hasher.finish()
    }
}

impl Taken {
    /// The answer where there is nothing to write to.
    pub fn nothing(stdin: Standing) -> Self {
        Self { accepted: 0, complete: false, repeated: false, queued: 0, stdin }
    }
}

impl Queue {
    pub fn new(ending: Ending) -> Self {
        Self { waiting: VecDeque::new(), ending, standing: Standing::Open, known: VecDeque::new() }
    }

    /// Takes as much of an input as there is room for, from where it was left.
    pub fn offer(&mut self, input: &Input) -> Taken {
        let print = input.print();
        let at = self.known.iter().position(|known| known.key == input.key);
        let before = match at.map(|at| &self.known[at]) {
            Some(known) if known.print != print => return Taken::nothing(Standing::KeyTaken),
            Some(known) => known.taken,
            None => 0,
        };
        let taken = self.take(input, before);
        match at {
            Some(at) => self.known[at].taken = taken,
            // One of which nothing was taken has nothing to be repeated.
            None if taken == 0 && input.units() > 0 => {}
            None => self.remember(Known { key: input.key.clone(), print, taken }),
        }
        Taken {
            accepted: taken.min(input.bytes.len()) as u64,
            complete: taken == input.units(),
            repeated: at.is_some(),
            queued: self.waiting.len() as u64,
            stdin: self.standing,
        }
    }

    fn take(&mut self, input: &Input, mut taken: usize) -> usize {
        if self.standing != Standing::Open {
            return taken;
        }
        let rest = input.bytes.get(taken..).unwrap_or_default();
        let fits = rest.len().min(QUEUE_MOST.saturating_sub(self.waiting.len()));
        self.waiting.extend(&rest[..fits]);
        taken += fits;
        let ends = input.eof && taken == input.bytes.len();
        match self.ending {
            Ending::Close if ends => {
                self.standing = Standing::Ending;
                taken + 1
            }
            Ending::Key(key) if ends && self.waiting.len() < QUEUE_MOST => {
                self.waiting.push_back(key);
                taken + 1
            }
            _ => taken,
        }
    }

    fn remember(&mut self, known: Known) {
        if self.known.len() >= KEYS_MOST {
            self.known.pop_front();
        }
        self.known.push_back(known);
    }

    /// Adds bytes that are nobody's input: what a terminal answers by itself. Beyond the bound they are lost.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.standing == Standing::Open && self.waiting.len() + bytes.len() <= QUEUE_MOST {
            self.waiting.extend(bytes);
        }
    }

    /// What is to be written next.
    pub fn front(&self) -> &[u8] {
        self.waiting.as_slices().0
    }

    /// So much of the front was written.
    pub fn wrote(&mut self, count: usize) {
        self.waiting.drain(..count.min(self.waiting.len()));
    }

    /// Bytes that wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether all is written and the end is due.
    pub fn must_end(&self) -> bool {
        self.standing == Standing::Ending && self.waiting.is_empty()
    }

    /// The end was written.
    pub fn ended(&mut self) {
        self.standing = Standing::Ended;
    }

    /// Nobody reads any more: what waits is given up.
    pub fn broke(&mut self) {
        self.standing = Standing::Broken;
        self.waiting = VecDeque::new();
    }

    pub fn standing(&self) -> Standing {
        self.standing
    }
}

/// Bytes as text, for frames of JSON.
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

    fn written(queue: &mut Queue) -> Vec<u8> {
        let mut all = Vec::new();
        while !queue.is_empty() {
            let front = queue.front().to_vec();
            queue.wrote(front.len());
            all.extend(front);
        }
        all
    }

    #[test]
    fn l5_an_input_is_applied_once() {
        let mut queue = Queue::new(Ending::Close);
        assert!(!queue.offer(&input("a", b"one")).repeated);
        let again = queue.offer(&input("a", b"one"));
        assert!(again.repeated && again.complete && again.accepted == 3);
        assert_eq!(written(&mut queue), b"one");
        assert!(queue.offer(&input("a", b"one")).complete);
        assert_eq!(written(&mut queue), b"");
        assert_eq!(queue.offer(&input("a", b"two")).stdin, Standing::KeyTaken);
    }

    #[test]
    fn what_did_not_fit_goes_on_where_it_was_left() {
        let mut queue = Queue::new(Ending::Close);
        let bytes: Vec<u8> = (0..QUEUE_MOST + 500).map(|at| at as u8).collect();
        let long = Input { key: "long".into(), bytes, eof: true };
        let first = queue.offer(&long);
        assert_eq!((first.accepted, first.complete, first.stdin), (QUEUE_MOST as u64, false, Standing::Open));
        assert_eq!(queue.offer(&input("other", b"x")).accepted, 0);
        queue.wrote(400);
        assert_eq!(queue.offer(&long).accepted, QUEUE_MOST as u64 + 400);
        let mut all = long.bytes[..400].to_vec();
        all.extend(written(&mut queue));
        let last = queue.offer(&long);
        assert!(last.complete && last.stdin == Standing::Ending);
        all.extend(written(&mut queue));
        assert!(queue.must_end() && all == long.bytes);
    }

    #[test]
    fn nothing_follows_the_end_of_a_pipe_and_anything_that_of_a_terminal() {
        let end = Input { key: "end".into(), bytes: vec![], eof: true };
        let mut pipe = Queue::new(Ending::Close);
        assert!(pipe.offer(&end).complete && pipe.must_end());
        assert_eq!(
            pipe.offer(&input("late", b"x")),
            Taken { stdin: Standing::Ending, ..Taken::nothing(Standing::Open) }
        );
        let mut terminal = Queue::new(Ending::Key(4));
        assert!(terminal.offer(&end).complete && terminal.offer(&input("more", b"x")).complete);
        assert_eq!(written(&mut terminal), [4, b'x']);
    }

    #[test]
    fn the_oldest_keys_are_forgotten_first() {
        let mut queue = Queue::new(Ending::Close);
        for number in 0..=KEYS_MOST {
            queue.offer(&input(&number.to_string(), b"x"));
        }
        assert!(queue.offer(&input("1", b"x")).repeated);
        assert!(!queue.offer(&input("0", b"x")).repeated);
    }

    #[test]
    fn every_byte_survives_the_wire() {
        let sent = input("k", &(0..=255).collect::<Vec<u8>>());
        let text = serde_json::to_string(&sent).expect("serialises");
        assert_eq!(serde_json::from_str::<Input>(&text).expect("parses"), sent);
    }
}
