//! A Procfile: `name: command` lines, as foreman and overmind read them.

use pinfold_api::types::StartRequest;

use super::Definition;

/// The processes of a Procfile, or the line with an error and the message.
pub(super) fn parse(text: &str) -> Result<Vec<Definition>, (usize, String)> {
    let mut processes: Vec<Definition> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (name, command) = line
            .split_once(':')
            .map(|(name, command)| (name.trim_end(), command.trim()))
            .ok_or_else(|| (number, format!("`{line}` is not `name: command`")))?;
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
        if name.is_empty() || !name.chars().all(is_name) {
            return Err((number, format!("`{name}` is not a process name: use letters, digits, _ and -")));
        }
        if command.is_empty() {
            return Err((number, format!("`{name}` has no command after the colon")));
        }
        if processes.iter().any(|process| process.name == name) {
            return Err((number, format!("`{name}` is in this file twice")));
        }
        let request =
            StartRequest { command: Some(command.into()), name: Some(name.into()), ..StartRequest::default() };
        processes.push(Definition { name: name.into(), depends_on: Vec::new(), request });
    }
    if processes.is_empty() {
        return Err((1, "it has no processes: write lines such as `web: npm run dev`".into()));
    }
    Ok(processes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_process() {
        let processes = parse("# dev\nweb: npm run dev -- --port $PORT\n\nworker-1: make work\n").expect("a Procfile");
        let commands: Vec<_> = processes.iter().map(|process| process.request.command.as_deref()).collect();
        assert_eq!(commands, [Some("npm run dev -- --port $PORT"), Some("make work")]);
    }

    #[test]
    fn a_bad_line_is_named() {
        for (text, line) in [("web npm", 1), ("web: a\nweb: b", 2), ("a b: c", 1), ("\nweb:", 2), ("", 1)] {
            assert_eq!(parse(text).expect_err(text).0, line, "{text}");
        }
    }
}
