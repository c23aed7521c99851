//! Property test of the keeper: for any order of events, one end is recorded, and nothing is sent before it is written.

use std::time::Duration;

use pinfold_model::facts::Fact;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{FromKeeper, ToKeeper};
use pinfold_model::outcome::Cause;
use pinfold_model::signal::Signal;
use pinfold_model::spec::{StopManner, Strays};
use pinfold_os::wait::ExitStatus;
use pinfold_simulation::harness::{Harness, kind};
use pinfold_simulation::machine::LaunchKind;
use proptest::prelude::*;

/// One event of a random history.
#[derive(Clone, Debug)]
enum Action {
    Write(usize),
    Fork(usize),
    Exit(usize, u8),
    DeliverDeaths,
    AdvanceTime(u64),
    ClockSteps(i64),
    DiskFails(u32, u32),
    Stop(u64),
    SendSignal(Signal),
    Pause,
    Resume,
    Disconnect,
    Connect,
    /// Puts a process into an uninterruptible wait, where a KILL has no effect, or takes it out.
    Stick(usize, bool),
}

fn action() -> impl Strategy<Value = Action> {
    use Action::*;
    prop_oneof![
        3 => (1usize..100_000).prop_map(Write),
        2 => (0usize..4).prop_map(Fork),
        3 => (0usize..4, any::<u8>()).prop_map(|(who, code)| Exit(who, code)),
        3 => Just(DeliverDeaths),
        4 => (0u64..3_000).prop_map(AdvanceTime),
        1 => (-4_000_000i64..4_000_000).prop_map(ClockSteps),
        2 => (prop::sample::select(vec![0, 0, 300, 1000]), prop::sample::select(vec![0, 0, 500]))
            .prop_map(|(refused, torn)| DiskFails(refused, torn)),
        2 => (0u64..2_000).prop_map(Stop),
        1 => prop::sample::select(vec![Signal::TERM, Signal::KILL, Signal::STOP, Signal::CONT, Signal::HUP]).prop_map(SendSignal),
        1 => Just(Pause),
        1 => Just(Resume),
        1 => Just(Disconnect),
        1 => Just(Connect),
        1 => (0usize..4, any::<bool>()).prop_map(|(who, stuck)| Stick(who, stuck)),
    ]
}

fn perform(harness: &mut Harness, id: &ProcessId, action: Action) {
    let member = |harness: &Harness, place: usize| {
        let tree = harness.machine.state().tree_of(id);
        tree.get(place % tree.len().max(1)).copied().filter(|pid| harness.machine.state().can_run(*pid))
    };
    let id = id.clone();
    match action {
        Action::Write(bytes) => {
            if member(harness, 0).is_some() {
                harness.write(&id, bytes);
            }
        }
        Action::Fork(place) => {
            if let Some(pid) = member(harness, place) {
                harness.fork(pid);
            }
        }
        Action::Exit(place, code) => {
            if let Some(pid) = member(harness, place) {
                harness.machine.state().end(pid, ExitStatus::Exited { code });
            }
        }
        Action::DeliverDeaths => harness.deliver_deaths(),
        Action::AdvanceTime(time) => harness.advance(Duration::from_millis(time)),
        Action::ClockSteps(step) => {
            let wall = harness.machine.state().wall;
            harness.machine.state().wall = wall.saturating_add_signed(step);
        }
        Action::DiskFails(refused, torn) => {
            let mut state = harness.machine.state();
            (state.faults.refused_write, state.faults.torn_write) = (refused, torn);
        }
        Action::Stop(grace) => {
            let manner = StopManner { signal: Signal::TERM, grace: Duration::from_millis(grace) };
            harness.send_message(&ToKeeper::Stop { request: 1, id, cause: Cause::TimeLimit, manner });
        }
        Action::SendSignal(signal) => {
            harness.send_message(&ToKeeper::Signal { request: 2, id, signal, by: "test".to_owned() });
        }
        Action::Pause => harness.send_message(&ToKeeper::Pause { request: 3, id }),
        Action::Resume => harness.send_message(&ToKeeper::Resume { request: 4, id }),
        Action::Disconnect => harness.disconnect(),
        Action::Connect => harness.connect(),
        Action::Stick(place, stuck) => {
            let tree = harness.machine.state().tree_of(&id);
            if let Some(pid) = tree.get(place)
                && let Some(process) = harness.machine.state().processes.get_mut(pid)
            {
                process.stuck = stuck;
            }
        }
    }
    harness.run_until_idle();
}

/// Removes all faults, then sends stops until the process has ended.
fn stop_and_finish(harness: &mut Harness, id: &ProcessId) {
    {
        let mut state = harness.machine.state();
        (state.faults.refused_write, state.faults.torn_write) = (0, 0);
        state.processes.values_mut().for_each(|process| process.stuck = false);
    }
    for _ in 0..20 {
        harness.connect();
        let manner = StopManner { signal: Signal::KILL, grace: Duration::ZERO };
        harness.send_message(&ToKeeper::Stop { request: 9, id: id.clone(), cause: Cause::TimeLimit, manner });
        harness.deliver_deaths();
        harness.advance(Duration::from_millis(700));
    }
}

fn sent_facts(harness: &Harness) -> Vec<&Fact> {
    let facts = harness
        .messages
        .iter()
        .filter_map(|message| if let FromKeeper::Fact { fact, .. } = message { Some(fact) } else { None });
    facts.collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// K1 and S1
    #[test]
    fn one_end_is_recorded_and_nothing_is_sent_before_it_is_written(
        seed in any::<u64>(),
        with_cgroups in any::<bool>(),
        stop_strays in any::<bool>(),
        fails in prop::bool::weighted(0.1),
        actions in prop::collection::vec(action(), 0..40),
    ) {
        let mut harness = Harness::new(seed);
        harness.machine.state().with_cgroups = with_cgroups;
        harness.machine.state().next_launch = Some(if fails { LaunchKind::Fails } else { LaunchKind::Runs });
        let id = harness.start(|spec| spec.strays = if stop_strays { Strays::Stop } else { Strays::Keep });
        for action in actions {
            perform(&mut harness, &id, action);
            let violation = harness.machine.state().violation.clone();
            prop_assert_eq!(violation, None);
        }
        stop_and_finish(&mut harness, &id);
        let violation = harness.machine.state().violation.clone();
        prop_assert_eq!(violation, None);
        let record = harness.record(&id).expect("a readable record");
        let ends = record.facts.iter().filter(|fact| matches!(fact, Fact::Finished(_) | Fact::Lost { .. })).count();
        prop_assert_eq!(ends, 1, "{:?}", harness.record_kinds(&id));
        prop_assert!(matches!(record.facts.last(), Some(Fact::Finished(_))));
        prop_assert!(harness.machine.state().tree_of(&id).is_empty());
        // The facts sent are those in the record, in the same order; a lost link may have dropped some.
        let mut written = record.facts.iter();
        for sent in sent_facts(&harness) {
            prop_assert!(written.any(|fact| fact == sent), "{} is not in the record after the previous one", kind(sent));
        }
    }
}
