//! Maximum sizes of what an agent sends. Longer lists and texts are cut and marked as cut
//! (invariant G2, see the crate's documentation).

use pinfold_api::types::{ToolCall, Turn};

/// One message of an agent, in bytes; a longer one fails the agent.
pub const MAX_FRAME: usize = 16 << 20;
/// The last message of a turn, in bytes; the rest is cut.
pub const MAX_TEXT: usize = 1 << 20;
/// Tool calls listed with a turn; more are only counted.
pub const MAX_TOOLS: usize = 256;
/// Arguments or result of a tool call, in bytes; the rest is cut.
pub const MAX_DETAIL: usize = 2000;
/// An id or a version that the agent reports, in bytes. It is repeated in messages and lists, so a longer one fails the
/// agent; the id of a tool call is cut.
pub const MAX_ID: usize = 1000;
/// Notices kept; older ones are dropped.
pub const MAX_NOTICES: usize = 20;
/// Unanswered permission requests; more are denied.
pub const MAX_ASKS: usize = 64;
/// Total bytes of unanswered permission requests; one that would exceed it is denied.
pub const MAX_ASKS_BYTES: usize = 4 << 20;
/// Lines that are not messages; one more fails the agent.
pub const MAX_GARBAGE: u32 = 20;

/// Cuts the text to at most `max` bytes at a character boundary, and appends how much was left out.
pub fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let end = (0..=max).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{} […{} bytes left out]", &text[..end], text.len() - end)
}

/// Why the agent fails if an id is longer than [`MAX_ID`]; `None` if it is not.
pub fn long_id(id: &str) -> Option<String> {
    (id.len() > MAX_ID).then(|| format!("it sent an id of {} bytes, at most {MAX_ID} are allowed", id.len()))
}

/// The first characters of a line that is not a message, for an error text.
pub fn glimpse(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(200)]).trim().chars().take(80).collect()
}

/// Adds a tool call to a turn, or the result to a call that is already there.
pub fn note_tool(turn: &mut Turn, call: &ToolCall) {
    if let Some(known) = turn.tools.iter_mut().find(|known| known.id == call.id && known.failed.is_none()) {
        if !call.name.is_empty() {
            known.name.clone_from(&call.name);
        }
        if !call.input.is_empty() {
            known.input.clone_from(&call.input);
        }
        known.output = call.output.clone().or_else(|| known.output.take());
        known.exit_code = call.exit_code.or(known.exit_code);
        known.failed = call.failed;
    } else if turn.tools.len() < MAX_TOOLS {
        turn.tools.push(call.clone());
    } else if call.failed.is_some() {
        turn.tools_left_out += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_cut_at_a_character_and_says_so() {
        assert_eq!(cut("short", 10), "short");
        assert_eq!(cut("ääää", 3), "ä […6 bytes left out]");
    }

    #[test]
    fn g2_every_message_list_and_text_of_an_agent_has_a_bound() {
        let mut turn = Turn::default();
        for number in 0..MAX_TOOLS + 3 {
            let call = ToolCall { id: number.to_string(), failed: Some(false), ..ToolCall::default() };
            note_tool(&mut turn, &call);
        }
        assert_eq!((turn.tools.len(), turn.tools_left_out), (MAX_TOOLS, 3));
        assert!(long_id(&"x".repeat(MAX_ID)).is_none() && long_id(&"x".repeat(MAX_ID + 1)).is_some());
    }

    #[test]
    fn a_result_joins_its_call() {
        let mut turn = Turn::default();
        note_tool(
            &mut turn,
            &ToolCall { id: "a".into(), name: "Bash".into(), input: "ls".into(), ..ToolCall::default() },
        );
        let result = ToolCall { id: "a".into(), output: Some("x".into()), failed: Some(true), ..ToolCall::default() };
        note_tool(&mut turn, &result);
        assert_eq!(turn.tools.len(), 1);
        assert_eq!((turn.tools[0].name.as_str(), turn.tools[0].failed), ("Bash", Some(true)));
    }
}
