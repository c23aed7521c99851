//! One keeper: handles messages of the daemon and events of its process. It runs on a [`System`]; `linux` or the
//! simulation provides the event loop.

use std::io;

use pinfold_model::cached_json::CachedJson;
use pinfold_model::facts::Intent;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{FromKeeper, KeeperIdentity, Order, ToKeeper, VERSION};
use pinfold_model::outcome::StartStep;
use pinfold_os::crash_point;
use pinfold_store::record::RecordWriter;

use crate::daemon_link::Link;
use crate::driver::{Driver, KeeperContext};
use crate::launch::LaunchError;
use crate::other_connections::Visitors;
use crate::system::{Launch, System};

#[derive(Debug)]
pub struct Keeper<S: System> {
    pub(crate) system: S,
    identity: KeeperIdentity,
    /// The link to the daemon, while there is one.
    pub(crate) link: Option<Link<S::Socket>>,
    /// Connections of other programs.
    pub(crate) visitors: Visitors<S::Socket>,
    /// The id of the next process, if its directory is not created yet.
    next: Option<ProcessId>,
    /// The directory created ahead for the next process.
    prepared: Option<(ProcessId, S::Directory)>,
    /// The running process, if any.
    pub(crate) driver: Option<Driver<S>>,
    retired: bool,
}

/// What woke the event loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wakeup {
    Link,
    Listener,
    Visitor(usize),
    Children,
    Leader,
    Output(usize),
    Input,
    /// A system call that the sandbox refuses.
    Refused,
}

impl<S: System> Keeper<S> {
    /// Sends a hello to the daemon at the other end of this socket.
    pub fn new(system: S, identity: KeeperIdentity, link: S::Socket) -> Self {
        let mut keeper = Self {
            system,
            identity,
            link: Some(Link::new(link)),
            visitors: Visitors::default(),
            next: None,
            prepared: None,
            driver: None,
            retired: false,
        };
        keeper.send_hello();
        keeper.flush();
        keeper
    }

    /// Whether the keeper may end: it has no process, and none can come.
    pub fn is_done(&self) -> bool {
        self.driver.is_none() && (self.retired || self.link.is_none())
    }

    /// The running process, if any.
    pub fn driver(&self) -> Option<&Driver<S>> {
        self.driver.as_ref()
    }

    /// The link's socket, and whether bytes are queued for it.
    pub fn link(&self) -> Option<(&S::Socket, bool)> {
        self.link.as_ref().map(|link| (link.socket(), link.has_unsent()))
    }

    pub fn handle(&mut self, wakeup: Wakeup) {
        match wakeup {
            Wakeup::Link => self.serve_link(),
            Wakeup::Listener => {}
            Wakeup::Visitor(index) => self.serve_visitor(index),
            // Its end is handled already; `after_turn` clears the signal.
            Wakeup::Children | Wakeup::Leader if self.driver.as_ref().is_some_and(Driver::is_over) => {}
            Wakeup::Children => {
                self.system.clear_child_signal();
                self.with_driver(Driver::children_changed);
            }
            Wakeup::Input => self.with_driver(|driver, _| driver.input_ready()),
            Wakeup::Refused => self.with_driver(|driver, _| driver.call_refused()),
            Wakeup::Leader => self.with_driver(Driver::leader_ready),
            Wakeup::Output(index) => self.with_driver(|driver, context| driver.output_ready(index, context)),
        }
    }

    /// After all events are handled: runs timers, releases a finished process, sends queued messages.
    pub fn end_turn(&mut self) {
        self.timers();
        self.release_finished();
        self.flush();
        self.after_turn();
    }

    fn timers(&mut self) {
        if self.driver.as_ref().and_then(Driver::next_timer).is_some_and(|at| at <= self.system.now()) {
            self.with_driver(Driver::timers_elapsed);
        }
    }

