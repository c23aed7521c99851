//! `wait`: wait for an event of one process, or for the end of any or all of several.

use clap::Args;
use clap::builder::PossibleValuesParser;
use pinfold_api::input::Span;
use pinfold_api::types::{
    OutputQuery, Record, WaitAnswer, WaitManyAnswer, WaitManyRequest, WaitMode, WaitQuery, WaitReason,
};

use crate::console::Console;
use crate::exit;
use crate::failure::Failure;
use crate::render::summary::{render_reason, render_summary};
use crate::session::Session;

/// How long one request waits if the user set no timeout; it is then repeated.
const DEADLINE: &str = "10m";
/// How much output a summary shows.
const LAST_LINES: &str = "5 lines";
/// Limit of that output, however long the lines are.
const LAST_BYTES: &str = "4k";

/// Wait until processes end, or until one prints a line, listens on a port or is ready
///
/// Exit code: after the end of one process, that of its command; for several, 0 if all exited with 0, otherwise 1; 124 after
/// a timeout or if the wait was released; 125 if pinfold itself failed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold wait k3v9\n  pinfold wait --until match --pattern 'ready in' --timeout 30s web\n  \
                        pinfold wait --until port --port 3000 web\n  pinfold wait --any build-a build-b"
)]
pub(crate) struct WaitArgs {
    /// Processes: ids, unique prefixes of ids, or names (the live process of that name, otherwise the latest that ended)
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Return as soon as one of them has ended
    #[arg(long)]
    pub(crate) any: bool,
    /// What to wait for
    #[arg(long, default_value = "exit",
          value_parser = PossibleValuesParser::new(["exit", "closed", "finished", "output", "match", "port", "quiet", "ready", "input"]))]
    pub(crate) until: String,
    /// Wait for an output line that matches; implies --until match
    #[arg(long, value_name = "REGEX")]
    pub(crate) pattern: Option<String>,
    /// Wait until the process listens on this TCP port; implies --until port
    #[arg(long, value_name = "N", conflicts_with = "pattern")]
    pub(crate) port: Option<u16>,
    /// Wait until there was no output for this long; implies --until quiet
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["pattern", "port"])]
    pub(crate) quiet: Option<String>,
    /// Consider only output from this byte offset on
    #[arg(long, value_name = "N")]
    pub(crate) cursor: Option<u64>,
    /// Maximum wait, up to 1h [default: unlimited]
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<String>,
}

/// Waits and prints the result.
pub(crate) async fn run(session: &Session, args: &WaitArgs, console: &mut Console) -> Result<u8, Failure> {
    match args.ids.as_slice() {
        [id] => {
            let answer = wait_for_one(session, id, &query(args)).await?;
            print_one(session, &answer, console).await?;
            Ok(code_of_one(&answer))
        }
        _ => {
            let answer = wait_many(session, many(args)?).await?;
            print_many(session, &answer, console).await?;
            Ok(code_of_many(&answer))
        }
    }
}

/// Waits for one process; without a timeout the request is repeated until it succeeds.
pub(crate) async fn wait_for_one(session: &Session, id: &str, query: &WaitQuery) -> Result<WaitAnswer, Failure> {
    let limited = query.timeout.is_some();
    let mut query = query.clone();
    query.timeout.get_or_insert_with(|| DEADLINE.to_owned());
    let mut id = id.to_owned();
    loop {
        let answer = session.ask(async |client| client.wait(&id, &query).await).await?;
        if limited || answer.reason != WaitReason::Timeout {
            return Ok(answer);
        }
        id = answer.record.id;
    }
}

async fn wait_many(session: &Session, request: WaitManyRequest) -> Result<WaitManyAnswer, Failure> {
    let limited = request.timeout.is_some();
    let request = WaitManyRequest { timeout: request.timeout.or(Some(Span::from(DEADLINE))), ..request };
    loop {
        let answer = session.ask(async |client| client.wait_many(&request).await).await?;
        if limited || answer.reason != WaitReason::Timeout {
            return Ok(answer);
        }
    }
}

async fn print_one(session: &Session, answer: &WaitAnswer, console: &mut Console) -> Result<(), Failure> {
    if console.json {
        return console.document(answer);
    }
    print_summary(session, &answer.record, console).await?;
    match render_reason(answer.reason, answer.matched.as_deref(), answer.port) {
        Some(reason) => console.text(&format!("  {reason}\n")),
        None => Ok(()),
    }
}

async fn print_many(session: &Session, answer: &WaitManyAnswer, console: &mut Console) -> Result<(), Failure> {
    if console.json {
        return console.document(answer);
    }
    for record in answer.done.iter().chain(&answer.pending) {
        print_summary(session, record, console).await?;
    }
    match answer.reason {
        WaitReason::Timeout => console.text(&format!("timeout: {} still pending\n", answer.pending.len())),
        _ => Ok(()),
    }
}

async fn print_summary(session: &Session, record: &Record, console: &mut Console) -> Result<(), Failure> {
    let query = OutputQuery {
        tail: Some(LAST_LINES.into()),
        budget: Some(LAST_BYTES.into()),
        strip_ansi: Some(true),
        collapse_cr: Some(true),
        ..Default::default()
    };
    let page = session.ask(async |client| client.output(&record.id, &query).await).await?;
    console.text(&render_summary(record, &page.text, jiff::Timestamp::now(), console.width(), console.paint()))
}

