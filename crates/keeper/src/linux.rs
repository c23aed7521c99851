//! Linux as the keeper's [`System`], and the event loop: one thread, one `poll`.

use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use pinfold_model::facts::Intent;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{KeeperIdentity, LimitPlace, Survivor};
use pinfold_model::outcome::StartStep;
use pinfold_model::units::Moment;
use pinfold_os::cgroup::Cgroup;
use pinfold_os::fsio::{self, ReadResult};
use pinfold_os::poll::{ChildSignal, Interest, wait_ready};
use pinfold_os::spawn::{Child, Spawner};
use pinfold_os::tree::{self, OwnChildren, Reach};
use pinfold_os::wait::{self, EndedChild};
use pinfold_os::{controllers, crash_point, daemonize, proc, socket};
use pinfold_store::Durability;
use pinfold_store::layout::{self, ProcessDir};
use pinfold_store::marks::Stream;
use pinfold_store::output::OutputWriter;
use pinfold_store::reader::OutputReader;
use pinfold_store::record::RecordWriter;

use crate::daemon::DaemonStarter;
use crate::driver::{Driver, StartedParts};
use crate::keeper::{Keeper, Wakeup};
use crate::launch::{LaunchError, SpawnPlacement, launch};
use crate::limit_watch::LimitWatch;
use crate::nursery::NurseryConfig;
use crate::pump::Pump;
use crate::sandbox::RunningSandbox;
use crate::stdin::StdinWriter;
use crate::system::{self, Launch, System};

/// How long to wait before exiting until the last process of the tree has left the keeper's cgroup. What remains after it
/// is removed by the daemon.
const EMPTY_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait until a cgroup is frozen. Only a process in an uninterruptible wait takes this long.
const FREEZE: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Linux<'a> {
    config: &'a NurseryConfig,
    daemon: DaemonStarter,
    /// Where the next daemon connects.
    listener: UnixListener,
    socket_path: PathBuf,
    child_signal: ChildSignal,
    children: OwnChildren,
    cgroup: Option<Cgroup>,
    spawner: Spawner,
    /// Pid and start time of this keeper.
    own: (u32, u64),
    /// Number of limited processes so far, for unique cgroup names.
    limited: u64,
    /// Where the cgroups of the last limited process were.
    limit_places: Vec<PathBuf>,
}

impl<'a> Linux<'a> {
    fn new(config: &'a NurseryConfig) -> io::Result<(Self, KeeperIdentity)> {
        let pid = daemonize::own_pid();
        daemonize::become_subreaper()?;
        let socket_path = config.home.join("keepers").join(pid.to_string());
        // A killed keeper with the same pid may have left its socket.
        let _ = std::fs::remove_file(&socket_path);
        let listener = socket::listen(&socket_path)?;
        listener.set_nonblocking(true)?;
        let start_time = proc::start_time(pid)?;
        // Never reuse a name: Linux kills new members of a cgroup after `cgroup.kill`.
        let leaf = format!("keeper-{start_time}-{pid}");
        let cgroup = config.cgroups.as_ref().and_then(|base| base.make(&leaf).ok());
        let identity =
            KeeperIdentity { pid, start_time, cgroup: cgroup.as_ref().map(|cgroup| cgroup.path().to_owned()) };
        let linux = Self {
            config,
            daemon: DaemonStarter::default(),
            listener,
            socket_path,
            child_signal: ChildSignal::new()?,
            children: OwnChildren::open()?,
            cgroup,
            spawner: Spawner::new(),
            own: (pid, start_time),
            limited: 0,
            limit_places: vec![],
        };
        Ok((linux, identity))
    }

    /// Creates the cgroups of a process with limits; `None` for any other.
    fn prepare_limits(&mut self, intent: &Intent, places: &[LimitPlace]) -> Result<Option<LimitWatch>, String> {
        let limits = intent.spec.limits;
        if limits.is_none() {
            return Ok(None);
        }
        self.limited += 1;
        self.limit_places = places.iter().map(|index| index.path.clone()).collect();
        let (pid, start_time) = self.own;
        let leaf = format!("keeper-{start_time}-{}-{pid}", self.limited);
        LimitWatch::prepare(limits, places, &leaf, self.cgroup.as_ref()).map(Some)
    }

    /// The cgroup of the tree: the one made for its limits, or the keeper's own.
    fn tree_cgroup<'c>(&'c self, limits: Option<&'c LimitWatch>) -> Option<&'c Cgroup> {
        limits.and_then(LimitWatch::cgroup).or(self.cgroup.as_ref())
    }
}

