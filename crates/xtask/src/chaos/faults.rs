//! The faults: chosen at random, injected and counted.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::ensure;
use pinfold_testkit::Pidfd;

use super::INTERRUPTED;
use super::campaign_home::{KeeperName, run};
use super::clients::{Actor, Campaign, lock};
use super::random::Dice;

const KILL: i32 = 9;
const CONT: i32 = 18;
const STOP: i32 = 19;
/// Time for a daemon to start, even if the disk is full for a while.
const DEADLINE: Duration = Duration::from_secs(60);
/// Number of `pinfold` commands running at the same time.
const MAX_CLIENTS: usize = 4;

/// The injected faults, for the checks and the report.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// Keepers that were killed: their processes may be lost.
    pub(super) keepers: BTreeSet<KeeperName>,
    /// Whether output may have gaps: the disk was full.
    pub(super) disk_was_full: bool,
    /// When the index was torn, in microseconds: later event numbers are higher than this.
    pub(super) rebuilds: Vec<u64>,
    /// Ended processes whose records were torn.
    pub(super) torn: BTreeSet<String>,
    /// Faults that are not possible here, and why.
    pub(super) missing: BTreeSet<&'static str>,
}

/// Injects the faults.
#[derive(Debug)]
pub(super) struct FaultInjector<'a> {
    pub(super) play: &'a Campaign,
    pub(super) dice: Dice,
    pub(super) done: Done,
    /// Paused processes, and until when.
    standing: Vec<(Instant, Pidfd)>,
    ballast: Option<(Instant, PathBuf)>,
    /// The daemon without free descriptors, until when, and its previous limit.
    starved: Option<(Instant, u32, String)>,
    clients: Vec<Child>,
    /// Foreign connections that stay open, and until when.
    pub(super) intruders: Vec<(Instant, UnixStream)>,
}

impl<'a> FaultInjector<'a> {
    pub(super) fn new(play: &'a Campaign) -> Self {
        let dice = Dice::new(play.seed, 2);
        let (standing, clients, intruders) = (vec![], vec![], vec![]);
        Self { play, dice, done: Done::default(), standing, ballast: None, starved: None, clients, intruders }
    }

    /// Injects faults until this time; then undoes those that last.
    pub(super) fn work(&mut self, until: Instant) -> anyhow::Result<()> {
        while Instant::now() < until && !INTERRUPTED.load(Ordering::Relaxed) {
            self.rest()?;
            self.one()?;
        }
        self.relent(None)?;
        for mut client in self.clients.drain(..) {
            let _ = client.kill();
            let _ = client.wait();
        }
        self.start_daemon()
    }

    fn rest(&mut self) -> anyhow::Result<()> {
        let until = Instant::now() + self.dice.millis(50, 500);
        while Instant::now() < until {
            std::thread::sleep(Duration::from_millis(10));
            self.relent(Some(Instant::now()))?;
        }
        Ok(())
    }

    /// Undoes the faults that are due, or all.
    fn relent(&mut self, by: Option<Instant>) -> anyhow::Result<()> {
        let due = |at: &Instant| by.is_none_or(|by| *at <= by);
        self.standing.retain(|(at, pidfd)| {
            let go = due(at);
            if go {
                pidfd.signal(CONT);
            }
            !go
        });
        self.intruders.retain(|(at, _)| !due(at));
        if let Some((_, path)) = self.ballast.take_if(|(at, _)| due(at)) {
            std::fs::remove_file(path)?;
        }
        if let Some((_, pid, max)) = self.starved.take_if(|(at, ..)| due(at)) {
            set_descriptors(pid, &max);
        }
        Ok(())
    }

    fn one(&mut self) -> anyhow::Result<()> {
        match self.dice.between(0, 112) {
            0..18 => self.kill_daemon()?,
            18..26 => self.stop_daemon(),
            26..41 => self.strike_keeper(KILL),
            41..53 => self.strike_keeper(STOP),
            53..61 => self.kill_nursery(),
            61..66 => self.strike_client()?,
            66..75 => self.strike_agent(),
            75..83 => self.fill_disk(),
            83..91 => self.starve(),
            91..95 => self.tear_record()?,
            95..97 => self.tear_index()?,
            97..107 => self.intrude(),
            107..109 => self.remove_socket(),
            _ => self.kill_daemon()?,
        }
        Ok(())
    }

    pub(super) fn count(&mut self, what: &'static str) {
        *self.done.counts.entry(what).or_default() += 1;
    }

    fn kill_daemon(&mut self) -> anyhow::Result<()> {
        if let Some((_, daemon)) = self.play.scene.daemon() {
            daemon.kill();
            self.count("daemon killed");
        }
        self.starved = None;
        std::thread::sleep(self.dice.millis(0, 400));
        self.start_daemon()
    }

