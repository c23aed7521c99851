//! Interactive processes: stdin as a pipe and as a terminal.

mod attaching;
mod pipes;
mod programs;
mod terminals;

use std::time::{Duration, Instant};

use pinfold_api::error::ApiError;
use pinfold_api::types::{InputAnswer, InputRequest, OutputQuery, Pty, Record, Screen, StartRequest, Stdin};
use pinfold_testkit::{DEADLINE, Pinfold};

use crate::requests::request;

/// Starts a command whose stdin is open.
pub(crate) fn open(pinfold: &Pinfold, command: &str) -> Record {
    pinfold.start_request(&StartRequest { stdin: Some(Stdin::Pipe), ..request(command) }).record
}

/// Sends input; returns the response or the error.
pub(crate) fn try_input(pinfold: &Pinfold, id: &str, input: &InputRequest) -> Result<InputAnswer, ApiError> {
    pinfold.block(pinfold.client().input(id, input)).map_err(|error| match error {
        pinfold_api::client::ClientError::Api { error, .. } => error,
        other => panic!("{other}"),
    })
}

/// Sends input; all of it must be accepted.
pub(crate) fn input(pinfold: &Pinfold, id: &str, input: &InputRequest) -> InputAnswer {
    let answer = try_input(pinfold, id, input).expect("it is taken");
    assert!(answer.complete, "{answer:?}");
    answer
}

pub(crate) fn text(text: &str) -> InputRequest {
    InputRequest { text: Some(text.into()), ..InputRequest::default() }
}

pub(crate) fn eof() -> InputRequest {
    InputRequest { eof: true, ..InputRequest::default() }
}

pub(crate) fn keys(keys: &[&str]) -> InputRequest {
    InputRequest { keys: keys.iter().map(|&key| key.to_owned()).collect(), ..InputRequest::default() }
}

/// A line, and the key that ends it.
pub(crate) fn line(said: &str) -> InputRequest {
    InputRequest { text: Some(said.into()), ..keys(&["enter"]) }
}

/// A request for a command on a terminal.
pub(crate) fn on_terminal(command: &str) -> StartRequest {
    StartRequest { pty: Some(Pty::Wanted(true)), ..request(command) }
}

pub(crate) fn screen(pinfold: &Pinfold, id: &str) -> Screen {
    pinfold.block(pinfold.client().screen(id)).expect("a screen")
}

/// Waits until the screen shows this text; returns the screen.
pub(crate) fn until_shown(pinfold: &Pinfold, id: &str, what: &str) -> Screen {
    let mut last = screen(pinfold, id);
    let deadline = Instant::now() + DEADLINE;
    while !last.lines.iter().any(|line| line.contains(what)) {
        assert!(Instant::now() < deadline, "`{what}` is never shown: {last:?}");
        std::thread::sleep(Duration::from_millis(20));
        last = screen(pinfold, id);
    }
    last
}

/// Whether a program is installed; otherwise prints that the test is skipped.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|directory| directory.join(program).is_file());
    if !found {
        eprintln!("skipped: there is no {program}");
    }
    found
}

/// All output as bytes.
pub(crate) fn bytes(pinfold: &Pinfold, id: &str) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        let query =
            OutputQuery { cursor: Some(all.len() as u64), max_bytes: Some("1M".into()), ..OutputQuery::default() };
        let page = pinfold.block(pinfold.client().output_raw(id, &query)).expect("output");
        if page.bytes.is_empty() {
            return all;
        }
        all.extend(page.bytes);
    }
}
