//! Bounds of memory; output without newlines; hints for silent processes.

use pinfold_api::types::{Outcome, OutputQuery, StartRequest, Status};
use pinfold_testkit::{Pinfold, until, until_some};

use super::gate::Gate;
use super::{lines_of_eight, read_raw, start_limited};
use crate::PINFOLD;

/// The memory of a process without its program text, which it shares with all others.
fn memory(pid: u32) -> u64 {
    let rollup = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("a living process");
    let line = rollup.lines().find_map(|line| line.strip_prefix("Anonymous:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Ten megabytes without a newline, five in writes of odd sizes, then eighty of lines.
#[test]
fn memory_bounded() {
    const MOST: u64 = 4 << 20;
    let pinfold = Pinfold::start(PINFOLD);
    let (go, end) = (Gate::new(&pinfold, "go"), Gate::new(&pinfold, "end"));
    let command = format!(
        "{}; head -c 10000000 /dev/zero; head -c 5242880 /dev/zero | dd bs=977 status=none; \
         yes 0123456 | head -c 80000000; {}",
        go.wait(),
        end.wait()
    );
    let id = start_limited(&pinfold, &command, "16M").id;
    let (daemon, keeper) = (pinfold.daemon_pid(), pinfold.keeper_pid(&id));
    // One read in advance, so that the memory that any read takes is not counted.
    pinfold.output(&id, &OutputQuery::default());
    let before = [memory(daemon), memory(keeper)];
    go.open();
    let mut peak = before;
    until("all is written", || {
        peak = [peak[0].max(memory(daemon)), peak[1].max(memory(keeper))];
        pinfold.show(&id).output.bytes == 95_242_880
    });
    let grown = [peak[0] - before[0], peak[1] - before[1]];
    assert!(grown[0] < MOST && grown[1] < MOST, "daemon and keeper have grown by {grown:?} bytes");
    end.open();
    let record = pinfold.wait_finished(&id);
    assert_eq!((record.output.bytes, record.outcome), (95_242_880, Some(Outcome::Exited { code: 0 })));
    let head = read_raw(&pinfold, &id, 1_000_000, "4k");
    assert_eq!((head.cursor, head.bytes.as_ref()), (1_000_000, [0; 4096].as_slice()));
    let tail = read_raw(&pinfold, &id, 95_000_000, "4k");
    assert_eq!((tail.cursor, tail.bytes), (95_000_000, lines_of_eight(95_000_000 - 15_242_880, 4096).into()));
}

/// A filter that writes to a pipe buffers whole blocks.
#[test]
fn silent_job_hint() {
    let pinfold = Pinfold::start(PINFOLD);
    let silent = pinfold.sh("(echo held back; exec sleep 300) | grep held").id;
    let spoken = pinfold.sh("echo hello; exec sleep 300").id;
    let first = pinfold.output(&silent, &OutputQuery::default());
    assert_eq!((first.end, first.hint), (0, None), "nothing is suspicious at the beginning");
    let hint = until_some("a hint", || pinfold.output(&silent, &OutputQuery::default()).hint);
    assert!(hint.contains("no output yet") && hint.contains("stdbuf"), "{hint}");
    let page = pinfold.output(&spoken, &OutputQuery::default());
    assert_eq!((page.text.as_str(), page.hint), ("hello\n", None));
    pinfold.stop(&silent);
    let page = pinfold.output(&silent, &OutputQuery::default());
    assert_eq!((page.status, page.hint), (Status::Finished, None));
}

#[test]
fn shell_noise_absent() {
    let pinfold = Pinfold::start(PINFOLD);
    for shell in ["sh", "bash"] {
        for command in ["sleep 0 & wait; echo done", "(sleep 0 &); echo done", "sleep 0 & sleep 0 & wait; echo done"] {
            let started = pinfold.start_request(&StartRequest {
                command: Some(command.into()),
                shell: Some(shell.into()),
                ..StartRequest::default()
            });
            pinfold.wait_finished(&started.record.id);
            assert_eq!(pinfold.text(&started.record.id), "done\n", "{shell}: {command}");
        }
    }
}
