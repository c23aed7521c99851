//! Runs the history of a seed, or replays it: random steps with faults, then without faults until every process is over; then
//! checks the result.

use std::time::{Duration, Instant};

use pinfold_model::event::EventKind;
use pinfold_model::id::ProcessId;

use crate::harness::record_of;
use crate::world::World;

/// How many steps with faults: the minimum, and how many more at random.
const MIN_STEPS: u64 = 40;
const MORE_STEPS: u64 = 200;
/// The most rounds without faults until all keepers are connected, and again until all processes are over.
const MAX_ROUNDS: usize = 400;

/// A history that violated an invariant.
#[derive(Debug)]
pub struct FailedHistory {
    pub seed: u64,
    pub what: String,
    /// The trace of the history.
    pub trace: Vec<String>,
}

/// Totals of many histories.
#[derive(Debug, Default)]
pub struct Summary {
    pub histories: u64,
    pub steps: u64,
    pub processes: u64,
    pub lost: u64,
    pub events: u64,
    pub took: Duration,
}

/// Runs histories until one fails; runs that one again for its trace.
pub fn run(first: u64, histories: u64, mut progress: impl FnMut(u64)) -> Result<Summary, Box<FailedHistory>> {
    let began = Instant::now();
    let mut summary = Summary::default();
    for number in 0..histories {
        // The first history has the given seed, so that a failed one can be replayed alone.
        let seed = first.wrapping_add(number);
        let world = World::new(seed);
        if let Err(what) = run_one(world, &mut summary) {
            return Err(Box::new(FailedHistory { seed, what, trace: trace(seed) }));
        }
        progress(number);
    }
    summary.took = began.elapsed();
    Ok(summary)
}

/// The trace of a history.
pub fn trace(seed: u64) -> Vec<String> {
    let world = World::new(seed);
    let machine = world.machine.clone();
    machine.state().trace = Some(vec![]);
    let _ = run_one(world, &mut Summary::default());
    machine.state().trace.take().unwrap_or_default()
}

fn run_one(mut world: World, summary: &mut Summary) -> Result<(), String> {
    let steps = MIN_STEPS + world.random.below(MORE_STEPS);
    for _ in 0..steps {
        world.step();
        if let Some(what) = world.violation() {
            return Err(what);
        }
    }
    world.heal();
    run_rounds(&mut world, World::is_linked).map_err(|what| format!("after all faults ended: {what}"))?;
    if let Some(id) = world.unlinked() {
        return Err(format!("{id} has no link to its running keeper, long after all faults ended"));
    }
    run_rounds(&mut world, World::is_over)?;
    world.check_end()?;
    summary.histories += 1;
    summary.steps += steps;
    summary.processes += world.started;
    summary.events += world.index.shown.len() as u64;
    summary.lost += world.index.shown.iter().filter(|(_, kind)| *kind == EventKind::Lost).count() as u64;
    Ok(())
}

/// Runs rounds until `done`.
fn run_rounds(world: &mut World, done: impl Fn(&mut World) -> bool) -> Result<(), String> {
    for _ in 0..MAX_ROUNDS {
        if done(world) {
            return Ok(());
        }
        world.round();
        if let Some(what) = world.violation() {
            return Err(what);
        }
    }
    Ok(())
}

impl World {
    /// One turn for every program; if none has work, advances time to the next timer.
    fn round(&mut self) {
        let mut busy = false;
        let pids: Vec<u32> = self.keepers.keys().copied().collect();
        for pid in pids {
            let Some(keeper) = self.keepers.get_mut(&pid) else { continue };
            let ready = keeper.ready();
            if ready.is_empty() && !keeper.is_due() && !keeper.has_unsent() {
                continue;
            }
            busy = true;
            self.machine.trace(|| format!("keeper {pid} wakes for {ready:?}"));
            if !keeper.turn(&ready) {
                self.keepers.remove(&pid);
            }
            self.after_step();
        }
        if let Some(daemon) = &mut self.daemon {
            for link in daemon.ready_links() {
                daemon.receive(link);
                busy = true;
            }
            daemon.check_hellos();
            daemon.finish_recovery_early();
            daemon.timers(&mut self.index, &self.keepers);
            daemon.commit(&mut self.index);
        }
        let dying = self.machine.state().dying();
        busy |= !dying.is_empty();
        dying.into_iter().for_each(|pid| self.die(pid));
        self.after_step();
        if !busy {
            self.machine.advance(self.next_timer().unwrap_or(Duration::from_millis(10)).min(Duration::from_secs(1)));
        }
    }

