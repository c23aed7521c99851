//! The keeper's loop: one thread, one `poll`, one process at a time.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use pinfold_model::facts::Intent;
use pinfold_model::id::ProcessId;
use pinfold_model::input::{Standing, Taken};
use pinfold_model::link::{FromKeeper, KeeperIdentity, LimitPlace, Order, ToKeeper, VERSION};
use pinfold_model::outcome::StartStep;
use pinfold_model::spelled::Spelled;
use pinfold_os::cgroup::Cgroup;
use pinfold_os::poll::{ChildSignal, Interest, wait_ready};
use pinfold_os::spawn::Spawner;
use pinfold_os::tree::OwnChildren;
use pinfold_os::{controllers, crash_point, daemonize, proc, socket};
use pinfold_store::Durability;
use pinfold_store::layout::{self, ProcessDir};
use pinfold_store::output::OutputWriter;
use pinfold_store::record::RecordWriter;

use crate::daemon::DaemonStarter;
use crate::driver::{Begun, Driver, Means};
use crate::feed::Feed;
use crate::launch::{Birthplace, Failure, launch};
use crate::link::Link;
use crate::nursery::Birthright;
use crate::pump::Pump;
use crate::visitors::Visitors;
use crate::watch::Watch;

#[derive(Debug)]
pub(crate) struct Keeper<'a> {
    birthright: &'a Birthright,
    identity: KeeperIdentity,
    /// The daemon, while there is one.
    link: Option<Link>,
    /// Others who connected.
    visitors: Visitors,
    daemon: DaemonStarter,
    /// Where the next daemon finds us.
    listener: UnixListener,
    socket_path: PathBuf,
    child_signal: ChildSignal,
    children: OwnChildren,
    cgroup: Option<Cgroup>,
    spawner: Spawner,
    /// What will be kept next, if its directory is still to be made.
    next: Option<ProcessId>,
    /// A directory made ahead for the next process.
    prepared: Option<(ProcessId, ProcessDir)>,
    /// The one process, while there is one.
    kept: Option<Driver>,
    /// Limited processes so far: the cgroups of each have names of their own.
    limited: u64,
    /// Where the cgroups of the last limited one were.
    limit_places: Vec<PathBuf>,
    retired: bool,
}

/// What woke the loop, by what was asked of `poll`.
#[derive(Clone, Copy, Debug)]
enum Watched {
    Link,
    Listener,
    Visitor(usize),
    Children,
    Leader,
    Output(usize),
    Input,
}

impl<'a> Keeper<'a> {
    pub(crate) fn new(birthright: &'a Birthright, link: OwnedFd) -> io::Result<Self> {
        let pid = daemonize::own_pid();
        daemonize::become_subreaper()?;
        let socket_path = birthright.home.join("keepers").join(pid.to_string());
        // A keeper of the same pid that was killed may have left its socket.
        let _ = std::fs::remove_file(&socket_path);
        let listener = socket::listen(&socket_path)?;
        listener.set_nonblocking(true)?;
        let start_time = proc::start_time(pid)?;
        // A name that no keeper had before: a cgroup in which was killed kills whatever is born into it.
        let leaf = format!("keeper-{start_time}-{pid}");
        let cgroup = birthright.cgroups.as_ref().and_then(|base| base.make(&leaf).ok());
        let mut keeper = Self {
            birthright,
            identity: KeeperIdentity {
                pid,
                start_time,
                cgroup: cgroup.as_ref().map(|cgroup| cgroup.path().to_owned()),
            },
            link: Some(Link::new(link)?),
            visitors: Visitors::default(),
            daemon: DaemonStarter::default(),
            listener,
            socket_path,
            child_signal: ChildSignal::new()?,
            children: OwnChildren::open()?,
            cgroup,
            spawner: Spawner::new(),
            next: None,
            prepared: None,
            kept: None,
            limited: 0,
            limit_places: vec![],
            retired: false,
        };
        keeper.say_hello();
        keeper.flush();
        keeper.spawner.prepare();
        crash_point!("keeper.born");
        Ok(keeper)
    }

