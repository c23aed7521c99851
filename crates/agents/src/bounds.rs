//! How much of an agent's words is kept: every list and text here is cut, and says so (G2).

use pinfold_api::types::{ToolCall, Turn};

/// A message of an agent is not longer.
pub const FRAME_MOST: usize = 16 << 20;
/// The last message of a turn, in bytes.
pub const TEXT_MOST: usize = 1 << 20;
/// Tool calls listed with a turn.
pub const TOOLS_MOST: usize = 256;
/// What a tool was called with, or gave back, in characters.
pub const DETAIL_MOST: usize = 2000;
/// Notices kept.
pub const NOTICES_MOST: usize = 20;
/// Asks that wait for an answer; more are denied.
pub const ASKS_MOST: usize = 64;
/// Bytes of all asks that wait for an answer together; one that would be beyond is denied.
pub const ASKS_BYTES_MOST: usize = 4 << 20;
/// Lines that are no message, before the agent is given up.
pub const GARBAGE_MOST: u32 = 20;

/// The text, cut to so many bytes at a character, with what is left out said.
pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = (0..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    format!("{} […{} bytes left out]", &text[..end], text.len() - end)
}

/// The first characters of a line that is no message.
pub fn glimpse(line: &[u8]) -> String {
    String::from_utf8_lossy(&line[..line.len().min(200)]).trim().chars().take(80).collect()
}

/// Adds a tool call to a turn, or what came of one that is there.
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
    } else if turn.tools.len() < TOOLS_MOST {
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
        for number in 0..TOOLS_MOST + 3 {
            let call = ToolCall { id: number.to_string(), failed: Some(false), ..ToolCall::default() };
            note_tool(&mut turn, &call);
        }
        assert_eq!((turn.tools.len(), turn.tools_left_out), (TOOLS_MOST, 3));
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
