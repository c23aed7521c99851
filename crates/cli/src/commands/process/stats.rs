//! `stats`: counts and run times of the processes of the last days, from the list of processes.
//!
//! Bounds: at most [`MAX_READ`] processes are read, the latest; the answer says so if there were more. At most [`MAX_RANKED`]
//! owners and commands are named. A period has one row for each hour or day with a process.

use std::collections::BTreeMap;
use std::time::Duration;

use clap::Args;
use jiff::Timestamp;
use pinfold_api::types::{Cause, ListQuery, Outcome, Record, Status};
use serde::Serialize;

use crate::console::Console;
use crate::failure::Failure;
use crate::render::quantity::{between, since};
use crate::render::stats::render_stats;
use crate::session::Session;

/// Processes that are read at most.
const MAX_READ: usize = 20_000;
/// Processes of one page.
const PAGE: u32 = 1000;
/// Owners and failing commands that are named.
const MAX_RANKED: usize = 5;
/// Rows are hours up to this age of the oldest process, and days beyond it.
const MAX_HOURLY: Duration = Duration::from_secs(36 * 3600);

/// Show how many processes ran, failed and were stopped, and how long they ran
///
/// Counts the processes that were created in the given time and are still stored. Processes that were removed, by
/// retention, the size limit of the store or a command, are not counted; if the stored ones do not reach back far enough,
/// the first line says from when on they do.
///
/// FAILED: exited with another code than 0, killed by a signal that pinfold did not send, stopped at a limit, or not
/// started. STOPPED: on request, or with its owner. LOST: the end was not observed. Run times are those of commands that
/// have exited.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  pinfold stats\n  pinfold stats --since 24h --owner chat-7\n  \
                        pinfold stats --since 2026-11-01T00:00:00Z --json")]
pub(crate) struct StatsArgs {
    /// How far back to count: a duration (12h, 7d), or a time in RFC 3339
    #[arg(long, value_name = "TIME", default_value = "7d")]
    pub(crate) since: String,
    /// Only processes of this owner
    #[arg(long)]
    pub(crate) owner: Option<String>,
}

/// What is printed, also with `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Stats {
    /// As given with `--since`.
    pub(crate) since: String,
    /// When the oldest counted process was created.
    pub(crate) oldest: Option<String>,
    /// Whether no older process is stored, so that some of this time may be missing.
    pub(crate) reaches_oldest_stored: bool,
    /// Processes of this time that were not read because there are too many.
    pub(crate) not_read: u64,
    pub(crate) total: Counts,
    pub(crate) longest: Option<Longest>,
    /// By hour or day in UTC, the oldest first.
    pub(crate) periods: Vec<Period>,
    pub(crate) owners: Vec<Ranked>,
    pub(crate) failing_commands: Vec<Ranked>,
}

/// Counts of some processes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Counts {
    pub(crate) runs: u64,
    pub(crate) live: u64,
    pub(crate) failed: u64,
    pub(crate) stopped: u64,
    pub(crate) lost: u64,
    pub(crate) run_time_ms: u64,
    pub(crate) median_ms: Option<u64>,
    pub(crate) longest_ms: Option<u64>,
}

/// The counts of one hour or day.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Period {
    /// `2026-11-18`, or `2026-11-18T09` for an hour.
    pub(crate) period: String,
    #[serde(flatten)]
    pub(crate) counts: Counts,
}

/// The process that ran longest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Longest {
    pub(crate) id: String,
    pub(crate) command: String,
    pub(crate) run_time_ms: u64,
}

/// An owner or a command, and how often it occurs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Ranked {
    pub(crate) name: String,
    pub(crate) count: u64,
}

/// Reads and prints.
pub(crate) async fn run(session: &Session, args: &StatsArgs, console: &mut Console) -> Result<u8, Failure> {
    let query = ListQuery { owner: args.owner.clone(), tree: Some(false), ..ListQuery::default() };
    let older = ListQuery { created_before: Some(args.since.clone()), limit: Some(1), ..query.clone() };
    let older = session.ask(async |client| client.list(&older).await).await?;
    let mut page = ListQuery { created_after: Some(args.since.clone()), limit: Some(PAGE), ..query };
    let mut records: Vec<Record> = Vec::new();
    let (total, notes) = loop {
        let list = session.ask(async |client| client.list(&page).await).await?;
        records.extend(list.processes);
        page.page = list.next.clone().filter(|_| records.len() < MAX_READ);
        if page.page.is_none() {
            break (list.total, list.notes);
        }
    };
    let mut stats = summarize(&records, Timestamp::now());
    stats.since = args.since.clone();
    stats.reaches_oldest_stored = older.total == 0;
    stats.not_read = total.saturating_sub(records.len() as u64);
    if console.json {
        console.document(&stats)?;
    } else {
        notes.iter().for_each(|note| console.note(note));
        console.text(&render_stats(&stats, console.width(), console.paint()))?;
    }
    Ok(0)
}

/// How a process counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    Live,
    Succeeded,
    Failed,
    Stopped,
    Lost,
}

fn class_of(record: &Record) -> Class {
    match (&record.outcome, record.cause) {
        (Some(Outcome::Lost { .. }), _) => Class::Lost,
        (Some(_), Some(Cause::StopRequested | Cause::OwnerEnded)) => Class::Stopped,
        (Some(Outcome::Exited { code: 0 }), Some(Cause::OnItsOwn) | None) => Class::Succeeded,
        (Some(_), _) => Class::Failed,
        (None, _) if record.status == Status::Lost => Class::Lost,
        (None, _) => Class::Live,
    }
}

