//! The keeper against inputs in any order: whatever happens, one end is recorded, and nothing is sent before it is written.

use std::time::Duration;

use pinfold_model::facts::Fact;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{FromKeeper, ToKeeper};
use pinfold_model::outcome::Cause;
use pinfold_model::signal::Signal;
use pinfold_model::spec::{StopManner, Strays};
use pinfold_os::wait::Status;
use pinfold_simulation::machine::LaunchKind;
use pinfold_simulation::scene::{Scene, kind};
use proptest::prelude::*;

/// One thing that happens.
#[derive(Clone, Debug)]
enum Happening {
    Write(usize),
    Fork(usize),
    Exit(usize, u8),
    LetDie,
    Pass(u64),
    ClockSteps(i64),
    DiskFails(u32, u32),
    Stop(u64),
    SendSignal(Signal),
    Pause,
    Resume,
    Disconnect,
    Connect,
    /// The kernel lets nobody die of a KILL that waits inside it.
    Stick(usize, bool),
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::*;
    prop_oneof![
        3 => (1usize..100_000).prop_map(Write),
        2 => (0usize..4).prop_map(Fork),
        3 => (0usize..4, any::<u8>()).prop_map(|(who, code)| Exit(who, code)),
        3 => Just(LetDie),
        4 => (0u64..3_000).prop_map(Pass),
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

fn happens(scene: &mut Scene, id: &ProcessId, happening: Happening) {
    let member = |scene: &Scene, place: usize| {
        let tree = scene.machine.state().tree_of(id);
        tree.get(place % tree.len().max(1)).copied().filter(|pid| scene.machine.state().can_run(*pid))
    };
    let id = id.clone();
    match happening {
        Happening::Write(bytes) => {
            if member(scene, 0).is_some() {
                scene.write(&id, bytes);
            }
        }
        Happening::Fork(place) => {
            if let Some(pid) = member(scene, place) {
                scene.fork(pid);
            }
        }
        Happening::Exit(place, code) => {
            if let Some(pid) = member(scene, place) {
                scene.machine.state().end(pid, Status::Exited { code });
            }
        }
        Happening::LetDie => scene.let_die(),
        Happening::Pass(time) => scene.pass(Duration::from_millis(time)),
        Happening::ClockSteps(step) => {
            let wall = scene.machine.state().wall;
            scene.machine.state().wall = wall.saturating_add_signed(step);
        }
        Happening::DiskFails(refused, torn) => {
            let mut state = scene.machine.state();
            (state.faults.refused_write, state.faults.torn_write) = (refused, torn);
        }
        Happening::Stop(grace) => {
            let manner = StopManner { signal: Signal::TERM, grace: Duration::from_millis(grace) };
            scene.tell(&ToKeeper::Stop { request: 1, id, cause: Cause::TimeLimit, manner });
        }
        Happening::SendSignal(signal) => {
            scene.tell(&ToKeeper::Signal { request: 2, id, signal, by: "test".to_owned() });
        }
        Happening::Pause => scene.tell(&ToKeeper::Pause { request: 3, id }),
        Happening::Resume => scene.tell(&ToKeeper::Resume { request: 4, id }),
        Happening::Disconnect => scene.disconnect(),
        Happening::Connect => scene.connect(),
        Happening::Stick(place, stuck) => {
            let tree = scene.machine.state().tree_of(&id);
            if let Some(pid) = tree.get(place)
                && let Some(process) = scene.machine.state().processes.get_mut(pid)
            {
                process.stuck = stuck;
            }
        }
    }
    scene.settle();
}

/// The machine heals, and everybody is let go: whatever was going on comes to its end.
fn come_to_the_end(scene: &mut Scene, id: &ProcessId) {
    {
        let mut state = scene.machine.state();
        (state.faults.refused_write, state.faults.torn_write) = (0, 0);
        state.processes.values_mut().for_each(|process| process.stuck = false);
    }
    for _ in 0..20 {
        scene.connect();
        let manner = StopManner { signal: Signal::KILL, grace: Duration::ZERO };
        scene.tell(&ToKeeper::Stop { request: 9, id: id.clone(), cause: Cause::TimeLimit, manner });
        scene.let_die();
        scene.pass(Duration::from_millis(700));
    }
}

fn facts_told(scene: &Scene) -> Vec<&Fact> {
    let facts =
        scene.said.iter().filter_map(|said| if let FromKeeper::Fact { fact, .. } = said { Some(fact) } else { None });
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
        happenings in prop::collection::vec(happening(), 0..40),
    ) {
        let mut scene = Scene::new(seed);
        scene.machine.state().with_cgroups = with_cgroups;
        scene.machine.state().next_launch = Some(if fails { LaunchKind::Fails } else { LaunchKind::Runs });
        let id = scene.start(|draft| draft.strays = if stop_strays { Strays::Stop } else { Strays::Keep });
        for happening in happenings {
            happens(&mut scene, &id, happening);
            let broken = scene.machine.state().broken.clone();
            prop_assert_eq!(broken, None);
        }
        come_to_the_end(&mut scene, &id);
        let broken = scene.machine.state().broken.clone();
        prop_assert_eq!(broken, None);
        let record = scene.record(&id).expect("its record is whole");
        let ends = record.facts.iter().filter(|fact| matches!(fact, Fact::Finished(_) | Fact::Lost { .. })).count();
        prop_assert_eq!(ends, 1, "{:?}", scene.lines(&id));
        prop_assert!(matches!(record.facts.last(), Some(Fact::Finished(_))));
        prop_assert!(scene.machine.state().tree_of(&id).is_empty());
        // What was sent is what the record says, in its order; a link that was lost may have left some out.
        let mut written = record.facts.iter();
        for told in facts_told(&scene) {
            prop_assert!(written.any(|fact| fact == told), "{} is not in the record after the one before", kind(told));
        }
    }
}
