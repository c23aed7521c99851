//! Handles a message that is longer than the maximum. Its content is dropped, but if it is a request, the client gets
//! an error instead of waiting forever.
//!
//! Clients write the JSON-RPC id as the first or the last field. We keep both ends of the message and search them for
//! the id.

/// Number of bytes kept of each end.
const KEPT_BYTES: usize = 64 << 10;
/// Method of the placeholder request that replaces an oversized request.
pub(crate) const METHOD: &str = "pinfold/oversizedMessage";

/// The two ends of an oversized message.
#[derive(Debug)]
pub(crate) struct OversizedMessage {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl OversizedMessage {
    /// Starts with the part of the message that was read so far.
    pub(crate) fn new(read: &[u8]) -> Self {
        let mut message = Self { head: read[..read.len().min(KEPT_BYTES)].to_vec(), tail: vec![] };
        message.push(&read[message.head.len()..]);
        message
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(KEPT_BYTES)..]);
        let surplus = self.tail.len().saturating_sub(KEPT_BYTES);
        self.tail.drain(..surplus);
    }

    /// Returns a short request with the same id, which the server answers with an error. Returns `None` if the message
    /// is not a request or its id cannot be found.
    pub(crate) fn placeholder_request(&self) -> Option<String> {
        let id = id_in_head(&self.head).or_else(|| id_in_tail(&self.tail))?;
        Some(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{METHOD}\"}}\n"))
    }
}

/// Finds a top-level `id` in the head of the message.
fn id_in_head(head: &[u8]) -> Option<String> {
    let (mut depth, mut at) = (0_u32, 0);
    while at < head.len() {
        match head[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => {
                let end = end_of_string(head, at)?;
                let is_key = skip_whitespace(head, end).is_some_and(|next| head[next] == b':');
                if depth == 1 && is_key && &head[at..end] == b"\"id\"" {
                    let value = skip_whitespace(head, skip_whitespace(head, end)? + 1)?;
                    return parse_id(&head[value..]).map(|(id, _)| id);
                }
                at = end - 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Finds the `id` if it is the last field of the message.
fn id_in_tail(tail: &[u8]) -> Option<String> {
    let whole = tail.trim_ascii_end().strip_suffix(b"}")?;
    let key = b"\"id\"";
    let at = whole.windows(key.len()).rposition(|found| found == key)?;
    let value = whole[at + key.len()..].trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let (id, length) = parse_id(value)?;
    value[length..].trim_ascii().is_empty().then_some(id)
}

/// Parses a number or string at the start; returns its JSON and its length in bytes.
fn parse_id(bytes: &[u8]) -> Option<(String, usize)> {
    let length = match bytes.first()? {
        b'"' => end_of_string(bytes, 0)?,
        _ => bytes.iter().position(|byte| !(byte.is_ascii_digit() || *byte == b'-')).unwrap_or(bytes.len()),
    };
    let id: serde_json::Value = serde_json::from_slice(&bytes[..length]).ok()?;
    (id.is_i64() || id.is_string()).then(|| (id.to_string(), length))
}

/// Returns the index after the JSON string that starts at `begin`.
fn end_of_string(bytes: &[u8], begin: usize) -> Option<usize> {
    let mut at = begin + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 1,
            b'"' => return Some(at + 1),
            _ => {}
        }
        at += 1;
    }
    None
}

fn skip_whitespace(bytes: &[u8], from: usize) -> Option<usize> {
    (from..bytes.len()).find(|at| !bytes[*at].is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placeholder(message: &str) -> Option<String> {
        let bytes = message.as_bytes();
        let mut message = OversizedMessage::new(&bytes[..bytes.len() / 3]);
        bytes[bytes.len() / 3..].chunks(1000).for_each(|piece| message.push(piece));
        message.placeholder_request()
    }

    #[test]
    fn the_id_is_found_as_first_or_last_field() {
        let long = "x".repeat(300_000);
        let expected = |id: &str| Some(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{METHOD}\"}}\n"));
        let first = format!(r#"{{"jsonrpc":"2.0","id" : 7,"params":{{"id":1,"text":"{long}"}}}}"#);
        assert_eq!(placeholder(&first), expected("7"));
        let last = format!(r#"{{"method":"m","params":{{"id":1,"text":"{long}"}},"jsonrpc":"2.0","id":"a\"b"}}  "#);
        assert_eq!(placeholder(&last), expected(r#""a\"b""#));
        let inner = format!(r#"{{"method":"m","params":{{"text":"{long}","id":1}}}}"#);
        assert_eq!(placeholder(&inner), None, "an id inside params is not the request id");
        assert_eq!(placeholder(&long), None);
        assert_eq!(placeholder(&format!(r#"{{"id":null,"text":"{long}"}}"#)), None);
    }
}
