//! `send`: send text, keys or end of file to the stdin of a process.

use clap::Args;
use pinfold_api::types::InputRequest;

use super::copy_stdin;
use crate::commands::run::fresh_key;
use crate::console::Console;
use crate::exit;
use crate::failure::Failure;
use crate::render::quantity::render_size;
use crate::session::Session;

/// Send input to a process started with `run --stdin` or `run --pty`
///
/// Text is sent unchanged: add --enter to end the line. Order: text, then keys, then end of file.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold send repl 'print(6 * 7)' --enter\n  pinfold send repl --key ctrl+c --key up\n  \
                        pinfold send filter - --eof < data.bin\n\n\
                        Exit code: 0 if all of it is queued (it will be written even if the daemon dies); 1 if the\n\
                        process does not read and its queue of 1 MiB is full; 2 if it has no stdin or has closed it."
)]
pub(crate) struct SendArgs {
    /// Process: id, unique prefix of an id, or name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// Text to send; several words are joined by spaces; `-` sends stdin
    #[arg(value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Press Enter after the text
    #[arg(long)]
    pub(crate) enter: bool,
    /// Press a key (enter, ctrl+c, tab, esc, up, f1, alt+x); may be repeated
    #[arg(long = "key", value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Send end of file last
    #[arg(long)]
    pub(crate) eof: bool,
    /// Idempotency key: input that is sent again with the same id is written once
    #[arg(long, value_name = "NAME")]
    pub(crate) input_id: Option<String>,
    /// How long to wait while the queue is full
    #[arg(long, value_name = "DURATION", default_value = "5s")]
    pub(crate) wait: String,
}

pub(crate) async fn run(session: &Session, args: &SendArgs, console: &mut Console) -> Result<u8, Failure> {
    if args.text == ["-"] {
        if args.enter || !args.keys.is_empty() || args.input_id.is_some() {
            return Err(Failure::invalid("`-` sends stdin unchanged: leave out --enter, --key and --input-id"));
        }
        copy_stdin::copy_stdin(session, &args.id, args.eof).await?;
        return Ok(0);
    }
    let request = request(args);
    let answer = session.ask(async |client| client.input(&args.id, &request).await).await?;
    if console.json {
        console.document(&answer)?;
    } else if !answer.complete {
        let (id, waiting) = (&answer.record.id, render_size(answer.queued));
        console.note(&format!(
            "{id} does not read its input: {} bytes were accepted, {waiting} are queued: send the rest later",
            answer.accepted
        ));
    }
    Ok(if answer.complete { 0 } else { exit::FAILED })
}

fn request(args: &SendArgs) -> InputRequest {
    let text = args.text.join(" ");
    let enter = args.enter.then(|| "enter".to_owned());
    InputRequest {
        text: (!text.is_empty()).then_some(text),
        keys: enter.into_iter().chain(args.keys.iter().cloned()).collect(),
        eof: args.eof,
        // A random id by default: a request that is repeated is not written twice.
        input_id: args.input_id.clone().or_else(fresh_key),
        wait: Some(args.wait.as_str().into()),
        ..InputRequest::default()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Args, Command};

    #[test]
    fn words_are_one_text_and_enter_comes_before_other_keys() {
        let line = ["pinfold", "send", "a", "one", "two", "--enter", "--key", "ctrl+d", "--eof"];
        let Command::Send(args) = Args::try_parse_from(line).expect("parses").command else { panic!("not send") };
        let request = request(&args);
        assert_eq!(request.text.as_deref(), Some("one two"));
        assert_eq!((request.keys, request.eof), (vec!["enter".to_owned(), "ctrl+d".to_owned()], true));
    }
}
