//! Parses server-sent events from chunks of bytes that may be split anywhere. Only `data` is returned: it contains the
//! number and the kind of an event, so `id` and `event` are not needed.
//!
//! A message larger than [`MAX_MESSAGE`] is an error, so that the buffer cannot grow without limit.

/// Maximum size of one message in bytes.
pub(super) const MAX_MESSAGE: usize = 1 << 20;

/// A message exceeded [`MAX_MESSAGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than {MAX_MESSAGE} bytes")]
pub(super) struct TooLarge;

/// Assembles bytes into the data of messages.
#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The incomplete line.
    line: Vec<u8>,
    /// Whether the last byte was a carriage return: a line feed right after it does not end another line.
    after_cr: bool,
    /// The data of the incomplete message; `None` until it has a `data` field.
    data: Option<String>,
}

impl Parser {
    /// Adds bytes and returns the data of the messages that they complete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<String>, TooLarge> {
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
            if self.line.len() + self.data.as_ref().map_or(0, String::len) > MAX_MESSAGE {
                return Err(TooLarge);
            }
        }
        Ok(complete)
    }

    fn end_line(&mut self) -> Option<String> {
        let line = std::mem::take(&mut self.line);
        if line.is_empty() {
            return self.data.take();
        }
        let line = String::from_utf8_lossy(&line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        // A comment (keep-alive) has an empty field name.
        if field == "data" {
            match &mut self.data {
                Some(data) => data.extend(["\n", value]),
                none => *none = Some(value.to_owned()),
            }
        }
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b": hello\n\nid: 7\nevent: finished\ndata: {\"a\":1,\ndata:  \"b\":\"\xc3\xa9\"}\n\n:ka\nid: 8\r\ndata: x\r\n\r\nevent: no data\n\ndata: cut";

    const EXPECTED: [&str; 2] = ["{\"a\":1,\n \"b\":\"é\"}", "x"];

    #[test]
    fn messages_are_complete_wherever_the_stream_is_split() {
        for cut in 0..STREAM.len() {
            let mut parser = Parser::default();
            let mut messages = parser.feed(&STREAM[..cut]).unwrap();
            messages.extend(parser.feed(&STREAM[cut..]).unwrap());
            assert_eq!(messages, EXPECTED, "cut at {cut}");
        }
    }

    #[test]
    fn a_stream_of_single_bytes_is_read() {
        let mut parser = Parser::default();
        let messages: Vec<_> = STREAM.iter().flat_map(|byte| parser.feed(&[*byte]).unwrap()).collect();
        assert_eq!(messages, EXPECTED);
    }

    #[test]
    fn a_message_beyond_the_maximum_is_an_error() {
        let mut parser = Parser::default();
        assert_eq!(parser.feed(&vec![b'x'; MAX_MESSAGE + 1]), Err(TooLarge));
    }
}
