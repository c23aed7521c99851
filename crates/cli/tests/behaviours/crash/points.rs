//! Daemon and keeper are killed at every crash point, one at a time; afterwards every promise must hold.
//!
//! A trial arms one point, works until a program dies there, disarms, starts a new daemon and checks: an acknowledged
//! start is known; what was readable is readable; the outcome is the real one, or `lost` with evidence if the keeper
//! itself died; each event is there once, under its number; the list matches the directories; nothing is left running.

mod trial;
mod work;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::records::files_in;
use trial::{Arm, Trial, Victim};
use work::Work;

/// A point, at which pass through it the program dies, and the workload that leads there.
type Case = (&'static str, u32, Work);

/// From the request to the response: steps 1 to 5 in ARCHITECTURE.md.
const STARTS: &[Case] = &[
    ("daemon.request_parsed", 1, work::life),
    ("daemon.entry_registered", 1, work::life),
    ("daemon.intent_sent", 1, work::life),
    ("daemon.start_known", 1, work::life),
    ("keeper.ready", 1, work::life),
    ("keeper.start_received", 1, work::life),
    ("keeper.intent_written", 1, work::life),
    ("keeper.leader_spawned", 1, work::life),
    ("keeper.failed_start_written", 1, work::failed_start),
    ("store.directory_made", 1, work::life),
    ("store.record_made", 1, work::life),
];

/// Output and exit: steps 6 to 8. The facts of `life` are: started, exited, possibly closed, finished.
const ENDS: &[Case] = &[
    ("store.record_append", 1, work::life),
    ("store.record_append", 2, work::life),
    ("store.record_append", 3, work::life),
    ("store.record_append", 4, work::life),
    ("store.record_appended", 1, work::life),
    ("store.record_appended", 2, work::life),
    ("store.record_appended", 3, work::life),
    ("store.record_appended", 4, work::life),
    ("keeper.fact_written", 1, work::life),
    ("keeper.fact_written", 2, work::life),
    ("keeper.fact_written", 3, work::life),
    ("keeper.messages_sent", 1, work::life),
    ("keeper.messages_sent", 2, work::life),
    ("keeper.messages_sent", 3, work::life),
    ("keeper.exit_observed", 1, work::life),
    ("keeper.output_drained", 1, work::life),
    ("keeper.leader_reaped", 1, work::life),
    ("keeper.idle_again", 1, work::life),
    ("daemon.fact_noted", 1, work::life),
    ("daemon.fact_noted", 2, work::life),
    ("daemon.fact_noted", 3, work::life),
    ("daemon.keeper_idle", 1, work::life),
];

/// What is written to the index, and its readers.
const LEDGER: &[Case] = &[
    ("daemon.ledger_commit", 1, work::life),
    ("daemon.ledger_commit", 2, work::life),
    ("store.index_applied", 1, work::life),
    ("store.index_applied", 2, work::life),
    ("store.index_committed", 1, work::life),
    ("store.index_committed", 2, work::life),
    ("daemon.event_announced", 1, work::life),
    ("daemon.event_announced", 2, work::life),
    ("store.lease_applied", 1, work::consume),
    ("store.lease_committed", 1, work::consume),
    ("store.ack_applied", 1, work::consume),
    ("store.ack_committed", 1, work::consume),
    ("daemon.ack_done", 1, work::consume),
    ("daemon.delivery_tried", 1, work::announce),
    ("store.delivery_written", 1, work::announce),
    ("store.delivery_put_off", 1, work::announce_in_vain),
];

/// Output in bulk, beyond its limit, from two streams.
const OUTPUT: &[Case] = &[
    ("store.segment_made", 1, work::bulk),
    ("store.segment_made", 4, work::bulk),
    ("store.segment_written", 1, work::bulk),
    ("store.segment_written", 3, work::bulk),
    ("store.segment_closed", 1, work::bulk),
    ("store.segment_closed", 5, work::bulk),
    ("store.segment_dropped", 1, work::bulk),
    ("store.segment_dropped", 3, work::bulk),
    ("store.mark_append", 1, work::two_streams),
    ("store.mark_append", 3, work::two_streams),
    ("store.mark_written", 1, work::two_streams),
    ("store.mark_written", 4, work::two_streams),
];

/// Stopping, signalling and handing over.
const ACTS: &[Case] = &[
    ("keeper.stop_received", 1, work::stop),
    ("keeper.tree_signalled", 1, work::stop),
    ("keeper.tree_killed", 1, work::stop),
    ("keeper.handover_written", 1, work::hand_over),
    ("keeper.messages_sent", 3, work::hand_over),
    ("daemon.handover_known", 1, work::hand_over),
    ("daemon.session_registered", 1, work::change_session),
    ("daemon.session_registered", 2, work::change_session),
    ("daemon.handover_known", 1, work::change_session),
    ("daemon.remains_swept", 1, work::lose_keeper),
    ("store.loss_append", 1, work::lose_keeper),
    ("store.loss_appended", 1, work::lose_keeper),
    ("daemon.directories_removed", 1, work::collect),
    ("store.removal_renamed", 1, work::collect),
    ("store.removal_renamed", 2, work::collect),
    ("store.removed", 1, work::collect),
];

/// The first start of a home, and the shutdown of its daemon. The files are, in this order, format, ids, coder-key and
/// tokens.json.
const HOMES: &[Case] = &[
    ("store.file_made", 1, work::token),
    ("store.file_made", 2, work::token),
    ("store.file_made", 3, work::token),
    ("store.file_made", 4, work::token),
    ("store.file_written", 1, work::token),
    ("store.file_written", 2, work::token),
    ("store.file_written", 3, work::token),
    ("store.file_written", 4, work::token),
    ("store.file_replaced", 1, work::token),
    ("store.file_replaced", 2, work::token),
    ("store.file_replaced", 3, work::token),
    ("store.file_replaced", 4, work::token),
    ("store.index_made", 1, work::life),
    ("store.index_configured", 1, work::life),
    ("store.index_created", 1, work::life),
    ("daemon.last_served", 1, work::shut_down),
    ("daemon.flushed", 1, work::shut_down),
    ("keeper.socket_removed", 1, work::shut_down),
    ("store.record_discarded", 1, work::shut_down),
];

/// A daemon after another; the point is armed in the second, or in the keepers of the first.
const RECOVERIES: &[Case] = &[
    ("daemon.keepers_connected", 1, work::restart),
    ("daemon.keepers_greeted", 1, work::restart),
    ("daemon.keeper_adopted", 1, work::restart),
    ("daemon.directories_taken_up", 1, work::restart),
    ("daemon.listening", 1, work::restart),
    ("store.index_made", 1, work::rebuild),
    ("store.index_configured", 1, work::rebuild),
    ("store.index_created", 1, work::rebuild),
    ("store.index_set_aside", 1, work::rebuild),
    ("store.index_applied", 1, work::rebuild),
    ("store.index_committed", 1, work::rebuild),
    ("daemon.directories_taken_up", 1, work::rebuild),
];

/// Keepers in which the first daemon armed the point, when the second connects.
const MEETINGS: &[Case] = &[("keeper.daemon_connected", 1, work::meet)];

const ALL: &[&[Case]] = &[STARTS, ENDS, LEDGER, OUTPUT, ACTS, HOMES, RECOVERIES, MEETINGS];

/// Points of the upgrade from an older format; tested in `upgrade`, which has homes of that format.
const OF_UPGRADES: [&str; 1] = ["store.index_upgraded"];

/// How many trials of one table run in parallel: each mostly waits.
const TOGETHER: usize = 3;

fn try_all(cases: &[Case], arm: Arm) {
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((point, nth, work)) = cases.get(next.fetch_add(1, Ordering::Relaxed)) {
            let mut trial = Trial::new(point, *nth, victim_of(point), arm);
            work(&mut trial);
            trial.check();
        }
    };
    std::thread::scope(|scope| (0..TOGETHER).for_each(|_| drop(scope.spawn(work))));
}