impl System for Linux<'_> {
    type Leader = Child;
    type Pipe = OwnedFd;
    type Output = OutputWriter;
    type File = File;
    type Directory = ProcessDir;
    type Socket = OwnedFd;

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn moment(&self) -> Moment {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Moment(since.as_micros() as u64)
    }

    fn prepare(&mut self, id: &ProcessId) -> io::Result<ProcessDir> {
        ProcessDir::prepare(&self.config.home.join("processes"), id)
    }

    fn record(&self, directory: &ProcessDir) -> RecordWriter {
        let durable = self.config.durable_over_power_loss;
        RecordWriter::new(directory, if durable { Durability::Power } else { Durability::Programs })
    }

    fn discard(&mut self, directory: ProcessDir) {
        let _ = directory.discard();
    }

    fn remove(&mut self, directory: ProcessDir) -> io::Result<()> {
        directory.remove()
    }

    fn launch(
        &mut self,
        Launch { intent, env, limit_places }: Launch<'_>,
        directory: &ProcessDir,
        record: &RecordWriter,
    ) -> Result<StartedParts<Self>, LaunchError> {
        let limits = self.prepare_limits(intent, limit_places);
        let mut limits = limits.map_err(|error| LaunchError::new(StartStep::Spawn, error))?;
        let placement = SpawnPlacement::new(self.cgroup.as_ref(), limits.as_ref(), record);
        let launched = launch(&mut self.spawner, &self.config.inherited, intent, env, directory.path(), &placement);
        let launched = launched.inspect_err(|_| {
            limits.as_ref().inspect(|limits| limits.remove());
        })?;
        crash_point!("keeper.leader_spawned");
        if let Some(limits) = &mut limits {
            limits.tree_started(&launched.child);
        }
        let writer = OutputWriter::new(directory.path(), intent.spec.output_limit, intent.at);
        let pump = Pump::new(launched.sources, writer);
        let (leader, stdin) = (launched.child, launched.stdin_writer);
        Ok(StartedParts { leader, pump, stdin, limits, sandbox: launched.sandbox })
    }

    fn start_daemon(&mut self) -> Result<(), String> {
        self.daemon.start(self.config)
    }

    fn clear_child_signal(&mut self) {
        self.child_signal.clear();
    }

    fn raise_child_oom_score(&mut self) {
        self.spawner.prepare();
    }

    fn restore_oom_score(&mut self) {
        self.spawner.settle();
    }

    fn children(&self) -> io::Result<Vec<u32>> {
        self.children.pids()
    }

    fn observe_exit(&self, leader: &Child) -> Option<EndedChild> {
        wait::observe_exit(&leader.pidfd).ok().flatten()
    }

    fn reap(&mut self, leader: &Child) {
        let _ = wait::reap(&leader.pidfd);
    }

    fn reap_if_ended(&mut self, pid: u32) -> io::Result<Option<EndedChild>> {
        wait::reap_if_ended(pid)
    }

    fn is_dying(&self, leader: &Child) -> bool {
        proc::is_dying(leader.pid)
    }

    fn count_descendants(&self) -> u32 {
        tree::descendants(daemonize::own_pid()).len() as u32
    }

    fn survivors(&self) -> Vec<Survivor> {
        let left = tree::descendants(daemonize::own_pid());
        left.into_iter()
            .map(|member| {
                let reason = match member.stat.state {
                    'D' => "is in an uninterruptible wait in the kernel and cannot be killed until it returns",
                    _ => "did not end after KILL (another user's process?)",
                };
                let command = self.command_line(member.pid);
                Survivor { pid: member.pid, command, reason: reason.to_owned() }
            })
            .collect()
    }

    fn command_line(&self, pid: u32) -> String {
        proc::command_line(pid).unwrap_or_default()
    }

    fn signal_tree(&mut self, signals: &[i32]) -> Reach {
        tree::signal_descendants(daemonize::own_pid(), signals)
    }

    fn kill_cgroup(&mut self, limits: Option<&LimitWatch>) -> bool {
        self.tree_cgroup(limits).is_some_and(|cgroup| cgroup.kill().is_ok())
    }

    fn kill_walk(&mut self, leader: Option<&Child>) {
        leader.inspect(|leader| tree::kill_group(leader));
        tree::kill_descendants(daemonize::own_pid());
    }

    fn pause_tree(&mut self, limits: Option<&LimitWatch>) -> Reach {
        let frozen = self.tree_cgroup(limits).map(freeze).unwrap_or_default();
        tree::halt_descendants(daemonize::own_pid(), |pid| frozen.contains(&pid))
    }

    fn thaw_tree(&mut self, limits: Option<&LimitWatch>) {
        if let Some(cgroup) = self.tree_cgroup(limits) {
            let _ = cgroup.freeze(false);
        }
    }

    fn cgroup(&self) -> Option<&Cgroup> {
        self.cgroup.as_ref()
    }

    fn is_cgroup_vacant(&self) -> Option<bool> {
        self.cgroup.as_ref().map(|cgroup| cgroup.is_vacant().unwrap_or(false))
    }
}

/// Freezes a cgroup; returns the pids in it. A process in an uninterruptible wait stops when it returns.
fn freeze(cgroup: &Cgroup) -> HashSet<u32> {
    let frozen = cgroup.freeze(true).and_then(|()| {
        cgroup.wait_frozen(FREEZE)?;
        cgroup.members()
    });
    frozen.map(HashSet::from_iter).unwrap_or_default()
}

impl system::Leader for Child {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn start_time(&self) -> u64 {
        self.start_time
    }
}

