//! The text of `ps`: a table of processes.

use jiff::Timestamp;
use pinfold_api::types::{ProcessList, Record};

use super::outcome::{outcome_tone, render_outcome, render_status, status_tone};
use super::paint::{Paint, Tone};
use super::quantity::{between, render_duration, render_size, since};
use super::table::{Cell, Heading, Side, cell, cut, fit_columns, plain, render_table, without_empty_columns};

/// Left out if all processes have the same owner.
const OWNER: &str = "OWNER";
const HEADINGS: &[Heading] = &[
    ("ID", Side::Left),
    ("NAME", Side::Left),
    (OWNER, Side::Left),
    ("STATUS", Side::Left),
    ("OUTCOME", Side::Left),
    ("AGE", Side::Right),
    ("RAN", Side::Right),
    ("PIDS", Side::Right),
    ("PORTS", Side::Left),
    ("OUT", Side::Right),
    ("COMMAND", Side::Left),
];
/// Longer names are cut: the command needs the space.
const MAX_NAME: usize = 20;
/// Columns that a narrow terminal does without, the first ones first. `pinfold show` has all of it.
const DISPENSABLE: &[&str] = &["PIDS", "OUT", "RAN", OWNER, "PORTS", "AGE"];
/// Further ports are counted.
const MAX_PORTS: usize = 3;

/// The table, how many processes it leaves out, and processes that cannot be read.
pub(crate) fn render_list(list: &ProcessList, now: Timestamp, width: Option<usize>, paint: Paint) -> String {
    let mut notes = String::new();
    for note in &list.notes {
        notes.push_str(&paint.apply(Tone::Bad, note));
        notes.push('\n');
    }
    if list.processes.is_empty() && list.unreadable.is_empty() {
        let none = if list.notes.is_empty() { "no processes\n" } else { "no processes known yet\n" };
        return none.to_owned() + &notes;
    }
    let owner = list.processes.first().map(|record| &record.owner);
    let one_owner = list.processes.iter().all(|record| Some(&record.owner) == owner);
    let is_shown = |heading: &&Heading| !(one_owner && heading.0 == OWNER);
    let headings: Vec<Heading> = HEADINGS.iter().filter(is_shown).copied().collect();
    let rows: Vec<_> = list.processes.iter().map(|record| row(record, one_owner, now)).collect();
    let (headings, rows) = match width {
        Some(width) => fit_columns(without_empty_columns(&headings, rows), width, DISPENSABLE),
        None => (headings, rows),
    };
    let mut text = render_table(&headings, &rows, width, paint);
    let shown = list.processes.len() as u64;
    if list.next.is_some() && list.total > shown {
        let more = format!("… and {} more (pinfold ps --limit {}, or --all)", list.total - shown, list.total);
        text.push_str(&paint.apply(Tone::Faint, &more));
        text.push('\n');
    }
    for damaged in &list.unreadable {
        let line = format!("{} cannot be read: {}", damaged.id, damaged.reason);
        text.push_str(&paint.apply(Tone::Bad, &line));
        text.push('\n');
    }
    text + &notes
}

/// `one_owner`: the owner is the same in all rows, which then leave it out.
fn row(record: &Record, one_owner: bool, now: Timestamp) -> Vec<Cell> {
    let outcome = record.outcome.as_ref();
    let start = record.started_at.as_deref().unwrap_or(&record.created_at);
    let age = since(start, now).map_or_else(dash, render_duration);
    let mut cells = vec![
        cell(&record.id, Tone::Strong),
        plain(record.name.as_deref().map_or_else(dash, |name| cut(name, MAX_NAME))),
        cell(render_list_status(record, now), status_tone(record)),
        cell(outcome.map_or_else(dash, |outcome| render_outcome(outcome, record.cause)), outcome_tone(outcome)),
        plain(age),
        plain(ran(record, now).map_or_else(dash, render_duration)),
        plain(if record.tree.is_empty() { dash() } else { record.tree.len().to_string() }),
        plain(render_ports(record)),
        plain(render_size(record.output.bytes)),
        plain(&record.command),
    ];
    if !one_owner {
        cells.insert(2, plain(cut(&record.owner, MAX_NAME)));
    }
    cells
}

/// The status with a short remark: `running, waiting` (for input), `finished, restarting in 12s`, `finished, gave up`.
fn render_list_status(record: &Record, now: Timestamp) -> String {
    let status = render_status(record);
    let life = record.life.as_ref();
    let more = match life.and_then(|life| life.restarting_at.as_deref()) {
        Some(at) => Some(restarting(at, now)),
        None if record.waiting_for_input == Some(true) => Some("waiting".to_owned()),
        None => life.and_then(|life| life.gave_up.as_ref()).map(|_| "gave up".to_owned()),
    };
    let status = more.map_or(status.clone(), |more| format!("{status}, {more}"));
    match &record.sandbox {
        Some(sandbox) if sandbox.missing.is_empty() => format!("{status} [{}]", sandbox.asked.profile.name()),
        Some(sandbox) => format!("{status} [{}, best effort]", sandbox.asked.profile.name()),
        None => status,
    }
}