/// The counts of these processes, without what only the request knows.
fn summarize(records: &[Record], now: Timestamp) -> Stats {
    let oldest = records.iter().map(|record| &record.created_at).min_by_key(|at| at.parse::<Timestamp>().ok());
    let hourly = oldest.and_then(|at| since(at, now)).is_some_and(|age| age <= MAX_HOURLY);
    let mut periods: BTreeMap<String, Vec<&Record>> = BTreeMap::new();
    let (mut owners, mut failing) = (BTreeMap::new(), BTreeMap::new());
    for record in records {
        // RFC 3339 in UTC: the day is the first 10 characters, the hour the first 13.
        let period = record.created_at.get(..if hourly { 13 } else { 10 }).unwrap_or(&record.created_at);
        periods.entry(period.to_owned()).or_default().push(record);
        *owners.entry(record.owner.as_str()).or_default() += 1;
        if class_of(record) == Class::Failed {
            *failing.entry(record.command.as_str()).or_default() += 1;
        }
    }
    let longest = records.iter().filter_map(|record| Some((run_time(record)?, record))).max_by_key(|(time, _)| *time);
    Stats {
        since: String::new(),
        oldest: oldest.cloned(),
        reaches_oldest_stored: false,
        not_read: 0,
        total: count(records.iter()),
        longest: longest.map(|(run_time_ms, record)| Longest {
            id: record.id.clone(),
            command: record.command.clone(),
            run_time_ms,
        }),
        periods: periods
            .into_iter()
            .map(|(period, records)| Period { period, counts: count(records.into_iter()) })
            .collect(),
        owners: rank(owners),
        failing_commands: rank(failing),
    }
}

/// Milliseconds from the start of the command to its exit.
fn run_time(record: &Record) -> Option<u64> {
    let time = between(record.started_at.as_deref()?, record.exited_at.as_deref()?)?;
    Some(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn count<'a>(records: impl Iterator<Item = &'a Record>) -> Counts {
    let (mut counts, mut times) = (Counts::default(), Vec::new());
    for record in records {
        counts.runs += 1;
        times.extend(run_time(record));
        match class_of(record) {
            Class::Live => counts.live += 1,
            Class::Succeeded => {}
            Class::Failed => counts.failed += 1,
            Class::Stopped => counts.stopped += 1,
            Class::Lost => counts.lost += 1,
        }
    }
    times.sort_unstable();
    counts.run_time_ms = times.iter().fold(0, |sum: u64, time| sum.saturating_add(*time));
    counts.longest_ms = times.last().copied();
    // Of an even number the lower of the two in the middle: a time that a process really had.
    counts.median_ms = times.get(times.len().saturating_sub(1) / 2).copied();
    counts
}

/// The most frequent first; the same number by name.
fn rank(counts: BTreeMap<&str, u64>) -> Vec<Ranked> {
    let mut ranked: Vec<Ranked> =
        counts.into_iter().map(|(name, count)| Ranked { name: name.to_owned(), count }).collect();
    ranked.sort_by_key(|ranked| std::cmp::Reverse(ranked.count));
    ranked.truncate(MAX_RANKED);
    ranked
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::render::sample;

    fn ended(created_at: &str, seconds: u32, outcome: Outcome, cause: Cause) -> Record {
        let end = format!("{}{seconds:02}Z", &created_at[..17]);
        Record {
            created_at: created_at.into(),
            started_at: Some(created_at.into()),
            exited_at: Some(end),
            status: Status::Finished,
            outcome: Some(outcome),
            cause: Some(cause),
            ..sample::record()
        }
    }

    #[test]
    fn processes_are_counted_by_how_they_ended() {
        let exited = |code| Outcome::Exited { code };
        let signaled = || Outcome::Signaled { signal: 9, name: "KILL".into(), core_dumped: false };
        let at = "2026-01-01T00:10:00Z";
        let records = [
            sample::record(),
            ended(at, 1, exited(0), Cause::OnItsOwn),
            ended(at, 3, exited(2), Cause::OnItsOwn),
            ended(at, 5, signaled(), Cause::OutOfMemory),
            ended(at, 7, exited(0), Cause::TimeLimit),
            ended(at, 9, exited(0), Cause::StopRequested),
            ended(at, 0, Outcome::Lost { evidence: "e".into() }, Cause::OnItsOwn),
        ];
        let stats = summarize(&records, sample::now());
        let total = &stats.total;
        assert_eq!((total.runs, total.live, total.failed, total.stopped, total.lost), (7, 1, 3, 1, 1));
        assert_eq!((total.run_time_ms, total.median_ms, total.longest_ms), (25_000, Some(3000), Some(9000)));
        assert_eq!(stats.owners, [Ranked { name: "chat-7".into(), count: 7 }]);
        assert_eq!(stats.failing_commands, [Ranked { name: "npm run dev".into(), count: 3 }]);
        assert_eq!(stats.periods.iter().map(|period| period.period.as_str()).collect::<Vec<_>>(), ["2026-01-01T00"]);
        assert_eq!(stats.oldest.as_deref(), Some(at));
    }

    #[test]
    fn a_longer_time_is_counted_by_day_and_no_process_is_no_error() {
        let old = Record { created_at: "2025-12-30T10:00:00Z".into(), ..sample::record() };
        let stats = summarize(&[sample::record(), old], sample::now());
        assert_eq!(
            stats.periods.iter().map(|period| period.period.as_str()).collect::<Vec<_>>(),
            ["2025-12-30", "2026-01-01"]
        );
        let none = summarize(&[], sample::now());
        assert_eq!((none.total, none.oldest, none.longest), (Counts::default(), None, None));
    }
}
