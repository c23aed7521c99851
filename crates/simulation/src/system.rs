//! A keeper's operating system, backed by the simulated machine.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use pinfold_keeper::system::{self, Launch, LaunchError, LimitWatch, OutputStream, StartedParts, System};
use pinfold_model::id::ProcessId;
use pinfold_model::link::Survivor;
use pinfold_model::outcome::StartStep;
use pinfold_model::units::Moment;
use pinfold_os::cgroup::Cgroup;
use pinfold_os::fsio::ReadResult;
use pinfold_os::tree::Reach;
use pinfold_os::wait::{EndedChild, ExitStatus};
use pinfold_store::Durability;
use pinfold_store::record::RecordWriter;

use crate::files::{MemoryFile, MemoryOutput};
use crate::machine::{LaunchKind, Machine, PipeState, Role, SIGKILL, SIGSTOP};
use crate::sockets::MemorySocket;

/// One keeper's view of the machine.
#[derive(Debug)]
pub struct MemorySystem {
    pub machine: Machine,
    pub pid: u32,
    /// Identifies its cgroup.
    pub start_time: u64,
}

#[derive(Debug)]
pub struct MemoryLeader {
    pid: u32,
    start_time: u64,
}

impl system::Leader for MemoryLeader {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn start_time(&self) -> u64 {
        self.start_time
    }
}

/// The directory of a process, reduced to its record.
#[derive(Debug)]
pub struct MemoryDirectory {
    id: ProcessId,
    file: Arc<MemoryFile>,
}

/// The read end of a tree's output.
#[derive(Debug)]
pub struct MemoryPipe {
    machine: Machine,
    id: ProcessId,
}

impl MemoryPipe {
    /// Whether a read would return bytes or end of file.
    pub fn is_readable(&self) -> bool {
        let state = self.machine.state();
        state.pipes.get(&self.id).is_some_and(|pipe| pipe.waiting > 0) || !state.output_is_open(&self.id)
    }
}

impl system::Pipe for MemoryPipe {
    fn read_some(&self, buffer: &mut Vec<u8>) -> io::Result<ReadResult> {
        let mut state = self.machine.state();
        let open = state.output_is_open(&self.id);
        let Some(pipe) = state.pipes.get_mut(&self.id) else { return Ok(ReadResult::Closed) };
        if pipe.waiting == 0 {
            return Ok(if open { ReadResult::Empty } else { ReadResult::Closed });
        }
        let count = pipe.waiting.min((buffer.capacity() - buffer.len()).max(1));
        let from = pipe.written - pipe.waiting as u64;
        buffer.extend((from..from + count as u64).map(MemoryOutput::byte_at));
        pipe.waiting -= count;
        Ok(ReadResult::Bytes(count))
    }

    fn widen(&self) {}
}

impl MemorySystem {
    /// The running descendants of this keeper.
    fn tree(&self) -> Vec<u32> {
        self.machine.state().descendants(self.pid)
    }

    fn start_leader(&mut self, id: &ProcessId) -> MemoryLeader {
        let mut state = self.machine.state();
        let pid = state.fork(self.pid, Role::Member { leader: true });
        let (rate, with_cgroups) = (state.faults.ignores_term, state.with_cgroups);
        let ignores_term = state.random.permille(rate);
        let killed = state.cgroups.get(&self.start_time).is_some_and(|cgroup| cgroup.killed);
        if with_cgroups && killed {
            state
                .violation
                .get_or_insert("a leader is started in a cgroup after cgroup.kill: Linux kills it".to_owned());
        }
        state.pipes.insert(id.clone(), PipeState::default());
        let process = state.processes.get_mut(&pid).expect("just forked");
        process.member_of = Some(id.clone());
        process.ignores_term = ignores_term;
        process.holds_output = true;
        process.cgroup = with_cgroups.then_some(self.start_time);
        MemoryLeader { pid, start_time: process.start_time }
    }
}

impl System for MemorySystem {
    type Leader = MemoryLeader;
    type Pipe = MemoryPipe;
    type Output = MemoryOutput;
    type File = MemoryFile;
    type Directory = MemoryDirectory;
    type Socket = MemorySocket;

