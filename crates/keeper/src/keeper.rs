//! One keeper: what the daemon asks of it, what its one process does, one turn after the other. What it runs on is
//! [`System`]; the loop around it is `linux`, or the simulation's.

use std::io;

use pinfold_model::facts::Intent;
use pinfold_model::id::ProcessId;
use pinfold_model::link::{FromKeeper, KeeperIdentity, Order, ToKeeper, VERSION};
use pinfold_model::outcome::StartStep;
use pinfold_model::spelled::Spelled;
use pinfold_os::crash_point;
use pinfold_store::record::RecordWriter;

use crate::driver::{Driver, KeeperContext};
use crate::launch::Failure;
use crate::link::Link;
use crate::system::{Launch, System};
use crate::visitors::Visitors;

#[derive(Debug)]
pub struct Keeper<S: System> {
    pub(crate) system: S,
    identity: KeeperIdentity,
    /// The daemon, while there is one.
    pub(crate) link: Option<Link<S::Socket>>,
    /// Others who connected.
    pub(crate) visitors: Visitors<S::Socket>,
    /// What will be kept next, if its directory is still to be made.
    next: Option<ProcessId>,
    /// A directory made ahead for the next process.
    prepared: Option<(ProcessId, S::Directory)>,
    /// The one process, while there is one.
    pub(crate) kept: Option<Driver<S>>,
    retired: bool,
}

/// What woke the keeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Watched {
    Link,
    Listener,
    Visitor(usize),
    Children,
    Leader,
    Output(usize),
    Input,
}

impl<S: System> Keeper<S> {
    /// A keeper whose daemon is at the other end of this socket; it says hello there.
    pub fn new(system: S, identity: KeeperIdentity, link: S::Socket) -> Self {
        let mut keeper = Self {
            system,
            identity,
            link: Some(Link::new(link)),
            visitors: Visitors::default(),
            next: None,
            prepared: None,
            kept: None,
            retired: false,
        };
        keeper.say_hello();
        keeper.flush();
        keeper
    }

    /// Whether it keeps nothing and nobody can bring it a process: it ends.
    pub fn is_done(&self) -> bool {
        self.kept.is_none() && (self.retired || self.link.is_none())
    }

    /// The one process, while there is one.
    pub fn kept(&self) -> Option<&Driver<S>> {
        self.kept.as_ref()
    }

    /// The daemon's end of the link, and whether something waits to be sent there.
    pub fn link(&self) -> Option<(&S::Socket, bool)> {
        self.link.as_ref().map(|link| (link.socket(), link.has_unsent()))
    }

    pub fn handle(&mut self, watched: Watched) {
        match watched {
            Watched::Link => self.serve_link(),
            Watched::Listener => {}
            Watched::Visitor(place) => self.serve_visitor(place),
            // The leader's end, which is seen to; `after_turn` takes the signal.
            Watched::Children | Watched::Leader if self.kept.as_ref().is_some_and(Driver::is_over) => {}
            Watched::Children => {
                self.system.clear_child_signal();
                self.with_driver(Driver::children_changed);
            }
            Watched::Input => self.with_driver(|driver, _| driver.input_ready()),
            Watched::Leader => self.with_driver(Driver::leader_ready),
            Watched::Output(place) => self.with_driver(|driver, context| driver.output_ready(place, context)),
        }
    }

    /// After all that woke it was handled: timers, the end of a process, what was said.
    pub fn end_turn(&mut self) {
        self.timers();
        self.make_room();
        self.flush();
        self.after_turn();
    }

    fn timers(&mut self) {
        if self.kept.as_ref().and_then(Driver::next_timer).is_some_and(|at| at <= self.system.now()) {
            self.with_driver(Driver::timers_elapsed);
        }
    }

    /// A finished process leaves room for the next.
    fn make_room(&mut self) {
        if let Some(over) = self.kept.take_if(|driver| driver.is_over()) {
            over.release_limits();
            // A tree that is empty leaves an empty cgroup; anything else is not to be mixed with the next. And
            // Linux kills whoever is cloned into a cgroup that `cgroup.kill` was ever used on (seen on 6.18).
            let reusable = self.system.is_cgroup_vacant().is_none_or(|vacant| !over.has_killed() && vacant);
            let clean = !over.is_superseded() && reusable;
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
            self.system.clear_child_signal();
            self.system.prepare_spawner();
        } else {
            self.system.settle_spawner();
        }
        if self.kept.is_none()
            && !self.retired
            && let Some(next) = self.next.take()
        {
            self.prepare_ahead(next);
        }
        if self.link.as_ref().is_some_and(|link| !link.is_open()) {
            self.daemon_lost();
        }
    }

    /// The link is closed; nobody waits for answers, and nobody brings a next process.
    pub(crate) fn daemon_lost(&mut self) {
        (self.link, self.next) = (None, None);
        if let Some(driver) = &mut self.kept {
            driver.forget_requests();
        }
    }