fn query(args: &WaitArgs) -> WaitQuery {
    WaitQuery {
        until: Some(until(args).to_owned()),
        timeout: args.timeout.clone(),
        cursor: args.cursor,
        pattern: args.pattern.clone(),
        exclude: None,
        port: args.port,
        quiet: args.quiet.clone(),
    }
}

/// `--until`, or what the other options imply.
fn until(args: &WaitArgs) -> &str {
    match args.until.as_str() {
        "exit" if args.pattern.is_some() => "match",
        "exit" if args.port.is_some() => "port",
        "exit" if args.quiet.is_some() => "quiet",
        said => said,
    }
}

fn many(args: &WaitArgs) -> Result<WaitManyRequest, Failure> {
    let until = until(args);
    if !["exit", "closed", "finished"].contains(&until) {
        return Err(Failure::invalid(format!("--until {until} works with one process only: give one ID")));
    }
    Ok(WaitManyRequest {
        ids: args.ids.clone(),
        mode: Some(if args.any { WaitMode::Any } else { WaitMode::All }),
        until: Some(until.to_owned()),
        timeout: args.timeout.as_deref().map(Span::from),
    })
}

fn code_of_one(answer: &WaitAnswer) -> u8 {
    match answer.reason {
        WaitReason::Exited | WaitReason::Closed | WaitReason::Finished => code_of_record(&answer.record),
        WaitReason::Output | WaitReason::Matched | WaitReason::Port | WaitReason::Quiet => 0,
        WaitReason::Ready | WaitReason::Input => 0,
        WaitReason::EndedBefore => exit::FAILED,
        WaitReason::Timeout | WaitReason::Cancelled | WaitReason::NotReady => exit::TIMED_OUT,
    }
}

fn code_of_many(answer: &WaitManyAnswer) -> u8 {
    match (answer.reason, answer.done.as_slice()) {
        (WaitReason::Timeout | WaitReason::Cancelled, _) => exit::TIMED_OUT,
        (_, [one]) => code_of_record(one),
        (_, done) if done.iter().all(|record| code_of_record(record) == 0) => 0,
        _ => exit::FAILED,
    }
}

fn code_of_record(record: &Record) -> u8 {
    record.outcome.as_ref().map_or(exit::PINFOLD_FAILED, exit::code_of)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use pinfold_api::types::Outcome;

    use super::*;
    use crate::args::{Args, Command};
    use crate::render::sample;

    fn parsed(line: &str) -> WaitArgs {
        let args = Args::try_parse_from(line.split(' ')).expect(line);
        let Command::Wait(args) = args.command else { panic!("not wait") };
        args
    }

    fn answer(reason: WaitReason, code: u8) -> WaitAnswer {
        let record = Record { outcome: Some(Outcome::Exited { code }), ..sample::record() };
        WaitAnswer { reason, record, cursor: 0, matched: None, port: None, waited_ms: 0 }
    }

    #[test]
    fn what_is_waited_for_is_said_or_implied() {
        assert_eq!(query(&parsed("pinfold wait a")).until.as_deref(), Some("exit"));
        assert_eq!(query(&parsed("pinfold wait a --pattern x")).until.as_deref(), Some("match"));
        assert_eq!(query(&parsed("pinfold wait a --port 80")).until.as_deref(), Some("port"));
        assert_eq!(query(&parsed("pinfold wait a --quiet 2s")).until.as_deref(), Some("quiet"));
        assert_eq!(query(&parsed("pinfold wait a --until closed --timeout 5")).timeout.as_deref(), Some("5"));
        assert!(Args::try_parse_from(["pinfold", "wait", "a", "--until", "moon"]).is_err());
    }

    #[test]
    fn many_are_waited_for_by_their_end_only() {
        let request = many(&parsed("pinfold wait a b --any")).expect("a request");
        assert_eq!((request.ids.len(), request.mode), (2, Some(WaitMode::Any)));
        assert!(many(&parsed("pinfold wait a b --port 80")).is_err());
    }

    #[test]
    fn the_exit_code_is_the_commands_own_when_it_ended() {
        assert_eq!(code_of_one(&answer(WaitReason::Exited, 7)), 7);
        assert_eq!(code_of_one(&answer(WaitReason::Matched, 7)), 0);
        assert_eq!(code_of_one(&answer(WaitReason::Timeout, 7)), 124);
        assert_eq!(code_of_one(&answer(WaitReason::EndedBefore, 0)), 1);
    }

    #[test]
    fn many_exit_with_0_only_if_all_did() {
        let record = |code| answer(WaitReason::Exited, code).record;
        let many = |done| WaitManyAnswer { reason: WaitReason::Exited, done, pending: Vec::new(), waited_ms: 0 };
        assert_eq!(code_of_many(&many(vec![record(0), record(0)])), 0);
        assert_eq!(code_of_many(&many(vec![record(0), record(5)])), 1);
        assert_eq!(code_of_many(&many(vec![record(5)])), 5);
    }
}
