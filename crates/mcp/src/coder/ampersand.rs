//! Detects a command that ends with `&`, which runs it in the background.
//!
//! The text is scanned as a shell does: quotes, escapes, comments, substitutions and here-documents. Only an `&` that
//! is the shell's last token counts. A mistake only changes whether the call waits: pinfold tracks all descendants
//! either way.

/// Returns the command without its trailing `&`, if that `&` runs it in the background.
pub(super) fn without_trailing_ampersand(command: &str) -> Option<&str> {
    let end = Reader { bytes: command.as_bytes(), at: 0, heredocs: Vec::new() }.last_ampersand()?;
    let rest = command[..end].trim();
    (!rest.is_empty()).then_some(rest)
}

/// A here-document: its delimiter, and whether leading tabs are ignored (`<<-`).
struct HereDoc {
    end: Vec<u8>,
    tabs: bool,
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Here-documents that start on the next line.
    heredocs: Vec<HereDoc>,
}

impl Reader<'_> {
    /// Returns the position of an `&` that is the last token.
    fn last_ampersand(mut self) -> Option<usize> {
        let mut last = None;
        let mut word = false;
        while let Some(byte) = self.next() {
            let started_at = self.at - 1;
            let was_in_word = std::mem::replace(&mut word, false);
            match byte {
                b' ' | b'\t' | b'\r' => continue,
                b'\n' => {
                    // A here-document after the `&` belongs to the command, so the `&` cannot be cut off.
                    last = last.filter(|_| self.heredocs.is_empty());
                    self.skip_heredocs()?;
                    continue;
                }
                b'#' if !was_in_word => {
                    self.skip_while(|byte| byte != b'\n');
                    continue;
                }
                // A line continuation is not a token.
                b'\\' if self.peek() == Some(b'\n') => {
                    self.at += 1;
                    word = was_in_word;
                    continue;
                }
                b'&' if self.peek() == Some(b'&') => self.at += 1,
                b'&' => {
                    last = Some(started_at);
                    continue;
                }
                b'|' | b'<' | b'>' if self.peek() == Some(b'&') => self.at += 1,
                b'<' if self.peek() == Some(b'<') => self.begin_heredoc(),
                b'|' | b';' | b'<' | b'>' | b')' => {}
                _ => {
                    self.skip_piece(byte)?;
                    word = true;
                }
            }
            last = None;
        }
        last.filter(|_| self.heredocs.is_empty())
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn skip_while(&mut self, mut fits: impl FnMut(u8) -> bool) {
        while self.peek().is_some_and(&mut fits) {
            self.at += 1;
        }
    }

    /// Skips the quote or substitution that this byte opens. Returns `None` if it is never closed.
    fn skip_piece(&mut self, byte: u8) -> Option<()> {
        match byte {
            b'\\' => self.next().map(drop),
            b'\'' => self.skip_to(b'\''),
            b'"' => self.skip_double(),
            b'`' => self.skip_escaped_to(b'`'),
            b'$' => match self.peek() {
                Some(b'(') => self.skip_nested(b'(', b')'),
                Some(b'{') => self.skip_nested(b'{', b'}'),
                _ => Some(()),
            },
            _ => Some(()),
        }
    }

    fn skip_to(&mut self, end: u8) -> Option<()> {
        self.skip_while(|byte| byte != end);
        self.next().map(drop)
    }

    fn skip_escaped_to(&mut self, end: u8) -> Option<()> {
        loop {
            match self.next()? {
                b'\\' => self.next().map(drop)?,
                byte if byte == end => return Some(()),
                _ => {}
            }
        }
    }

    fn skip_double(&mut self) -> Option<()> {
        loop {
            match self.next()? {
                b'"' => return Some(()),
                byte @ (b'\\' | b'`' | b'$') => self.skip_piece(byte)?,
                _ => {}
            }
        }
    }

    /// Skips to after the bracket that closes the next one.
    fn skip_nested(&mut self, open: u8, close: u8) -> Option<()> {
        let mut depth = 0;
        loop {
            let byte = self.next()?;
            if byte == open {
                depth += 1;
            } else if byte == close {
                depth -= 1;
                if depth == 0 {
                    return Some(());
                }
            } else {
                self.skip_piece(byte)?;
            }
        }
    }

    /// After `<<`: records the delimiter of the here-document.
    fn begin_heredoc(&mut self) {
        self.at += 1;
        if self.peek() == Some(b'<') {
            // `<<<` (bash): a here-string, not a here-document.
            self.at += 1;
            return;
        }
        let tabs = self.peek() == Some(b'-');
        self.at += usize::from(tabs);
        self.skip_while(|byte| matches!(byte, b' ' | b'\t'));
        let mut end = Vec::new();
        while let Some(byte) = self.peek().filter(|byte| !b" \t\n;&|<>()".contains(byte)) {
            self.at += 1;
            if !matches!(byte, b'\'' | b'"' | b'\\') {
                end.push(byte);
            }
        }
        self.heredocs.push(HereDoc { end, tabs });
    }

    /// At the start of a line: skips the here-documents that start there. Returns `None` if one does not end.
    fn skip_heredocs(&mut self) -> Option<()> {
        for heredoc in std::mem::take(&mut self.heredocs) {
            loop {
                let rest = self.bytes.get(self.at..).filter(|rest| !rest.is_empty())?;
                let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                let line = &rest[..length];
                self.at += (length + 1).min(rest.len());
                let tabs = if heredoc.tabs { line.iter().take_while(|byte| **byte == b'\t').count() } else { 0 };
                if line[tabs..] == heredoc.end {
                    break;
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trailing_ampersand_is_removed() {
        for (command, rest) in [
            ("cmd &", "cmd"),
            ("cmd&", "cmd"),
            ("  cmd 1 2 &  \n", "cmd 1 2"),
            ("cmd1 && cmd2 &", "cmd1 && cmd2"),
            ("a & b &", "a & b"),
            ("(a; b) &", "(a; b)"),
            ("cmd & # later", "cmd"),
            ("echo 'x' \"y\" $(z) `w` ${v} &", "echo 'x' \"y\" $(z) `w` ${v}"),
            ("cmd >log 2>&1 &", "cmd >log 2>&1"),
            ("echo a#b &", "echo a#b"),
            ("cat <<EOF\nhello\nEOF\nserver &", "cat <<EOF\nhello\nEOF\nserver"),
        ] {
            assert_eq!(without_trailing_ampersand(command), Some(rest), "{command}");
        }
    }

    #[test]
    fn any_other_ampersand_is_kept() {
        for command in [
            "cmd",
            "cmd &&",
            "cmd |&",
            "cmd >&",
            "echo a \\&",
            "echo hi #&",
            "echo hi # x &",
            "echo 'a &",
            "echo 'a &'",
            "echo \"a &\"",
            "echo \"a &",
            "echo $(a &)",
            "(cmd &)",
            "{ cmd & }",
            "cmd & echo $!",
            "cmd & disown",
            "cat <<EOF\nhello &",
            "cat <<'EOF'\nhello &\nEOF",
            "cat <<-EOF\n\thello &\n\tEOF",
            "cat <<EOF &\nhello &\nEOF\n",
            "cmd & \\\necho x",
            "cmd &;",
            "&",
            " & ",
            "",
        ] {
            assert_eq!(without_trailing_ampersand(command), None, "{command}");
        }
    }
}