fn restarting(at: &str, now: Timestamp) -> String {
    match between(&now.to_string(), at) {
        Some(left) if !left.is_zero() => format!("restarting in {}", render_duration(left)),
        _ => "restarting".to_owned(),
    }
}

/// Run time of the command itself, so far or in total.
pub(crate) fn ran(record: &Record, now: Timestamp) -> Option<std::time::Duration> {
    let start = record.started_at.as_deref()?;
    match record.exited_at.as_deref().or(record.finished_at.as_deref()) {
        Some(end) => between(start, end),
        None => since(start, now),
    }
}

fn render_ports(record: &Record) -> String {
    let mut ports: Vec<u16> = record.tree.iter().flat_map(|member| member.ports.iter().copied()).collect();
    ports.sort_unstable();
    ports.dedup();
    if ports.is_empty() {
        return dash();
    }
    let more = ports.len().saturating_sub(MAX_PORTS);
    let shown: Vec<_> = ports.iter().take(MAX_PORTS).map(u16::to_string).collect();
    let shown = shown.join(",");
    if more == 0 { shown } else { format!("{shown}+{more}") }
}

fn dash() -> String {
    "-".to_owned()
}

#[cfg(test)]
mod tests {
    use pinfold_api::types::{Cause, Outcome, Status, Unreadable};

    use super::super::sample;
    use super::*;

    fn list(processes: Vec<Record>) -> ProcessList {
        ProcessList { total: processes.len() as u64, processes, next: None, unreadable: Vec::new(), notes: Vec::new() }
    }

    #[test]
    fn a_row_shows_status_and_outcome() {
        let ended = Record {
            id: "b".into(),
            name: None,
            status: Status::Finished,
            exited_at: Some("2026-01-01T00:55:02.5Z".into()),
            outcome: Some(Outcome::Exited { code: 1 }),
            cause: Some(Cause::OnItsOwn),
            tree: Vec::new(),
            ..sample::record()
        };
        let text = render_list(&list(vec![sample::record(), ended]), sample::now(), None, Paint::Plain);
        let expected = "\
ID      NAME  STATUS    OUTCOME    AGE    RAN  PIDS  PORTS          OUT  COMMAND
k3v9x2  web   running   -        5m00s  5m00s     2  3000,3001  3.0 KiB  npm run dev
b       -     finished  exit 1   5m00s   2.5s     -  -          3.0 KiB  npm run dev
";
        assert_eq!(text, expected);
        assert!(!text.contains('\t'));
    }

    #[test]
    fn a_row_shows_waiting_restarting_and_gave_up() {
        let life = |restarting_at: Option<&str>, gave_up: Option<&str>| {
            let life = serde_json::json!({ "restart": "always", "number": 6, "restarting_at": restarting_at, "gave_up": gave_up });
            Some(serde_json::from_value(life).expect("a life"))
        };
        let ended = Record { status: Status::Finished, waiting_for_input: None, ..sample::record() };
        let standing = |record: &Record| render_list_status(record, sample::now());
        assert_eq!(standing(&Record { waiting_for_input: Some(true), ..sample::record() }), "running, waiting");
        let restarting = Record { life: life(Some("2026-01-01T01:00:12Z"), None), ..ended.clone() };
        assert_eq!(standing(&restarting), "finished, restarting in 12s");
        let late = Record { life: life(Some("2026-01-01T00:59:59Z"), None), ..ended.clone() };
        assert_eq!(standing(&late), "finished, restarting");
        let given_up = Record { life: life(None, Some("restarted 5 times, gave up")), ..ended.clone() };
        assert_eq!(standing(&given_up), "finished, gave up");
        assert_eq!(standing(&ended), "finished");
    }

    #[test]
    fn omitted_processes_are_counted_and_damaged_ones_named() {
        let mut list = list(vec![sample::record()]);
        list.total = 40;
        list.next = Some("p2".into());
        list.unreadable.push(Unreadable { id: "zz".into(), reason: "torn record".into() });
        let text = render_list(&list, sample::now(), Some(80), Paint::Plain);
        assert!(text.contains("… and 39 more (pinfold ps --limit 40, or --all)"), "{text}");
        assert!(text.contains("zz cannot be read: torn record"));
    }

    #[test]
    fn empty_columns_are_left_out_on_a_terminal() {
        let record = Record { name: None, ..sample::record() };
        let text = render_list(&list(vec![record]), sample::now(), Some(120), Paint::Plain);
        assert!(!text.contains("NAME") && !text.contains("OUTCOME") && text.contains("PORTS"), "{text}");
    }

    #[test]
    fn an_empty_list_is_one_line() {
        assert_eq!(render_list(&list(Vec::new()), sample::now(), None, Paint::Plain), "no processes\n");
    }
}
