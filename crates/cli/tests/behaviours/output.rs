//! What a process printed, read by cursor, budget, tail, pattern and stream, within bounds.

mod bounds;
mod cursors;
mod disk;
mod filters;
pub(crate) mod gate;
mod streams;
mod views;

use std::time::Duration;

use pinfold_api::client::RawOutput;
use pinfold_api::types::{OutputPage, OutputQuery, Range, Record, StartRequest, WaitQuery, WaitReason};
use pinfold_testkit::Pinfold;

/// Starts a process with this limit of stored output.
fn start_limited(pinfold: &Pinfold, command: &str, limit: &str) -> Record {
    let request =
        StartRequest { command: Some(command.into()), output_limit: Some(limit.into()), ..StartRequest::default() };
    pinfold.start_request(&request).record
}

/// Contiguous text starting at the cursor.
fn read(pinfold: &Pinfold, id: &str, cursor: u64, max: &str) -> OutputPage {
    let query = OutputQuery { cursor: Some(cursor), max_bytes: Some(max.into()), ..OutputQuery::default() };
    pinfold.output(id, &query)
}

/// Raw bytes starting at the cursor.
fn read_raw(pinfold: &Pinfold, id: &str, cursor: u64, max: &str) -> RawOutput {
    let query = OutputQuery { cursor: Some(cursor), max_bytes: Some(max.into()), ..OutputQuery::default() };
    pinfold.block(pinfold.client().output_raw(id, &query)).expect("raw output")
}

/// The whole output, shortened to this budget.
fn view(pinfold: &Pinfold, id: &str, budget: &str) -> OutputPage {
    pinfold.output(id, &OutputQuery { budget: Some(budget.into()), ..OutputQuery::default() })
}

/// Waits for output after the cursor, and reads it.
fn read_next(pinfold: &Pinfold, id: &str, cursor: u64) -> OutputPage {
    let wait = Some("60s".into());
    pinfold.output(id, &OutputQuery { cursor: Some(cursor), wait, ..OutputQuery::default() })
}

/// Waits until the keeper has reported a byte after this cursor.
fn wait_beyond(pinfold: &Pinfold, id: &str, cursor: u64) {
    let (until, timeout) = (Some("output".into()), Some("60s".into()));
    let answer = pinfold.wait(id, &WaitQuery { until, timeout, cursor: Some(cursor), ..WaitQuery::default() });
    assert_eq!(answer.reason, WaitReason::Output);
}

/// The answer to a request that must be answered although the output never ends.
pub(crate) fn answer_of<T>(pinfold: &Pinfold, request: impl Future<Output = T>) -> T {
    let answer = pinfold.block(async { tokio::time::timeout(Duration::from_secs(60), request).await });
    answer.expect("no answer within a minute")
}

/// Checks a page against everything that was printed: it shows its range byte for byte except for one counted omission,
/// and its cursors and counts add up.
#[track_caller]
fn assert_shows(page: &OutputPage, all: &str) {
    let (from, to) = (page.cursor as usize, page.next_cursor as usize);
    let (expected, hole) = match page.omitted {
        None => (all[from..to].to_owned(), 0),
        Some(Range { from: hole, to: rest }) => {
            let (head, tail) = (&all[from..hole as usize], &all[rest as usize..to]);
            let count = rest - hole;
            (format!("{head}\n[pinfold: {count} bytes omitted here, cursor {hole}..{rest}]\n{tail}"), count)
        }
    };
    let accounts = (page.cursor, page.next_cursor, page.omitted, page.original_bytes, page.shown_bytes);
    assert!(page.text == expected, "{accounts:?} does not show that range: {:.300}", page.text);
    assert_eq!(page.omitted_bytes, hole);
    let counted = page.shown_bytes + page.omitted_bytes + page.collapsed_bytes;
    assert_eq!(page.next_cursor - page.cursor, counted);
    let held_back = page.original_bytes - counted;
    assert!(held_back < 4, "{held_back} bytes are in no account and are no unfinished character");
}

/// The bytes that `yes 0123456` prints (lines of eight bytes), starting at this cursor.
fn lines_of_eight(cursor: u64, length: usize) -> String {
    let skip = (cursor % 8) as usize;
    "0123456\n".bytes().cycle().skip(skip).take(length).map(char::from).collect()
}