    /// A process of a running keeper to which the daemon has no link.
    fn unlinked(&self) -> Option<ProcessId> {
        let daemon = self.daemon.as_ref()?;
        let kept = self.keepers.values().filter_map(|keeper| keeper.keeps());
        let is_unlinked = |id: &&ProcessId| daemon.entries.get(id).is_none_or(|entry| entry.link.is_none());
        kept.into_iter().find(is_unlinked).cloned()
    }

    fn is_linked(&mut self) -> bool {
        let quiet = self.daemon.as_ref().is_some_and(|daemon| {
            !daemon.is_recovering() && !daemon.has_pending_connects() && daemon.ready_links().is_empty()
        });
        quiet && self.unlinked().is_none()
    }

    /// Whether all processes are over; sends further stops until they are.
    fn is_over(&mut self) -> bool {
        let Some(daemon) = &self.daemon else { return false };
        let over = !daemon.is_recovering()
            && !daemon.has_pending_connects()
            && daemon.live().is_empty()
            && daemon.ready_links().is_empty()
            && daemon.is_committed();
        self.rounds += 1;
        // Not in every round: time only advances when no program has work.
        if !over && self.rounds % 10 == 1 {
            self.stop_all();
        }
        let dying = !self.machine.state().dying().is_empty();
        over && !dying && self.keepers.values().all(|keeper| keeper.keeps().is_none() && keeper.ready().is_empty())
    }

    /// Invariants at the end of a history.
    fn check_end(&mut self) -> Result<(), String> {
        let daemon = self.daemon.as_ref().ok_or("there is no daemon at the end")?;
        if let Some(id) = daemon.live().first() {
            return Err(format!("{id} is not over, long after a stop: {:?}", daemon.entries[id]));
        }
        let left: Vec<u32> = {
            let state = self.machine.state();
            let members =
                state.processes.iter().filter(|(_, process)| process.ended.is_none() && process.member_of.is_some());
            members.filter(|(_, process)| process.role != crate::machine::Role::Outsider).map(|(pid, _)| *pid).collect()
        };
        if !left.is_empty() {
            return Err(format!("processes {left:?} are still running after every process is over"));
        }
        for number in 1..=self.started {
            self.check_process(&ProcessId::from_number(number, 1))?;
        }
        Ok(())
    }

    fn check_process(&self, id: &ProcessId) -> Result<(), String> {
        let history = record_of(&self.machine, id).and_then(|record| record.history());
        let Some(history) = history else {
            return match self.acknowledged.contains(id) {
                true => Err(format!("D1: the start of {id} was acknowledged, and it has no record")),
                false => Ok(()),
            };
        };
        if !history.status().is_over() {
            return Err(format!("the record of {id} has no end: {:?}", history.status()));
        }
        let mut expected: Vec<EventKind> = history.events().into_iter().map(|(kind, _)| kind).collect();
        let mut shown = self.index.events_of(id);
        expected.sort();
        shown.sort();
        // `closed` and `finished` within one microsecond count as one event.
        if shown != expected && !only_closed_differs(&shown, &expected) {
            return Err(format!("S4: {id} has the events {shown:?}, its record {expected:?}"));
        }
        Ok(())
    }
}

fn only_closed_differs(shown: &[EventKind], expected: &[EventKind]) -> bool {
    let without =
        |kinds: &[EventKind]| kinds.iter().filter(|kind| **kind != EventKind::Closed).copied().collect::<Vec<_>>();
    without(shown) == without(expected)
}