    fn with_driver(&mut self, act: impl FnOnce(&mut Driver<S>, &mut KeeperContext<'_, S>)) {
        let Self { link, system, kept, .. } = self;
        if let Some(driver) = kept {
            act(driver, &mut KeeperContext { link, system });
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
            self.system.settle_spawner();
            let error = self.system.start_daemon().err();
            self.visitors.answer(place, &FromKeeper::DaemonStarted { request, error });
        }
    }

    /// A new daemon: what the old one sent before it died is done first.
    pub fn daemon_connected(&mut self, socket: S::Socket) {
        self.serve_link();
        if let Some(driver) = &mut self.kept {
            driver.forget_requests();
        }
        crash_point!("keeper.daemon_came");
        self.link = Some(Link::new(socket));
        self.say_hello();
    }

    /// Somebody who is not the daemon.
    pub fn visitor_connected(&mut self, socket: S::Socket) {
        let hello = FromKeeper::Hello { version: VERSION, keeper: self.identity.clone(), kept: None };
        self.visitors.welcome(socket, &hello);
    }

    fn say_hello(&mut self) {
        let kept = self.kept.as_ref().map(|driver| Box::new(driver.kept()));
        self.say(&FromKeeper::Hello { version: VERSION, keeper: self.identity.clone(), kept });
    }

    fn obey(&mut self, message: ToKeeper) {
        match message {
            ToKeeper::Prepare { id } => self.next = Some(id),
            ToKeeper::Start(order) => self.start(*order),
            ToKeeper::Retire => self.retired = true,
            // A daemon needs none; and what it does not know of us, it has logged.
            ToKeeper::StartDaemon { request } => self.say(&FromKeeper::DaemonStarted { request, error: None }),
            ToKeeper::Unknown { .. } => {}
            order => match order.process().is_some_and(|id| self.keeps(id)) {
                true => self.with_driver(|driver, context| driver.obey(order, context)),
                false => {
                    if let Some(answer) = order.answer_without_process() {
                        self.say(&answer);
                    }
                }
            },
        }
    }

    /// Whether a request means the process kept now, and not one that is over.
    fn keeps(&self, id: &ProcessId) -> bool {
        self.kept.as_ref().is_some_and(|driver| driver.id() == id)
    }

    fn say(&mut self, message: &FromKeeper) {
        if let Some(link) = &mut self.link {
            link.say(message);
        }
    }

    fn prepare_ahead(&mut self, id: ProcessId) {
        // One made for a start that came to nothing is not needed any more.
        self.discard_prepared();
        self.prepared = self.system.prepare(&id).ok().map(|directory| (id, directory));
    }

    /// Removes a directory that was made ahead and not used.
    pub fn discard_prepared(&mut self) {
        if let Some((_, unused)) = self.prepared.take() {
            self.system.discard(unused);
        }
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
        let what = Launch { intent: &intent, env, limit_places: &limit_places };
        match self.system.launch(what, &directory, &record) {
            Ok(begun) => {
                let Self { link, system, .. } = self;
                self.kept = Some(Driver::started(intent, record, begun, &mut KeeperContext { link, system }));
            }
            Err(failure) => match failure.refused && intent.spec.service.life.is_none() {
                true => self.refuse_start(&intent, directory, record, failure),
                false => self.fail(&intent, directory, record, failure),
            },
        }
    }

    /// Records that the leader never ran. If the disk refuses that line, nothing is kept of the start, so that what the
    /// daemon is told is what the store holds (K1).
    fn fail(&mut self, intent: &Intent, directory: S::Directory, mut record: RecordWriter<S::File>, failure: Failure) {
        // A leader that is stuck may still be in the cgroup, and what held it up may hold up the next.
        self.retired |= failure.stuck;
        let fact = Driver::<S>::failed_start(failure.step, failure.error.clone(), self.system.moment());
        match record.append(&fact) {
            Ok(json) => {
                crash_point!("keeper.failed_start_written");
                if let Some(link) = &mut self.link {
                    link.say_fact(&intent.id, json);
                }
            }
            Err(error) => {
                let text = format!("{}; and its record could not be written: {error}", failure.error);
                let _ = self.system.remove(directory);
                self.say(&FromKeeper::Refused { id: intent.id.clone(), error: text, step: None });
            }
        }
        if !self.retired {
            self.say(&FromKeeper::Idle);
        }
    }

    /// Refuses a start that was a typing error, or for which there was no process to be had: it leaves no record. Not so a
    /// later life of a chain, of which no client waits to be told.
    fn refuse_start(
        &mut self,
        intent: &Intent,
        directory: S::Directory,
        record: RecordWriter<S::File>,
        failure: Failure,
    ) {
        drop(record);
        if let Err(error) = self.system.remove(directory) {
            let text = format!("{}; and its record could not be removed: {error}", failure.error);
            return self.refuse(intent.id.clone(), text, Some(failure.step));
        }
        self.refuse(intent.id.clone(), failure.error, Some(failure.step));
    }

    fn open_record(&mut self, intent: &Spelled<Intent>) -> io::Result<(S::Directory, RecordWriter<S::File>)> {
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

    /// A start that left nothing, not even a record.
    fn refuse(&mut self, id: ProcessId, error: String, step: Option<StartStep>) {
        self.say(&FromKeeper::Refused { id, error, step });
        self.say(&FromKeeper::Idle);
    }
}
