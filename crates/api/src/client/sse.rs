//! Parses server-sent events from chunks of bytes that may be split anywhere.
//!
//! A message larger than [`MAX_MESSAGE`] is an error, so that the buffer cannot grow without limit.

/// Maximum size of one message in bytes.
pub(super) const MAX_MESSAGE: usize = 1 << 20;

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) id: Option<String>,
    pub(super) event: Option<String>,
    pub(super) data: String,
}

/// A message exceeded [`MAX_MESSAGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {MAX_MESSAGE} bytes")]
pub(super) struct TooLarge;

/// Assembles bytes into messages.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The incomplete line.
    line: Vec<u8>,
    /// Whether the last byte was a carriage return: a line feed right after it does not end another line.
    after_cr: bool,
    /// The incomplete message, and whether it has data.
    open: Message,
    has_data: bool,
}

impl Parser {
    /// Adds bytes and returns the messages that they complete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Message>, TooLarge> {
        let mut complete = Vec::new();
        for &byte in bytes {
            let follows_cr = std::mem::take(&mut self.after_cr);
            match byte {
                b'\n' if follows_cr => {}
                b'\n' | b'\r' => {
                    self.after_cr = byte == b'\r';
                    complete.extend(self.end_line());
                }
                _ => self.line.push(byte),
            }
            if self.line.len() + self.open.data.len() > MAX_MESSAGE {
                return Err(TooLarge);
            }
        }
        Ok(complete)
    }

    fn end_line(&mut self) -> Option<Message> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            let message = std::mem::take(&mut self.open);
            return std::mem::take(&mut self.has_data).then_some(message);
        }
        let line = String::from_utf8_lossy(&line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.open.id = Some(value.to_owned()),
            "event" => self.open.event = Some(value.to_owned()),
            "data" => {
                if self.has_data {
                    self.open.data.push('\n');
                }
                self.open.data.push_str(value);
                self.has_data = true;
            }
            // A comment (keep-alive) has an empty field name; other fields are ignored.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b": hello\n\nid: 7\nevent: finished\ndata: {\"a\":1,\ndata:  \"b\":\"\xc3\xa9\"}\n\n:ka\nid: 8\r\ndata: x\r\n\r\nevent: no data\n\ndata: cut";

    fn expected() -> Vec<Message> {
        vec![
            Message { id: Some("7".into()), event: Some("finished".into()), data: "{\"a\":1,\n \"b\":\"é\"}".into() },
            Message { id: Some("8".into()), event: None, data: "x".into() },
        ]
    }

    #[test]
    fn messages_are_complete_wherever_the_stream_is_split() {
        for cut in 0..STREAM.len() {
            let mut parser = Parser::default();
            let mut messages = parser.feed(&STREAM[..cut]).unwrap();
            messages.extend(parser.feed(&STREAM[cut..]).unwrap());
            assert_eq!(messages, expected(), "cut at {cut}");
        }
    }

    #[test]
    fn a_stream_of_single_bytes_is_read() {
        let mut parser = Parser::default();
        let messages: Vec<_> = STREAM.iter().flat_map(|byte| parser.feed(&[*byte]).unwrap()).collect();
        assert_eq!(messages, expected());
    }

    #[test]
    fn a_message_beyond_the_maximum_is_an_error() {
        let mut parser = Parser::default();
        assert_eq!(parser.feed(&vec![b'x'; MAX_MESSAGE + 1]), Err(TooLarge));
    }
}
