//! A message that is longer than any may be: it is not kept, but a request among such is answered, so that its sender does
//! not wait for ever.
//!
//! Clients write the id first or last. Both ends of the message are kept, and the id is looked for in them.

/// Bytes kept of each end.
const END: usize = 64 << 10;
/// A request of this method stands for one that was too long.
pub(crate) const METHOD: &str = "pinfold/overlong";

/// The two ends of a message whose middle was dropped.
#[derive(Debug)]
pub(crate) struct Overlong {
    head: Vec<u8>,
    tail: Vec<u8>,
}

impl Overlong {
    /// A message that has become too long; this is what was read of it.
    pub(crate) fn new(read: &[u8]) -> Self {
        let mut overlong = Self { head: read[..read.len().min(END)].to_vec(), tail: vec![] };
        overlong.push(&read[overlong.head.len()..]);
        overlong
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(&bytes[bytes.len().saturating_sub(END)..]);
        let surplus = self.tail.len().saturating_sub(END);
        self.tail.drain(..surplus);
    }

    /// A request in its place, for the server to refuse; nothing if it was no request, or if its id is not to be found.
    pub(crate) fn substitute(&self) -> Option<String> {
        let id = id_in_head(&self.head).or_else(|| id_in_tail(&self.tail))?;
        Some(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{METHOD}\"}}\n"))
    }
}

/// The id among the first fields of an object.
fn id_in_head(head: &[u8]) -> Option<String> {
    let (mut depth, mut at) = (0_u32, 0);
    while at < head.len() {
        match head[at] {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            b'"' => {
                let end = end_of_text(head, at)?;
                let is_key = after_blanks(head, end).is_some_and(|next| head[next] == b':');
                if depth == 1 && is_key && &head[at..end] == b"\"id\"" {
                    let value = after_blanks(head, after_blanks(head, end)? + 1)?;
                    return scalar(&head[value..]).map(|(id, _)| id);
                }
                at = end - 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The id as the last field of an object that ends here.
fn id_in_tail(tail: &[u8]) -> Option<String> {
    let whole = tail.trim_ascii_end().strip_suffix(b"}")?;
    let key = b"\"id\"";
    let at = whole.windows(key.len()).rposition(|found| found == key)?;
    let value = whole[at + key.len()..].trim_ascii_start().strip_prefix(b":")?.trim_ascii_start();
    let (id, length) = scalar(value)?;
    value[length..].trim_ascii().is_empty().then_some(id)
}

/// A number or a text at the beginning, as it is written, and its length.
fn scalar(bytes: &[u8]) -> Option<(String, usize)> {
    let length = match bytes.first()? {
        b'"' => end_of_text(bytes, 0)?,
        _ => bytes.iter().position(|byte| !(byte.is_ascii_digit() || *byte == b'-')).unwrap_or(bytes.len()),
    };
    let id: serde_json::Value = serde_json::from_slice(&bytes[..length]).ok()?;
    (id.is_i64() || id.is_string()).then(|| (id.to_string(), length))
}

/// The place after the text that begins here.
fn end_of_text(bytes: &[u8], begin: usize) -> Option<usize> {
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

fn after_blanks(bytes: &[u8], from: usize) -> Option<usize> {
    (from..bytes.len()).find(|at| !bytes[*at].is_ascii_whitespace())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn substituted(message: &str) -> Option<String> {
        let bytes = message.as_bytes();
        let mut overlong = Overlong::new(&bytes[..bytes.len() / 3]);
        bytes[bytes.len() / 3..].chunks(1000).for_each(|piece| overlong.push(piece));
        overlong.substitute()
    }

    #[test]
    fn the_id_is_found_first_or_last() {
        let long = "x".repeat(300_000);
        let stands_for = |id: &str| Some(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"method\":\"{METHOD}\"}}\n"));
        let first = format!(r#"{{"jsonrpc":"2.0","id" : 7,"params":{{"id":1,"text":"{long}"}}}}"#);
        assert_eq!(substituted(&first), stands_for("7"));
        let last = format!(r#"{{"method":"m","params":{{"id":1,"text":"{long}"}},"jsonrpc":"2.0","id":"a\"b"}}  "#);
        assert_eq!(substituted(&last), stands_for(r#""a\"b""#));
        let inner = format!(r#"{{"method":"m","params":{{"text":"{long}","id":1}}}}"#);
        assert_eq!(substituted(&inner), None, "that id is of the arguments");
        assert_eq!(substituted(&long), None);
        assert_eq!(substituted(&format!(r#"{{"id":null,"text":"{long}"}}"#)), None);
    }
}