/// Which program passes a point. Of those in the store, the keeper writes records and output, the daemon the rest.
fn victim_of(point: &str) -> Victim {
    const KEEPERS: [&str; 5] = ["store.record", "store.directory", "store.segment", "store.mark", "keeper."];
    let keeper = KEEPERS.iter().any(|prefix| point.starts_with(prefix));
    if keeper { Victim::Keeper } else { Victim::Daemon }
}

#[test]
fn a_start_survives_a_crash_at_every_point() {
    try_all(STARTS, Arm::AtOnce);
}

#[test]
fn an_end_survives_a_crash_at_every_point() {
    try_all(ENDS, Arm::AtOnce);
}

#[test]
fn events_survive_a_crash_at_every_point() {
    try_all(LEDGER, Arm::AtOnce);
}

#[test]
fn output_survives_a_crash_at_every_point() {
    try_all(OUTPUT, Arm::AtOnce);
}

#[test]
fn stops_handovers_losses_and_removals_survive_a_crash_at_every_point() {
    try_all(ACTS, Arm::AtOnce);
}

#[test]
fn a_home_survives_a_crash_at_every_point_of_its_creation_and_shutdown() {
    try_all(HOMES, Arm::AtOnce);
}

#[test]
fn a_recovery_survives_a_crash_at_every_point() {
    try_all(RECOVERIES, Arm::Later);
    try_all(MEETINGS, Arm::AtOnce);
}

/// Fails if a crash point of the sources is in no table, or the other way round.
#[test]
fn every_crash_point_of_the_sources_is_tried() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crates");
    let rooms = ["os", "store", "keeper", "daemon", "cli", "mcp"].map(|room| crates.join(room).join("src"));
    let sources = rooms.iter().filter(|room| room.exists()).flat_map(|room| files_in(room));
    let texts: Vec<_> = sources.map(|path| std::fs::read_to_string(path).expect("a source")).collect();
    let name = |call: &str| Some(call.strip_prefix('"')?.split_once('"')?.0.to_owned());
    let points: Vec<_> = texts.iter().flat_map(|text| text.split("crash_point!(").skip(1).filter_map(name)).collect();
    let found: BTreeSet<&str> = points.iter().map(String::as_str).collect();
    assert_eq!(found.len(), points.len(), "two points share a name: {points:?}");
    let mut tried: BTreeSet<&str> = ALL.iter().flat_map(|cases| cases.iter().map(|(point, ..)| *point)).collect();
    tried.extend(OF_UPGRADES);
    assert_eq!(tried, found);
    println!("{} points, {} trials", found.len(), ALL.iter().map(|cases| cases.len()).sum::<usize>());
}