    /// Starts a daemon; repeats that until the deadline if it fails, for example on a full disk.
    fn start_daemon(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + DEADLINE;
        loop {
            match self.play.scene.try_start_daemon()? {
                Ok(()) => return Ok(()),
                Err(said) => ensure!(Instant::now() < deadline, "no daemon comes up: {said}"),
            }
            self.relent(Some(Instant::now()))?;
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn stop_daemon(&mut self) {
        let time = self.dice.millis(100, 1500);
        if let Some((_, daemon)) = self.play.scene.daemon() {
            daemon.signal(STOP);
            self.standing.push((Instant::now() + time, daemon));
            self.count("daemon stopped for a while");
        }
    }

    /// The keeper of a live process.
    fn strike_keeper(&mut self, signal: i32) {
        let time = self.dice.millis(100, 2000);
        let scene = &self.play.scene;
        let lately: Vec<Actor> = lock(&self.play.actors).iter().rev().take(60).cloned().collect();
        let living: Vec<_> = lately.into_iter().filter(|actor| !scene.is_over(&actor.id)).collect();
        let Some(actor) = self.dice.pick(&living) else { return };
        let Some((name, _)) = scene.keeper(&actor.id) else { return };
        let Some(keeper) = scene.hold(name.0).filter(|_| start_time(name.0) == Some(name.1)) else { return };
        if signal == KILL {
            // Recorded before the kill: it may have taken another process by now.
            self.done.keepers.insert(name);
            keeper.kill();
            self.count("keeper killed");
        } else {
            keeper.signal(STOP);
            self.standing.push((Instant::now() + time, keeper));
            self.count("keeper stopped for a while");
        }
    }

    fn kill_nursery(&mut self) {
        let nurseries = self.play.scene.programs().into_iter().filter(|(_, command)| command.ends_with(" nursery"));
        let Some((daemon, _)) = self.play.scene.daemon() else { return };
        // Keepers are forked from the nursery and look the same, but only the nursery is a child of the daemon.
        let below = pinfold_testkit::children_of(daemon);
        let nursery = nurseries.map(|(pid, _)| pid).find(|pid| below.contains(pid));
        if let Some(nursery) = nursery.and_then(|pid| self.play.scene.hold(pid)) {
            nursery.kill();
            self.count("nursery killed");
        }
    }

    /// The MCP server of an agent.
    fn strike_agent(&mut self) {
        let (kill, time) = (self.dice.between(0, 3) != 0, self.dice.millis(100, 2000));
        let servers = lock(&self.play.servers);
        let server = self.dice.pick(&servers).and_then(|pid| self.play.scene.hold(*pid));
        match server {
            Some(server) if kill => {
                server.kill();
                self.count("MCP server killed");
            }
            Some(server) => {
                server.signal(STOP);
                self.standing.push((Instant::now() + time, server));
                self.count("MCP server stopped for a while");
            }
            None => {}
        }
    }

    /// A running `pinfold` command.
    fn strike_client(&mut self) -> anyhow::Result<()> {
        self.clients.retain_mut(|client| !matches!(client.try_wait(), Ok(Some(_))));
        if self.clients.len() >= MAX_CLIENTS || !self.clients.is_empty() && self.dice.between(0, 2) == 0 {
            let place = self.dice.between(0, self.clients.len() as u64) as usize;
            let mut client = self.clients.swap_remove(place);
            let _ = client.kill();
            let _ = client.wait();
            self.count("client killed");
        }
        let lately: Vec<String> = lock(&self.play.actors).iter().rev().take(20).map(|actor| actor.id.clone()).collect();
        let id = self.dice.pick(&lately).cloned().unwrap_or_default();
        let arguments = match self.dice.between(0, 3) {
            0 => vec!["events", "-f"],
            1 => vec!["logs", "-f", &id],
            _ => vec!["wait", &id],
        };
        let mut command = self.play.scene.pinfold(&arguments);
        let client = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        if self.dice.between(0, 4) == 0
            && let Some(stopped) = self.play.scene.hold(client.id())
        {
            stopped.signal(STOP);
            self.standing.push((Instant::now() + self.dice.millis(100, 2000), stopped));
            self.count("client stopped for a while");
        }
        self.clients.push(client);
        Ok(())
    }

    fn fill_disk(&mut self) {
        let time = self.dice.millis(200, 3000);
        if !self.play.scene.mounted {
            self.done.missing.insert("the disk was not filled: only root can mount a small one here");
            return;
        }
        if self.ballast.is_some() {
            return;
        }
        if let Ok(path) = self.play.scene.fill_disk() {
            self.ballast = Some((Instant::now() + time, path));
            self.done.disk_was_full = true;
            self.count("disk filled");
        }
    }

    /// Limits the daemon to the descriptors that it has open.
    fn starve(&mut self) {
        let (time, few) = (self.dice.millis(200, 2000), self.dice.between(0, 6));
        let Some((pid, _)) = self.play.scene.daemon().filter(|_| self.starved.is_none()) else { return };
        let (Ok(open), Some(max)) = (std::fs::read_dir(format!("/proc/{pid}/fd")), descriptors(pid)) else { return };
        match set_descriptors(pid, &(open.count() as u64 + few).to_string()) {
            true => {
                self.starved = Some((Instant::now() + time, pid, max));
                self.count("descriptors exhausted");
            }
            false => drop(self.done.missing.insert("descriptors were not exhausted: there is no `prlimit` here")),
        }
    }

    /// Cuts or garbles the record of an ended process while no daemon runs, sometimes the index too.
    fn tear_record(&mut self) -> anyhow::Result<()> {
        let (cut, with_index) = (self.dice.between(0, 2) == 0, self.dice.between(0, 4) == 0);
        let scene = &self.play.scene;
        let stopped = |actor: &&Actor| actor.part.stop.is_none() || actor.stopped;
        let ended: Vec<String> = lock(&self.play.actors).iter().filter(stopped).map(|actor| actor.id.clone()).collect();
        let ended: Vec<String> = ended.into_iter().filter(|id| scene.is_over(id)).collect();
        let Some(id) = self.dice.pick(&ended).cloned() else { return Ok(()) };
        self.without_daemon(|saboteur| {
            let path = saboteur.play.scene.process(&id).join("record");
            let mut bytes = std::fs::read(&path)?;
            let length = bytes.len() as u64;
            // A record without a complete first line and without output counts as a start that never happened.
            let first = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(0);
            let min = if saboteur.play.scene.has_output(&id) { 1 } else { first + 1 };
            match cut {
                true => bytes.truncate(min.max((length - saboteur.dice.between(1, length / 2)) as usize)),
                false => bytes[saboteur.dice.between(0, length / 2) as usize] ^= 0x55,
            }
            std::fs::write(&path, bytes)?;
            saboteur.done.torn.insert(id);
            saboteur.count("record torn");
            if with_index { saboteur.garble_index() } else { Ok(()) }
        })
    }

    fn tear_index(&mut self) -> anyhow::Result<()> {
        self.without_daemon(Self::garble_index)
    }

    fn garble_index(&mut self) -> anyhow::Result<()> {
        for name in ["index.db", "index.db-wal"] {
            let path = self.play.scene.home.join(name);
            let Ok(metadata) = std::fs::metadata(&path) else { continue };
            match self.dice.between(0, 3) {
                0 => std::fs::remove_file(&path)?,
                1 => std::fs::OpenOptions::new().write(true).open(&path)?.set_len(metadata.len() / 2)?,
                _ => std::fs::write(&path, vec![0xa5; 20_000])?,
            }
        }
        self.count("index torn");
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        self.done.rebuilds.push(now.as_micros() as u64);
        Ok(())
    }

    /// Runs this while no daemon runs and the disk has space.
    fn without_daemon(&mut self, act: impl FnOnce(&mut Self) -> anyhow::Result<()>) -> anyhow::Result<()> {
        self.relent(None)?;
        // A client would start a daemon: end the clients first, and start none until the lock is released.
        for mut client in self.clients.drain(..) {
            let _ = client.kill();
            let _ = client.wait();
        }
        let play = self.play;
        let servers = lock(&play.servers);
        servers.iter().filter_map(|pid| play.scene.hold(*pid)).for_each(|server| server.kill());
        if let Some((_, daemon)) = self.play.scene.daemon() {
            daemon.kill();
        }
        let done = act(self);
        self.start_daemon()?;
        drop(servers);
        done
    }
}

/// The current descriptor limit of a process.
fn descriptors(pid: u32) -> Option<String> {
    let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).ok()?;
    limits.lines().find_map(|line| line.strip_prefix("Max open files")?.split_whitespace().next().map(str::to_owned))
}

fn set_descriptors(pid: u32, max: &str) -> bool {
    let set = run(Command::new("prlimit").args(["--pid", &pid.to_string(), &format!("--nofile={max}:")]));
    set.is_ok_and(|output| output.status.success())
}

/// The start time of a process in clock ticks.
fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_time_is_that_of_the_process() {
        let own = start_time(std::process::id()).expect("our own");
        assert!(own > 0 && start_time(1).expect("the first") <= own);
    }

    #[test]
    fn the_limit_on_descriptors_is_read() {
        let max = descriptors(std::process::id()).expect("our own");
        assert!(max.parse::<u64>().is_ok_and(|max| max > 2), "{max}");
    }
}