    /// Lets go of a finished process, so that the next can start.
    fn release_finished(&mut self) {
        if let Some(over) = self.driver.take_if(|driver| driver.is_over()) {
            over.release_limits();
            if let Some(tmp) = over.sandbox.as_ref().and_then(|sandbox| sandbox.tmp.as_ref()) {
                // Removing many files may take a while: report the end first.
                self.flush();
                tmp.remove();
            }
            // Reuse the cgroup only if it is empty, not frozen and `cgroup.kill` was never used on it: Linux kills
            // new members of such a cgroup (seen on 6.18). Otherwise this keeper ends.
            let reusable = self.system.is_cgroup_vacant().is_none_or(|vacant| !over.has_killed() && vacant);
            let clean = !over.is_superseded() && reusable;
            self.retired |= !clean;
            if clean {
                self.send(&FromKeeper::Idle);
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

    /// Work that no client waits for: creates the next directory, drops a closed link.
    fn after_turn(&mut self) {
        if self.driver.is_none() {
            // Ends of the last tree must not be seen as those of the next.
            self.system.clear_child_signal();
            self.system.raise_child_oom_score();
        } else {
            self.system.restore_oom_score();
        }
        if self.driver.is_none()
            && !self.retired
            && let Some(next) = self.next.take()
        {
            self.prepare_ahead(next);
        }
        if self.link.as_ref().is_some_and(|link| !link.is_open()) {
            self.daemon_lost();
        }
    }

    /// The link is closed: no one waits for replies, and no next process will come.
    pub(crate) fn daemon_lost(&mut self) {
        (self.link, self.next) = (None, None);
        if let Some(driver) = &mut self.driver {
            driver.forget_requests();
        }
    }

    fn with_driver(&mut self, act: impl FnOnce(&mut Driver<S>, &mut KeeperContext<'_, S>)) {
        let Self { link, system, driver, .. } = self;
        if let Some(driver) = driver {
            act(driver, &mut KeeperContext { link, system });
        }
    }

    fn serve_link(&mut self) {
        let Some(link) = &mut self.link else { return };
        for message in link.receive() {
            self.handle_message(message);
        }
    }

    fn serve_visitor(&mut self, index: usize) {
        for request in self.visitors.serve(index) {
            // The daemon must not inherit a raised OOM score.
            self.system.restore_oom_score();
            let error = self.system.start_daemon().err();
            self.visitors.answer(index, &FromKeeper::DaemonStarted { request, error });
        }
    }

    /// A new daemon connected. What the previous one sent before it died is handled first.
    pub fn daemon_connected(&mut self, socket: S::Socket) {
        self.serve_link();
        if let Some(driver) = &mut self.driver {
            driver.forget_requests();
        }
        crash_point!("keeper.daemon_connected");
        self.link = Some(Link::new(socket));
        self.send_hello();
    }

    /// A program other than the daemon connected.
    pub fn visitor_connected(&mut self, socket: S::Socket) {
        let hello = FromKeeper::Hello { version: VERSION, keeper: self.identity.clone(), kept: None };
        self.visitors.add(socket, &hello);
    }

    fn send_hello(&mut self) {
        let kept = self.driver.as_ref().map(|driver| Box::new(driver.kept()));
        self.send(&FromKeeper::Hello { version: VERSION, keeper: self.identity.clone(), kept });
    }

    fn handle_message(&mut self, message: ToKeeper) {
        match message {
            ToKeeper::Prepare { id } => self.next = Some(id),
            ToKeeper::Start(order) => self.start(*order),
            ToKeeper::Retire => self.retired = true,
            // A daemon is running: it just sent this. It has logged what it did not understand.
            ToKeeper::StartDaemon { request } => self.send(&FromKeeper::DaemonStarted { request, error: None }),
            ToKeeper::Unknown { .. } => {}
            order => match order.process().is_some_and(|id| self.keeps(id)) {
                true => self.with_driver(|driver, context| driver.handle_order(order, context)),
                false => {
                    if let Some(answer) = order.answer_without_process() {
                        self.send(&answer);
                    }
                }
            },
        }
    }

    /// Whether a request is about the running process, not about an earlier one.
    fn keeps(&self, id: &ProcessId) -> bool {
        self.driver.as_ref().is_some_and(|driver| driver.id() == id)
    }

    fn send(&mut self, message: &FromKeeper) {
        if let Some(link) = &mut self.link {
            link.send(message);
        }
    }

    fn prepare_ahead(&mut self, id: ProcessId) {
        // A directory prepared for a start that never came.
        self.discard_prepared();
        self.prepared = self.system.prepare(&id).ok().map(|directory| (id, directory));
    }

    /// Removes a directory that was created ahead and not used.
    pub fn discard_prepared(&mut self) {
        if let Some((_, unused)) = self.prepared.take() {
            self.system.discard(unused);
        }
    }

    /// Writes the intent, spawns the leader, records the start, in this order (docs/keeper-protocol.md).
    fn start(&mut self, order: Order) {
        crash_point!("keeper.start_received");
        let Order { intent, env, limit_places, next } = order;
        if let Some(driver) = &self.driver {
            let error = format!("this keeper still runs {}: start it with another keeper", driver.id());
            return self.send(&FromKeeper::Refused { id: intent.id.clone(), error, step: None });
        }
        self.next = next;
        let (directory, record) = match self.open_record(&intent) {
            Ok(opened) => opened,
            Err(error) => return self.refuse(intent.id.clone(), format!("cannot write its record: {error}"), None),
        };
        crash_point!("keeper.intent_written");
        let what = Launch { intent: &intent, env, limit_places: &limit_places };
        match self.system.launch(what, &directory, &record) {
            Ok(started) => {
                let Self { link, system, .. } = self;
                self.driver = Some(Driver::started(intent, record, started, &mut KeeperContext { link, system }));
            }
            Err(failure) => match failure.refused && intent.spec.service.life.is_none() {
                true => self.refuse_start(&intent, directory, record, failure),
                false => self.record_failed_start(&intent, directory, record, failure),
            },
        }
    }

    /// Records that the leader never ran. If that cannot be written, removes the directory and refuses the start, so
    /// that the daemon never receives something that the store does not hold (K1).
    fn record_failed_start(
        &mut self,
        intent: &Intent,
        directory: S::Directory,
        mut record: RecordWriter<S::File>,
        failure: LaunchError,
    ) {
        // A stuck leader may still be in the cgroup, and whatever blocked it may block the next one.
        self.retired |= failure.stuck;
        let fact = Driver::<S>::failed_start(failure.step, failure.error.clone(), self.system.moment());
        match record.append(&fact) {
            Ok(json) => {
                crash_point!("keeper.failed_start_written");
                if let Some(link) = &mut self.link {
                    link.send_fact(&intent.id, json);
                }
            }
            Err(error) => {
                let text = format!("{}; and its record could not be written: {error}", failure.error);
                let _ = self.system.remove(directory);
                self.send(&FromKeeper::Refused { id: intent.id.clone(), error: text, step: None });
            }
        }
        if !self.retired {
            self.send(&FromKeeper::Idle);
        }
    }

    /// Refuses a start without leaving a record: the directory or program does not exist, or the kernel is out of
    /// processes. Only for the first run of a chain: no client waits for the result of a restart, so that is
    /// recorded.
    fn refuse_start(
        &mut self,
        intent: &Intent,
        directory: S::Directory,
        record: RecordWriter<S::File>,
        failure: LaunchError,
    ) {
        drop(record);
        if let Err(error) = self.system.remove(directory) {
            let text = format!("{}; and its record could not be removed: {error}", failure.error);
            return self.refuse(intent.id.clone(), text, Some(failure.step));
        }
        self.refuse(intent.id.clone(), failure.error, Some(failure.step));
    }

    fn open_record(&mut self, intent: &CachedJson<Intent>) -> io::Result<(S::Directory, RecordWriter<S::File>)> {
        let directory = match self.prepared.take() {
            Some((id, directory)) if id == intent.id => directory,
            Some((_, other)) => {
                self.system.discard(other);
                self.system.prepare(&intent.id)?
            }
            None => self.system.prepare(&intent.id)?,
        };
        let mut record = self.system.record(&directory);
        match record.begin(intent) {
            Ok(()) => Ok((directory, record)),
            Err(error) => {
                self.system.discard(directory);
                Err(error)
            }
        }
    }

    /// Reports a start that left no record.
    fn refuse(&mut self, id: ProcessId, error: String, step: Option<StartStep>) {
        self.send(&FromKeeper::Refused { id, error, step });
        self.send(&FromKeeper::Idle);
    }
}