    fn now(&self) -> Instant {
        self.machine.now()
    }

    fn moment(&self) -> Moment {
        self.machine.moment()
    }

    #[expect(
        clippy::arc_with_non_send_sync,
        reason = "the store shares files between threads; the simulation has one thread"
    )]
    fn prepare(&mut self, id: &ProcessId) -> io::Result<MemoryDirectory> {
        if !self.machine.try_act(self.pid) {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut state = self.machine.state();
        let rate = state.faults.refused_directory;
        if state.random.permille(rate) {
            return Err(crate::machine::State::no_space());
        }
        drop(state);
        let file = MemoryFile::create(&self.machine, self.pid, id)?;
        Ok(MemoryDirectory { id: id.clone(), file: Arc::new(file) })
    }

    fn record(&self, directory: &MemoryDirectory) -> RecordWriter<MemoryFile> {
        RecordWriter::of(Arc::clone(&directory.file), Durability::Programs)
    }

    fn discard(&mut self, directory: MemoryDirectory) {
        if self.machine.try_act(self.pid) {
            self.machine.state().records.remove(&directory.id);
        }
    }

    fn remove(&mut self, directory: MemoryDirectory) -> io::Result<()> {
        self.discard(directory);
        Ok(())
    }

    fn launch(
        &mut self,
        what: Launch<'_>,
        _directory: &MemoryDirectory,
        _record: &RecordWriter<MemoryFile>,
    ) -> Result<StartedParts<Self>, LaunchError> {
        let failed = |error: &str| LaunchError::new(StartStep::Exec, error.to_owned());
        if !self.machine.try_act(self.pid) {
            return Err(failed("the keeper is dead"));
        }
        let kind = {
            let mut state = self.machine.state();
            let rate = state.faults.failed_launch;
            let by_chance = match state.random.permille(rate) {
                false => LaunchKind::Runs,
                true => {
                    let kinds = [LaunchKind::Missing, LaunchKind::Fails, LaunchKind::Hangs];
                    *state.random.pick(&kinds).expect("three")
                }
            };
            if state.with_cgroups && state.is_frozen(self.start_time) {
                state.violation.get_or_insert("a leader is started in a frozen cgroup".to_owned());
            }
            state.next_launch.take().unwrap_or(by_chance)
        };
        match kind {
            LaunchKind::Missing => Err(LaunchError { refused: true, ..failed("there is no such program") }),
            LaunchKind::Fails => Err(failed("permission denied")),
            LaunchKind::Hangs => Err(LaunchError { stuck: true, ..failed("its file system did not answer") }),
            LaunchKind::Runs => {
                let id = &what.intent.id;
                let leader = self.start_leader(id);
                let pipe = MemoryPipe { machine: self.machine.clone(), id: id.clone() };
                let output = MemoryOutput::new(&self.machine, self.pid);
                Ok(StartedParts::new(leader, vec![OutputStream::stdout(pipe)], output))
            }
        }
    }

    fn start_daemon(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn clear_child_signal(&mut self) {
        if let Some(own) = self.machine.state().processes.get_mut(&self.pid) {
            own.child_signal = false;
        }
    }

    fn raise_child_oom_score(&mut self) {}

    fn restore_oom_score(&mut self) {}

    fn children(&self) -> io::Result<Vec<u32>> {
        Ok(self.machine.state().children(self.pid))
    }

    fn observe_exit(&self, leader: &MemoryLeader) -> Option<EndedChild> {
        let state = self.machine.state();
        let status = state.processes.get(&leader.pid)?.ended?;
        Some(ended(leader.pid, status))
    }

    fn reap(&mut self, leader: &MemoryLeader) {
        if !self.machine.try_act(self.pid) {
            return;
        }
        let mut state = self.machine.state();
        if state.is_alive(leader.pid) {
            state.violation.get_or_insert("a running leader is reaped: its keeper would hang".to_owned());
        }
        state.processes.remove(&leader.pid);
        if !state.descendants(self.pid).is_empty() {
            state.violation.get_or_insert("K2: the leader is reaped before its tree is empty".to_owned());
        }
    }

    fn reap_if_ended(&mut self, pid: u32) -> io::Result<Option<EndedChild>> {
        if !self.machine.try_act(self.pid) {
            return Ok(None);
        }
        let mut state = self.machine.state();
        let Some(status) = state.processes.get(&pid).ok_or(io::ErrorKind::NotFound)?.ended else { return Ok(None) };
        state.processes.remove(&pid);
        Ok(Some(ended(pid, status)))
    }

    fn is_dying(&self, leader: &MemoryLeader) -> bool {
        self.machine.state().processes.get(&leader.pid).is_some_and(|process| process.pending_exit.is_some())
    }

    fn count_descendants(&self) -> u32 {
        self.tree().len() as u32
    }

    fn survivors(&self) -> Vec<Survivor> {
        let survivor =
            |pid| Survivor { pid, command: self.command_line(pid), reason: "uninterruptible wait".to_owned() };
        self.tree().into_iter().map(survivor).collect()
    }

    fn command_line(&self, pid: u32) -> String {
        format!("program {pid}")
    }

    fn signal_tree(&mut self, signals: &[i32]) -> Reach {
        let mut reach = Reach::default();
        for pid in self.tree() {
            if !self.machine.try_act(self.pid) {
                break;
            }
            for signal in signals {
                self.machine.state().signal(pid, *signal);
            }
            reach.signalled.push(pid);
        }
        reach
    }

    fn kill_cgroup(&mut self, _limits: Option<&LimitWatch>) -> bool {
        if !self.machine.try_act(self.pid) || !self.machine.state().with_cgroups {
            return false;
        }
        let mut state = self.machine.state();
        state.cgroups.entry(self.start_time).or_default().killed = true;
        let inside = |process: &crate::machine::Process| process.cgroup == Some(self.start_time);
        let members: Vec<u32> =
            state.processes.iter().filter(|(_, process)| inside(process)).map(|(pid, _)| *pid).collect();
        members.into_iter().for_each(|pid| state.signal(pid, SIGKILL));
        true
    }

    fn kill_walk(&mut self, _leader: Option<&MemoryLeader>) {
        self.signal_tree(&[SIGKILL]);
    }

    fn pause_tree(&mut self, _limits: Option<&LimitWatch>) -> Reach {
        let with_cgroups = self.machine.state().with_cgroups;
        if with_cgroups && self.machine.try_act(self.pid) {
            self.machine.state().cgroups.entry(self.start_time).or_default().frozen = true;
        }
        let mut reach = Reach::default();
        for pid in self.tree() {
            let frozen = self.machine.state().processes.get(&pid).is_some_and(|process| process.cgroup.is_some());
            if !frozen && self.machine.try_act(self.pid) {
                self.machine.state().signal(pid, SIGSTOP);
            }
            reach.signalled.push(pid);
        }
        reach
    }

    fn thaw_tree(&mut self, _limits: Option<&LimitWatch>) {
        if self.machine.try_act(self.pid) {
            let mut state = self.machine.state();
            let rate = state.faults.stuck_frozen;
            let fails = state.random.permille(rate);
            if let Some(cgroup) = state.cgroups.get_mut(&self.start_time).filter(|_| !fails) {
                cgroup.frozen = false;
            }
        }
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        None
    }

    fn is_cgroup_vacant(&self) -> Option<bool> {
        let mut state = self.machine.state();
        if !state.with_cgroups {
            return None;
        }
        let rate = state.faults.stuck_frozen;
        let fails = state.random.permille(rate);
        let cgroup = state.cgroups.entry(self.start_time).or_default();
        cgroup.frozen &= fails;
        let frozen = cgroup.frozen;
        let inside =
            |process: &crate::machine::Process| process.cgroup == Some(self.start_time) && process.ended.is_none();
        Some(!frozen && !state.processes.values().any(inside))
    }
}

fn ended(pid: u32, status: ExitStatus) -> EndedChild {
    EndedChild { pid, status, cpu_us: 1000, max_rss_bytes: 4096 }
}
