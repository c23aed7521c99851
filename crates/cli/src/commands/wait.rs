//! `wait`: until something happens to one process, or to any or all of many.

use clap::Args;
use clap::builder::PossibleValuesParser;
use pinfold_api::input::Span;
use pinfold_api::types::{
    OutputQuery, Record, WaitAnswer, WaitManyAnswer, WaitManyRequest, WaitMode, WaitQuery, WaitReason,
};

use crate::console::Screen;
use crate::exit;
use crate::failure::Failure;
use crate::render::summary::{render_reason, render_summary};
use crate::session::Session;

/// How long one request waits where the caller set no limit; it is then repeated.
const PATIENCE: &str = "10m";
/// How much of the output a summary shows.
const LAST_LINES: &str = "5 lines";
/// No more than this is read for it, however long the lines are.
const LAST_BYTES: &str = "4k";

/// Wait until processes end, or until one says or does something
///
/// Exits with the command's own code when it waited for one process to end; for several with 0 if all of them
/// exited with 0, else 1; with 124 when the time ran out or the wait was released, and 125 when pinfold itself failed.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  pinfold wait k3v9\n  pinfold wait --until match --pattern 'ready in' --timeout 30s web\n  \
                        pinfold wait --until port --port 3000 web\n  pinfold wait --any build-a build-b"
)]
pub(crate) struct WaitArgs {
    /// Ids, beginnings of ids, or names of live processes
    #[arg(required = true, value_name = "ID")]
    pub(crate) ids: Vec<String>,
    /// Return as soon as one of them is there
    #[arg(long)]
    pub(crate) any: bool,
    /// What to wait for
    #[arg(long, default_value = "exit",
          value_parser = PossibleValuesParser::new(["exit", "closed", "finished", "output", "match", "port", "quiet", "ready", "input"]))]
    pub(crate) until: String,
    /// A line that matches this regular expression; implies --until match
    #[arg(long, value_name = "RE")]
    pub(crate) pattern: Option<String>,
    /// A listening TCP port; implies --until port
    #[arg(long, value_name = "N", conflicts_with = "pattern")]
    pub(crate) port: Option<u16>,
    /// No output for this long; implies --until quiet
    #[arg(long, value_name = "D", conflicts_with_all = ["pattern", "port"])]
    pub(crate) quiet: Option<String>,
    /// Only output from this byte on
    #[arg(long, value_name = "N")]
    pub(crate) cursor: Option<u64>,
    /// At most this long (up to 1h) [default: for ever]
    #[arg(long, value_name = "D")]
    pub(crate) timeout: Option<String>,
}

/// Waits and says what came of it.
pub(crate) async fn run(session: &Session, args: &WaitArgs, screen: &mut Screen) -> Result<u8, Failure> {
    match args.ids.as_slice() {
        [id] => {
            let answer = patiently(session, id, &query(args)).await?;
            print_one(session, &answer, screen).await?;
            Ok(code_of_one(&answer))
        }
        _ => {
            let answer = wait_many(session, many(args)?).await?;
            print_many(session, &answer, screen).await?;
            Ok(code_of_many(&answer))
        }
    }
}

/// Waits for one process; without a limit, as long as it takes.
pub(super) async fn patiently(session: &Session, id: &str, query: &WaitQuery) -> Result<WaitAnswer, Failure> {
    let limited = query.timeout.is_some();
    let mut query = query.clone();
    query.timeout.get_or_insert_with(|| PATIENCE.to_owned());
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
    let request = WaitManyRequest { timeout: request.timeout.or(Some(Span::from(PATIENCE))), ..request };
    loop {
        let answer = session.ask(async |client| client.wait_many(&request).await).await?;
        if limited || answer.reason != WaitReason::Timeout {
            return Ok(answer);
        }
    }
}

async fn print_one(session: &Session, answer: &WaitAnswer, screen: &mut Screen) -> Result<(), Failure> {
    if screen.json {
        return screen.document(answer);
    }
    print_summary(session, &answer.record, screen).await?;
    match render_reason(answer.reason, answer.matched.as_deref(), answer.port) {
        Some(reason) => screen.text(&format!("  {reason}\n")),
        None => Ok(()),
    }
}

async fn print_many(session: &Session, answer: &WaitManyAnswer, screen: &mut Screen) -> Result<(), Failure> {
    if screen.json {
        return screen.document(answer);
    }
    for record in answer.done.iter().chain(&answer.pending) {
        print_summary(session, record, screen).await?;
    }
    match answer.reason {
        WaitReason::Timeout => screen.text(&format!("timeout: {} not there yet\n", answer.pending.len())),
        _ => Ok(()),
    }
}

async fn print_summary(session: &Session, record: &Record, screen: &mut Screen) -> Result<(), Failure> {
    let query = OutputQuery {
        tail: Some(LAST_LINES.into()),
        budget: Some(LAST_BYTES.into()),
        strip_ansi: Some(true),
        collapse_cr: Some(true),
        ..Default::default()
    };
    let page = session.ask(async |client| client.output(&record.id, &query).await).await?;
    screen.text(&render_summary(record, &page.text, jiff::Timestamp::now(), screen.width(), screen.paint()))
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

/// What is waited for: as said, or as the other options imply.
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
        return Err(Failure::refused(format!("--until {until} waits for one process: give one id")));
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
        WaitReason::EndedBefore => exit::TROUBLE,
        WaitReason::Timeout | WaitReason::Cancelled | WaitReason::NotReady => exit::TIMED_OUT,
    }
}

fn code_of_many(answer: &WaitManyAnswer) -> u8 {
    match (answer.reason, answer.done.as_slice()) {
        (WaitReason::Timeout | WaitReason::Cancelled, _) => exit::TIMED_OUT,
        (_, [one]) => code_of_record(one),
        (_, done) if done.iter().all(|record| code_of_record(record) == 0) => 0,
        _ => exit::TROUBLE,
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
