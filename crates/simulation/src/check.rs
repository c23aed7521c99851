//! What must hold at every step, whatever happens.

use pinfold_model::id::ProcessId;

use crate::machine::State;

/// How a frame with a fact begins, after its length.
const FACT: &[u8] = br#"{"say":"fact","id":""#;
const BETWEEN: &[u8] = br#"","fact":"#;

/// K1: what a keeper sends as a fact is in the record already, word for word.
pub fn sent_by_keeper(state: &mut State, bytes: &[u8]) {
    let mut rest = bytes;
    while let Some(at) = find(rest, FACT) {
        rest = &rest[at + FACT.len()..];
        let (Some(middle), Some(end)) = (find(rest, BETWEEN), frame_end(bytes, rest)) else { return };
        let id = std::str::from_utf8(&rest[..middle]).ok().and_then(|id| ProcessId::parse(id).ok());
        let json = rest.get(middle + BETWEEN.len()..end);
        let (Some(id), Some(json)) = (id, json) else { return };
        let written = state.records.get(&id).is_some_and(|inode| holds_line(&inode.borrow().bytes, json));
        if !written {
            let fact = String::from_utf8_lossy(json).into_owned();
            state.broken.get_or_insert(format!("K1: {id} is said to have {fact}, which is not in its record"));
        }
    }
}

/// Where the fact of a frame ends that begins in `bytes` just before `rest`: one brace before the frame's end.
fn frame_end(bytes: &[u8], rest: &[u8]) -> Option<usize> {
    let begin = bytes.len() - rest.len() - FACT.len();
    let header = bytes.get(begin.checked_sub(4)?..begin)?;
    let length = u32::from_le_bytes(header.try_into().ok()?) as usize;
    let end = length.checked_sub(FACT.len() + 1)?;
    (end <= rest.len()).then_some(end)
}

/// Whether the record holds this JSON as a whole line.
fn holds_line(record: &[u8], json: &[u8]) -> bool {
    record
        .split_inclusive(|byte| *byte == b'\n')
        .any(|line| line.len() == 9 + json.len() + 1 && line.ends_with(b"\n") && &line[9..line.len() - 1] == json)
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}
