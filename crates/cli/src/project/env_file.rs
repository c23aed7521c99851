//! Environment files: `NAME=value` lines, as docker compose and foreman read them.
//!
//! A value may be quoted: in single quotes it is taken as it is; in double quotes `\n`, `\t`, `\"`, `\\` and `\$` are escapes. An
//! unquoted value ends before ` #`. `export ` before a name is allowed. There is no substitution of variables.

use super::Variables;

/// The variables of a file, or the line with an error and the message.
pub(super) fn parse(text: &str) -> Result<Variables, (usize, String)> {
    let mut variables = Variables::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").map_or(line, str::trim_start);
        let (name, value) = line
            .split_once('=')
            .ok_or_else(|| (number, format!("`{line}` is not NAME=value; a comment begins with #")))?;
        let name = name.trim_end();
        let is_name = |name: &str| {
            !name.is_empty()
                && !name.starts_with(|first: char| first.is_ascii_digit())
                && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
        };
        if !is_name(name) {
            return Err((number, format!("`{name}` is not a variable name: use letters, digits and _")));
        }
        let value = parse_value(value.trim_start()).map_err(|message| (number, format!("{name}: {message}")))?;
        variables.insert(name.to_owned(), value);
    }
    Ok(variables)
}

fn parse_value(text: &str) -> Result<String, String> {
    let (value, rest) = match text.chars().next() {
        Some('\'') => {
            let (value, rest) = text[1..].split_once('\'').ok_or("the closing ' is missing on this line")?;
            (value.to_owned(), rest)
        }
        Some('"') => unescape(&text[1..])?,
        _ => {
            let end = text.find(" #").or_else(|| text.find("\t#")).unwrap_or(text.len());
            return Ok(text[..end].trim_end().to_owned());
        }
    };
    match rest.trim_start() {
        "" => Ok(value),
        rest if rest.starts_with('#') => Ok(value),
        rest => Err(format!("`{rest}` after the closing quote: quote the whole value")),
    }
}

/// The value up to the closing double quote, and the rest of the line.
fn unescape(text: &str) -> Result<(String, &str), String> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((value, &text[at + 1..])),
            '\\' => match letters.next() {
                Some((_, 'n')) => value.push('\n'),
                Some((_, 't')) => value.push('\t'),
                Some((_, escaped @ ('"' | '\\' | '$'))) => value.push(escaped),
                Some((_, other)) => value.extend(['\\', other]),
                None => break,
            },
            letter => value.push(letter),
        }
    }
    Err("the closing \" is missing on this line".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_with_and_without_quotes() {
        let text = "# comment\n\nexport A=1\nB = two words # note\nC='a # b' # c\nD=\"x\\n\\\"y\\\" \\q\"\nE=\nF=a#b\n";
        let variables = parse(text).expect("a good file");
        let value = |name: &str| variables[name].as_str();
        assert_eq!(["A", "B", "C", "D", "E", "F"].map(value), ["1", "two words", "a # b", "x\n\"y\" \\q", "", "a#b"]);
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line, word) in [
            ("A=1\nB", 2, "not NAME=value"),
            ("1A=1", 1, "not a variable name"),
            ("\nA='x", 2, "closing '"),
            ("A=\"x\\", 1, "closing \""),
            ("A='x'y", 1, "after the closing quote"),
        ] {
            let (at, message) = parse(text).expect_err(text);
            assert!(at == line && message.contains(word), "{text}: {at}: {message}");
        }
    }
}
