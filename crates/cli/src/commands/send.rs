//! `send`: text, keys and the end of input to a process's stdin.

use clap::Args;
use pinfold_api::types::InputRequest;

use super::feed;
use super::run::fresh_key;
use crate::console::Screen;
use crate::exit;
use crate::failure::Failure;
use crate::render::quantity::render_size;
use crate::session::Session;

/// Send input to a process that was started with `run --stdin` or `run --pty`
///
/// Text is sent as it is: add --enter to end a line. Keys follow the text, and the end of input follows the keys.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold send repl 'print(6 * 7)' --enter\n  pinfold send repl --key ctrl+c --key up\n  \
                        pinfold send filter - --eof < data.bin\n\n\
                        Exits with 0 when the keeper holds all of it (it is then written whatever becomes of the\n\
                        daemon), 1 when the process does not read and its queue of 1 MiB is full, 2 when it has no\n\
                        stdin or has closed it."
)]
pub(crate) struct SendArgs {
    /// An id, the beginning of one, or a name
    #[arg(value_name = "ID")]
    pub(crate) id: String,
    /// What to send; several words are joined by spaces; `-` sends what stdin gives
    #[arg(value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Press enter after the text
    #[arg(long)]
    pub(crate) enter: bool,
    /// Press a key (enter, ctrl+c, tab, esc, up, f1, alt+x); may be repeated
    #[arg(long = "key", value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// End the input after it
    #[arg(long)]
    pub(crate) eof: bool,
    /// A name for this input: sent again under it, it is written once
    #[arg(long, value_name = "NAME")]
    pub(crate) input_id: Option<String>,
    /// How long to try while the queue is full
    #[arg(long, value_name = "D", default_value = "5s")]
    pub(crate) wait: String,
}

pub(crate) async fn run(session: &Session, args: &SendArgs, screen: &mut Screen) -> Result<u8, Failure> {
    if args.text == ["-"] {
        if args.enter || !args.keys.is_empty() || args.input_id.is_some() {
            return Err(Failure::refused("`-` sends stdin as it is: leave --enter, --key and --input-id out"));
        }
        feed::copy_stdin(session, &args.id, args.eof).await?;
        return Ok(0);
    }
    let request = request(args);
    let answer = session.ask(async |client| client.input(&args.id, &request).await).await?;
    if screen.json {
        screen.document(&answer)?;
    } else if !answer.complete {
        let (id, waiting) = (&answer.record.id, render_size(answer.queued));
        screen.note(&format!("{id} does not read: {} bytes were taken, {waiting} wait", answer.accepted));
    }
    Ok(if answer.complete { 0 } else { exit::TROUBLE })
}

fn request(args: &SendArgs) -> InputRequest {
    let text = args.text.join(" ");
    let enter = args.enter.then(|| "enter".to_owned());
    InputRequest {
        text: (!text.is_empty()).then_some(text),
        keys: enter.into_iter().chain(args.keys.iter().cloned()).collect(),
        eof: args.eof,
        // Ours is as good as any: asked again of the next daemon, it is not typed twice.
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