impl system::Pipe for OwnedFd {
    fn read_some(&self, buffer: &mut Vec<u8>) -> io::Result<ReadResult> {
        fsio::read_some(self.as_fd(), buffer)
    }

    fn widen(&self) {
        fsio::widen(self.as_fd());
    }
}

impl system::Socket for OwnedFd {
    fn send(&self, bytes: &[u8]) -> io::Result<usize> {
        socket::send(self.as_fd(), bytes)
    }

    fn read_some(&self, buffer: &mut Vec<u8>) -> io::Result<ReadResult> {
        fsio::read_some(self.as_fd(), buffer)
    }
}

impl system::Output for OutputWriter {
    fn append(&mut self, stream: Stream, bytes: &[u8], at: Moment) {
        OutputWriter::append(self, stream, bytes, at);
    }

    fn total(&self) -> u64 {
        OutputWriter::total(self)
    }

    fn lost(&self) -> u64 {
        OutputWriter::lost(self)
    }

    fn tail(&self, max: usize) -> Vec<u8> {
        OutputReader::open(self.dir()).tail(max, Moment(0)).map(|tail| tail.bytes).unwrap_or_default()
    }
}

impl<'a> Keeper<Linux<'a>> {
    pub(crate) fn open(config: &'a NurseryConfig, link: OwnedFd) -> io::Result<Self> {
        let (linux, identity) = Linux::new(config)?;
        fsio::set_nonblocking(link.as_fd())?;
        let mut keeper = Self::new(linux, identity, link);
        keeper.system.raise_child_oom_score();
        crash_point!("keeper.ready");
        Ok(keeper)
    }

    /// Runs until there is no process and no daemon that could send one.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        while !self.is_done() {
            for wakeup in self.wait()? {
                match wakeup {
                    Wakeup::Listener => self.accept(),
                    wakeup => self.handle(wakeup),
                }
            }
            self.end_turn();
        }
        self.clean_up();
        Ok(())
    }

    fn wait(&self) -> io::Result<Vec<Wakeup>> {
        let mut sources: Vec<(Wakeup, (BorrowedFd<'_>, Interest))> = Vec::with_capacity(6);
        if let Some(driver) = &self.driver {
            let pipes = driver.pump.open_pipes();
            sources.extend(pipes.map(|(index, pipe)| (Wakeup::Output(index), (pipe.as_fd(), Interest::Read))));
            let room = driver.stdin.as_ref().and_then(StdinWriter::awaiting_room);
            sources.extend(room.map(|room| (Wakeup::Input, (room, Interest::Write))));
            let leader = driver.awaited_leader();
            sources.extend(leader.map(|leader| (Wakeup::Leader, (leader.pidfd.as_fd(), Interest::Read))));
            let refused = driver.sandbox.as_ref().and_then(RunningSandbox::refused_calls);
            sources.extend(refused.map(|calls| (Wakeup::Refused, (calls.as_fd(), Interest::Read))));
            sources.push((Wakeup::Children, (self.system.child_signal.as_fd(), Interest::Read)));
        }
        sources.extend(self.link.as_ref().map(|link| (Wakeup::Link, link.interest())));
        sources.push((Wakeup::Listener, (self.system.listener.as_fd(), Interest::Read)));
        sources.extend(self.visitors.interests().map(|(index, interest)| (Wakeup::Visitor(index), interest)));

        let timer = self.driver.as_ref().and_then(Driver::next_timer);
        let timeout = timer.map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_micros(50));
        let fds: Vec<_> = sources.iter().map(|(_, fd)| *fd).collect();
        let ready = wait_ready(&fds, timeout)?;
        let woken = sources.iter().zip(ready).filter(|(_, ready)| ready.read || ready.write);
        Ok(woken.map(|((wakeup, _), _)| *wakeup).collect())
    }

    /// Accepts a connection of a daemon or another program.
    fn accept(&mut self) {
        let Ok((stream, _)) = self.system.listener.accept() else { return };
        let own = socket::own_uid();
        if !socket::peer_uid(stream.as_fd()).is_ok_and(|uid| uid == own || uid == 0) {
            return;
        }
        let home = &self.system.config.home;
        let is_daemon = socket::peer_pid(stream.as_fd()).is_ok_and(|peer| layout::is_daemon(home, peer));
        let socket = OwnedFd::from(stream);
        let ready = fsio::set_nonblocking(socket.as_fd()).is_ok();
        match (is_daemon, ready) {
            (true, true) => self.daemon_connected(socket),
            // A blocking socket could block the keeper: treat the daemon as lost.
            (true, false) => self.daemon_lost(),
            (false, true) => self.visitor_connected(socket),
            (false, false) => {}
        }
    }

    fn clean_up(&mut self) {
        let _ = std::fs::remove_file(&self.system.socket_path);
        crash_point!("keeper.socket_removed");
        self.discard_prepared();
        if let Some(cgroup) = &self.system.cgroup {
            let _ = cgroup.remove_when_empty(EMPTY_TIMEOUT);
        }
        // A running daemon still uses these cgroups. Without one, the last keeper removes them.
        if self.link.is_none() {
            controllers::remove_unused(&self.system.limit_places, |_| true);
        }
    }
}