    /// Keeps processes until there is none and no daemon to bring one.
    pub(crate) fn run(&mut self) -> io::Result<()> {
        while !self.is_done() {
            for watched in self.wait()? {
                self.handle(watched);
            }
            self.timers();
            self.make_room();
            self.flush();
            self.after_turn();
        }
        self.clean_up();
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.kept.is_none() && (self.retired || self.link.is_none())
    }

    fn wait(&self) -> io::Result<Vec<Watched>> {
        let mut watched: Vec<(Watched, (BorrowedFd<'_>, Interest))> = Vec::with_capacity(6);
        if let Some(driver) = &self.kept {
            let pipes = driver.pump.open_pipes();
            watched.extend(pipes.map(|(place, pipe)| (Watched::Output(place), (pipe, Interest::Read))));
            let room = driver.feed.as_ref().and_then(Feed::wants_room);
            watched.extend(room.map(|room| (Watched::Input, (room, Interest::Write))));
            let leader = driver.awaited_leader();
            watched.extend(leader.map(|leader| (Watched::Leader, (leader.pidfd.as_fd(), Interest::Read))));
            watched.push((Watched::Children, (self.child_signal.as_fd(), Interest::Read)));
        }
        watched.extend(self.link.as_ref().map(|link| (Watched::Link, link.interest())));
        watched.push((Watched::Listener, (self.listener.as_fd(), Interest::Read)));
        watched.extend(self.visitors.interests().map(|(place, interest)| (Watched::Visitor(place), interest)));

        let timer = self.kept.as_ref().and_then(Driver::next_timer);
        let timeout = timer.map(|at| at.saturating_duration_since(Instant::now()) + Duration::from_micros(50));
        let fds: Vec<_> = watched.iter().map(|(_, fd)| *fd).collect();
        let ready = wait_ready(&fds, timeout)?;
        let woken = watched.iter().zip(ready).filter(|(_, ready)| ready.read || ready.write);
        Ok(woken.map(|((watched, _), _)| *watched).collect())
    }

    fn handle(&mut self, watched: Watched) {
        match watched {
            Watched::Link => self.serve_link(),
            Watched::Listener => self.accept(),
            Watched::Visitor(place) => self.serve_visitor(place),
            // The leader's end, which is seen to; `after_turn` takes the signal.
            Watched::Children | Watched::Leader if self.kept.as_ref().is_some_and(Driver::is_over) => {}
            Watched::Children => {
                self.child_signal.clear();
                self.with_driver(Driver::children_changed);
            }
            Watched::Input => self.with_driver(|driver, _| driver.input_ready()),
            Watched::Leader => self.with_driver(Driver::leader_ready),
            Watched::Output(place) => self.with_driver(|driver, means| driver.output_ready(place, means)),
        }
    }

    fn timers(&mut self) {
        if self.kept.as_ref().and_then(Driver::next_timer).is_some_and(|at| at <= Instant::now()) {
            self.with_driver(Driver::timers_elapsed);
        }
    }

    /// A finished process leaves room for the next.
    fn make_room(&mut self) {
        if let Some(over) = self.kept.take_if(|driver| driver.is_over()) {
            over.release_limits();
            // A tree that is empty leaves an empty cgroup; anything else is not to be mixed with the next. And
            // Linux kills whoever is cloned into a cgroup that `cgroup.kill` was ever used on (seen on 6.18).
            let reusable = |cgroup: &Cgroup| !over.has_killed() && cgroup.is_vacant().unwrap_or(false);
            let clean = !over.is_superseded() && self.cgroup.as_ref().is_none_or(reusable);
            self.retired |= !clean;
            if clean {
                self.say(&FromKeeper::Idle);
                crash_point!("keeper.idle_again");
            }
        }
    }

    fn flush(&mut self) {
        if let Some(link) = &mut self.link {
            link.flush();
        }
        self.visitors.flush();
    }

    /// What nobody waits for. A closed link is forgotten; the next directory is made.
    fn after_turn(&mut self) {
        if self.kept.is_none() {
            // The ends of the last tree, of which the next shall not hear.
            self.child_signal.clear();
            self.spawner.prepare();
        } else {
            self.spawner.settle();
        }
        if self.kept.is_none()
            && !self.retired
            && let Some(next) = self.next.take()
        {
            self.prepare_ahead(next);
        }
        if self.link.as_ref().is_some_and(|link| !link.is_open()) {
            (self.link, self.next) = (None, None);
            if let Some(driver) = &mut self.kept {
                driver.forget_requests();
            }
        }
    }

    fn with_driver(&mut self, act: impl FnOnce(&mut Driver, &mut Means<'_>)) {
        let Self { link, children, cgroup, kept, .. } = self;
        if let Some(driver) = kept {
            act(driver, &mut Means { link, children, cgroup: cgroup.as_ref() });
        }
    }

    fn serve_link(&mut self) {
        let Some(link) = &mut self.link else { return };
        for message in link.receive() {
            self.obey(message);
        }
    }

    fn serve_visitor(&mut self, place: usize) {
        for request in self.visitors.serve(place) {
            // What comes from here is not to go before the kept process when memory runs out.
            self.spawner.settle();
            let error = self.daemon.start(self.birthright).err();
            self.visitors.answer(place, &FromKeeper::DaemonStarted { request, error });
        }
    }

    /// A new daemon, or somebody else. Of a new daemon: what the old one sent before it died is done first.
    fn accept(&mut self) {
        let Ok((stream, _)) = self.listener.accept() else { return };
        let own = socket::own_uid();
        if !socket::peer_uid(stream.as_fd()).is_ok_and(|uid| uid == own || uid == 0) {
            return;
        }
        let is_daemon =
            socket::peer_pid(stream.as_fd()).is_ok_and(|peer| layout::is_daemon(&self.birthright.home, peer));
        if !is_daemon {
            let hello = FromKeeper::Hello { version: VERSION, keeper: self.identity.clone(), kept: None };
            return self.visitors.welcome(stream.into(), &hello);
        }
        self.serve_link();
        if let Some(driver) = &mut self.kept {
            driver.forget_requests();
        }
        crash_point!("keeper.daemon_came");
        self.link = Link::new(stream.into()).ok();
        self.say_hello();
    }

    fn say_hello(&mut self) {
        let kept = self.kept.as_ref().map(|driver| Box::new(driver.kept()));
        self.say(&FromKeeper::Hello { version: VERSION, keeper: self.identity.clone(), kept });
    }

    fn obey(&mut self, message: ToKeeper) {
        match message {
            ToKeeper::Prepare { id } => self.next = Some(id),
            ToKeeper::Start(order) => self.start(*order),
            ToKeeper::Stop { request, id, cause, manner } => match self.keeps(&id) {
                true => self.with_driver(|driver, means| driver.stop(request, cause, manner, means)),
                false => self.say(&FromKeeper::Stopped { request, survivors: vec![] }),
            },
            ToKeeper::Signal { request, id, signal, by } => match self.keeps(&id) {
                true => self.with_driver(|driver, means| driver.signal(request, signal, by, means)),
                false => self.say_reached_nobody(request),
            },
            ToKeeper::Pause { request, id } => match self.keeps(&id) {
                true => self.with_driver(|driver, means| driver.pause(request, means)),
                false => self.say_reached_nobody(request),
            },
            ToKeeper::Resume { request, id } => match self.keeps(&id) {
                true => self.with_driver(|driver, means| driver.resume(request, means)),
                false => self.say_reached_nobody(request),
            },
            ToKeeper::HandOver { request, id, to, ancestors, purpose } => match self.keeps(&id) {
                true => self.with_driver(|driver, means| driver.hand_over(request, to, ancestors, purpose, means)),
                false => self.say(&FromKeeper::HandedOver { request, done: false }),
            },
            ToKeeper::Readiness { id, readiness } => {
                if self.keeps(&id) {
                    self.with_driver(|driver, means| driver.note_readiness(readiness, means));
                }
            }
            ToKeeper::WatchOutput { id, beyond } => {
                if self.keeps(&id) {
                    self.with_driver(|driver, means| driver.watch_output(beyond, means));
                }
            }
            ToKeeper::Input { request, id, input } => match self.keeps(&id) {
                true => self.with_driver(|driver, means| driver.input(request, &input, means)),
                false => self.say(&FromKeeper::Input { request, taken: Taken::nothing(Standing::Absent) }),
            },
            ToKeeper::Resize { request, id, size } => match self.keeps(&id) {
                true => self.with_driver(|driver, means| driver.resize(request, size, means)),
                false => self.say(&FromKeeper::Resized { request, done: false }),
            },
            ToKeeper::Reply { id, through, bytes } => {
                if self.keeps(&id) {
                    self.with_driver(|driver, _| driver.reply(through, &bytes));
                }
            }
            ToKeeper::Retire => self.retired = true,
            // A daemon needs none; and what it does not know of us, it has logged.
            ToKeeper::StartDaemon { request } => self.say(&FromKeeper::DaemonStarted { request, error: None }),
            ToKeeper::Unknown { .. } => {}
        }
    }

    /// Whether a request means the process kept now, and not one that is over.
    fn keeps(&self, id: &ProcessId) -> bool {
        self.kept.as_ref().is_some_and(|driver| driver.id() == id)
    }

    fn say_reached_nobody(&mut self, request: u64) {
        self.say(&FromKeeper::Signaled { request, reached: 0, refused: vec![] });
    }

    fn say(&mut self, message: &FromKeeper) {
        if let Some(link) = &mut self.link {
            link.say(message);
        }
    }

    fn prepare_ahead(&mut self, id: ProcessId) {
        // One made for a start that came to nothing is not needed any more.
        if let Some((_, unused)) = self.prepared.take() {
            let _ = unused.discard();
        }
        self.prepared = self.prepare(&id).ok().map(|directory| (id, directory));
    }

    fn prepare(&self, id: &ProcessId) -> io::Result<ProcessDir> {
        ProcessDir::prepare(&self.birthright.home.join("processes"), id)
    }

    /// Intent, spawn, start: each written before the next (docs/keeper-protocol.md).
    fn start(&mut self, order: Order) {
        crash_point!("keeper.start_received");
        let Order { intent, env, limit_places, next } = order;
        if let Some(driver) = &self.kept {
            let error = format!("this keeper keeps {}, which is not over: start it by another", driver.id());
            return self.say(&FromKeeper::Refused { id: intent.id.clone(), error, step: None });
        }
        self.next = next;
        let (directory, record) = match self.open_record(&intent) {
            Ok(opened) => opened,
            Err(error) => return self.refuse(intent.id.clone(), format!("cannot write its record: {error}"), None),
        };
        crash_point!("keeper.intent_written");
        let mut watch = match self.watch(&intent, &limit_places) {
            Ok(watch) => watch,
            Err(error) => return self.fail(&intent, directory, record, Failure::of(StartStep::Spawn, error)),
        };
        let birthplace = Birthplace::of(self.cgroup.as_ref(), watch.as_ref(), &record);
        match launch(&mut self.spawner, &self.birthright.inherited, &intent, env, directory.path(), &birthplace) {
            Ok(launched) => {
                crash_point!("keeper.leader_spawned");
                if let Some(watch) = &mut watch {
                    watch.begin(&launched.child);
                }
                let writer = OutputWriter::new(directory.path(), intent.spec.output_limit, intent.at);
                let pump = Pump::new(launched.sources, writer);
                let Self { link, children, cgroup, .. } = self;
                let mut means = Means { link, children, cgroup: cgroup.as_ref() };
                let begun = Begun { leader: launched.child, pump, feed: launched.feed, watch };
                self.kept = Some(Driver::started(intent, record, begun, &mut means));
            }
            Err(failure) => {
                watch.as_ref().inspect(|watch| watch.remove());
                match failure.refused && intent.spec.service.life.is_none() {
                    true => self.refuse_start(&intent, directory, record, failure),
                    false => self.fail(&intent, directory, record, failure),
                }
            }
        }
    }

    /// What a limited process needs; nothing for any other.
    fn watch(&mut self, intent: &Intent, places: &[LimitPlace]) -> Result<Option<Watch>, String> {
        let limits = intent.spec.limits;
        if limits.is_none() {
            return Ok(None);
        }
        self.limited += 1;
        self.limit_places = places.iter().map(|place| place.path.clone()).collect();
        let leaf = format!("keeper-{}-{}-{}", self.identity.start_time, self.limited, self.identity.pid);
        Watch::prepare(limits, places, &leaf, self.cgroup.as_ref()).map(Some)
    }

    /// Records that the leader never ran. If the disk refuses that line, nothing is kept of the start, so that what the
    /// daemon is told is what the store holds (K1).
    fn fail(&mut self, intent: &Intent, directory: ProcessDir, mut record: RecordWriter, failure: Failure) {
        // A leader that is stuck may still be in the cgroup, and what held it up may hold up the next.
        self.retired |= failure.stuck;
        let fact = Driver::failed_start(failure.step, failure.error.clone());
        match record.append(&fact) {
            Ok(json) => {
                crash_point!("keeper.failed_start_written");
                if let Some(link) = &mut self.link {
                    link.say_fact(&intent.id, json);
                }
            }
            Err(error) => {
                let text = format!("{}; and its record could not be written: {error}", failure.error);
                let _ = directory.remove();
                self.say(&FromKeeper::Refused { id: intent.id.clone(), error: text, step: None });
            }
        }
        if !self.retired {
            self.say(&FromKeeper::Idle);
        }
    }

    /// Refuses a start that was a typing error, or for which there was no process to be had: it leaves no record. Not so a
    /// later life of a chain, of which no client waits to be told.
    fn refuse_start(&mut self, intent: &Intent, directory: ProcessDir, record: RecordWriter, failure: Failure) {
        drop(record);
        if let Err(error) = directory.remove() {
            let text = format!("{}; and its record could not be removed: {error}", failure.error);
            return self.refuse(intent.id.clone(), text, Some(failure.step));
        }
        self.refuse(intent.id.clone(), failure.error, Some(failure.step));
    }

    fn open_record(&mut self, intent: &Spelled<Intent>) -> io::Result<(ProcessDir, RecordWriter)> {
        let directory = match self.prepared.take() {
            Some((id, directory)) if id == intent.id => directory,
            Some((_, other)) => {
                let _ = other.discard();
                self.prepare(&intent.id)?
            }
            None => self.prepare(&intent.id)?,
        };
        let durability = if self.birthright.durable_over_power_loss { Durability::Power } else { Durability::Programs };
        let mut record = RecordWriter::new(&directory, durability);
        match record.begin(intent) {
            Ok(()) => Ok((directory, record)),
            Err(error) => {
                let _ = directory.discard();
                Err(error)
            }
        }
    }

    /// A start that left nothing, not even a record.
    fn refuse(&mut self, id: ProcessId, error: String, step: Option<StartStep>) {
        self.say(&FromKeeper::Refused { id, error, step });
        self.say(&FromKeeper::Idle);
    }

    fn clean_up(&mut self) {
        let _ = std::fs::remove_file(&self.socket_path);
        crash_point!("keeper.socket_removed");
        if let Some((_, directory)) = self.prepared.take() {
            let _ = directory.discard();
        }
        if let Some(cgroup) = &self.cgroup {
            let _ = cgroup.remove();
        }
        // A daemon that lives goes on to use the places. Without one, the last keeper to leave takes them away.
        if self.link.is_none() {
            controllers::remove_unused(&self.limit_places, |_| true);
        }
    }
}
