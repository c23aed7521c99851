//! Removes terminal queries (cursor position, colours, …) from the output. The daemon answers them; our own terminal must not
//! answer a second time. Everything else is left unchanged.

/// Longest query.
const MAX_QUERY: usize = 256;
const ESC: u8 = 0x1b;
const BEL: u8 = 0x07;

/// Filters a stream that arrives in arbitrary pieces.
#[derive(Debug, Default)]
pub(super) struct QueryFilter {
    /// An unfinished escape sequence.
    held: Vec<u8>,
}

/// State of an escape sequence.
enum Sequence {
    Unfinished,
    Finished,
    /// Not a sequence, or too long for a query.
    NoQuery,
}

impl QueryFilter {
    /// The bytes to show. An unfinished sequence is held back.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut passed = Vec::with_capacity(bytes.len());
        for &byte in bytes {
            if self.held.is_empty() && byte != ESC {
                passed.push(byte);
                continue;
            }
            self.held.push(byte);
            match sequence(&self.held) {
                Sequence::Unfinished => {}
                Sequence::Finished if is_query(&self.held) => self.held.clear(),
                Sequence::Finished | Sequence::NoQuery => passed.append(&mut self.held),
            }
        }
        passed
    }
}

fn sequence(held: &[u8]) -> Sequence {
    let last = held[held.len() - 1];
    match held {
        [_] => Sequence::Unfinished,
        _ if held.len() > MAX_QUERY => Sequence::NoQuery,
        [_, b'[' | b']' | b'P'] => Sequence::Unfinished,
        [_, b'[', ..] => match last {
            0x40..=0x7e => Sequence::Finished,
            0x20..=0x3f => Sequence::Unfinished,
            _ => Sequence::NoQuery,
        },
        [_, b']', ..] if last == BEL => Sequence::Finished,
        [_, b']' | b'P', middle @ ..] if middle.ends_with(b"\x1b\\") => Sequence::Finished,
        [_, b']' | b'P', ..] => Sequence::Unfinished,
        _ => Sequence::NoQuery,
    }
}

fn is_query(sequence: &[u8]) -> bool {
    match sequence {
        [_, b'[', parameters @ .., last] => is_csi_query(parameters, *last),
        [_, b']', rest @ ..] => {
            let body = rest.strip_suffix(b"\x07").or(rest.strip_suffix(b"\x1b\\")).unwrap_or(rest);
            body.ends_with(b";?")
        }
        [_, b'P', rest @ ..] => rest.starts_with(b"+q") || rest.starts_with(b"$q"),
        _ => false,
    }
}

fn is_csi_query(parameters: &[u8], last: u8) -> bool {
    match last {
        b'c' => matches!(parameters, b"" | b"0") || parameters.starts_with(b">") || parameters.starts_with(b"="),
        b'n' => true,
        b'q' => parameters.starts_with(b">"),
        b'u' => parameters == b"?",
        b'p' => parameters.ends_with(b"$"),
        b't' => matches!(parameters, b"11" | b"13" | b"14" | b"15" | b"16" | b"18" | b"19" | b"20" | b"21"),
        b'x' => matches!(parameters, b"" | b"0" | b"1"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(pieces: &[&[u8]]) -> Vec<u8> {
        let mut filter = QueryFilter::default();
        pieces.iter().flat_map(|piece| filter.pass(piece)).collect()
    }

    #[test]
    fn queries_are_removed_however_they_are_split() {
        let queries: &[&[u8]] = &[
            b"\x1b[c",
            b"\x1b[0c",
            b"\x1b[>c",
            b"\x1b[5n",
            b"\x1b[?6n",
            b"\x1b[>q",
            b"\x1b[>0q",
            b"\x1b[?u",
            b"\x1b[?2026$p",
            b"\x1b[18t",
            b"\x1b]11;?\x07",
            b"\x1b]10;?\x1b\\",
            b"\x1bP+q544e\x1b\\",
            b"\x1bP$qm\x1b\\",
        ];
        for query in queries {
            let all = [b"a", *query, b"b"].concat();
            assert_eq!(passed(&[&all]), b"ab", "{query:?}");
            let single: Vec<&[u8]> = all.chunks(1).collect();
            assert_eq!(passed(&single), b"ab", "{query:?}");
        }
    }

    #[test]
    fn everything_else_passes_as_it_is() {
        let drawing: &[u8] = b"\x1b[2J\x1b[1;31mred\x1b[0m\x1b[?1049h\x1b]0;title\x07\x1b(B\x1b7\x1b8\x1b[>4;1m\x1b[6 q\x1bM\xc3\xa9\r\n";
        assert_eq!(passed(&[drawing]), drawing);
        let single: Vec<&[u8]> = drawing.chunks(1).collect();
        assert_eq!(passed(&single), drawing);
        let picture = [b"\x1bPq".as_slice(), &[b'x'; 5000], b"\x1b\\"].concat();
        assert_eq!(passed(&[&picture]), picture);
    }
}
