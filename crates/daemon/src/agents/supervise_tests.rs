//! A driver that panics, with a host that panics at a chosen call.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pinfold_api::types::{AgentRequest, StartRequest, Turn, TurnStatus};
use pinfold_model::id::ProcessId;
use pinfold_model::input::Input;
use pinfold_model::outcome::Cause;
use pinfold_model::signal::Signal;
use pinfold_model::spec::StopManner;
use pinfold_model::units::Moment;
use pinfold_store::Durability;
use pinfold_store::agents::AgentDir;
use pinfold_store::layout::Home;
use tokio::sync::watch;

use super::*;
use crate::agents::handle::Command;
use crate::agents::host::{Caller, Output, Pending, Process, Viewer};
use crate::agents::requests::ask;
use crate::agents::spec::AgentSpec;
use crate::request_error::RequestError;

const DEADLINE: Duration = Duration::from_secs(60);

/// A daemon in which one process runs that never prints anything.
#[derive(Debug)]
struct ScriptedHost {
    home: Home,
    process: Process,
    /// Whether reading the output of the process panics.
    read_panics: AtomicBool,
    news: watch::Sender<u64>,
    stops: AtomicU64,
    shutdown: watch::Sender<bool>,
}

fn done<T: Send + 'static>(value: T) -> Pending<'static, T> {
    Box::pin(async move { value })
}

impl Host for ScriptedHost {
    fn start(&self, _: StartRequest) -> Pending<'_, Result<Process, RequestError>> {
        done(Ok(self.process.clone()))
    }

    fn has_started(&self, _: &str, _: &str) -> bool {
        false
    }

    fn find<'a>(&'a self, _: &'a str) -> Pending<'a, Result<Process, RequestError>> {
        done(Ok(self.process.clone()))
    }

    fn recent(&self, id: &ProcessId) -> Option<Process> {
        Some(self.process.clone()).filter(|process| process.id() == id)
    }

    fn read(&self, _: &Process, _: u64, _: usize) -> Pending<'_, Result<Output, RequestError>> {
        assert!(!self.read_panics.load(Ordering::SeqCst), "a message that pinfold cannot handle");
        Box::pin(std::future::pending())
    }

    fn read_end(&self, _: &Process, _: usize) -> Pending<'_, Result<Output, RequestError>> {
        Box::pin(std::future::pending())
    }

    fn until_news(&self, _: &Process, _: u64) -> Pending<'static, ()> {
        let mut news = self.news.subscribe();
        Box::pin(async move { drop(news.wait_for(|news| *news > 0).await.map(|_| ())) })
    }

    fn until_exit(&self, _: &Process) -> Pending<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn until_over(&self, _: &Process) -> Pending<'static, ()> {
        Box::pin(std::future::pending())
    }

    fn input(&self, _: &Process, _: Input) -> Pending<'_, Result<(), RequestError>> {
        done(Ok(()))
    }

    fn signal(&self, _: &Process, _: Signal, _: String) -> Pending<'_, Result<(), RequestError>> {
        done(Ok(()))
    }

    fn stop(&self, _: &Process, _: Cause, _: Option<StopManner>) -> Pending<'static, Result<(), RequestError>> {
        self.stops.fetch_add(1, Ordering::SeqCst);
        done(Ok(()))
    }

    fn stop_started_in<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: RangeInclusive<Moment>,
        _: String,
    ) -> Pending<'a, Vec<String>> {
        done(vec![])
    }

    fn stop_commands(&self, _: &Process, _: &'static str, _: RangeInclusive<Moment>) -> Pending<'_, Vec<String>> {
        done(vec![])
    }

    fn owner_of_start(&self, _: &Caller, _: Option<String>, _: Option<String>) -> Result<String, RequestError> {
        Ok("default".to_owned())
    }

    fn default_owner_grace(&self, _: &Caller, _: &str) -> Option<Duration> {
        None
    }

    fn watch_owner_contact(&self) {}

    fn time_without_contact(&self, _: &str) -> Duration {
        Duration::ZERO
    }

    fn parent_of(&self, _: &str) -> Option<String> {
        None
    }

    fn sees(&self, _: &Viewer, _: &str) -> bool {
        true
    }

    fn new_id(&self) -> Result<ProcessId, RequestError> {
        Ok(ProcessId::from_number(7, 1))
    }

    fn files(&self) -> (Home, Durability) {
        (self.home.clone(), Durability::Programs)
    }

    fn user_home(&self) -> String {
        "/".to_owned()
    }

    fn retention(&self) -> Duration {
        Duration::ZERO
    }

    fn shutdown(&self) -> watch::Receiver<bool> {
        self.shutdown.subscribe()
    }
}

/// A directory that is removed with this.
struct TestHome(PathBuf);

impl Drop for TestHome {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl TestHome {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("pinfold-{name}-{}", std::process::id())))
    }

    fn host(&self) -> Arc<ScriptedHost> {
        Arc::new(ScriptedHost {
            home: Home::open(&self.0).expect("a home"),
            process: Process::for_test(),
            read_panics: AtomicBool::new(false),
            news: watch::Sender::new(0),
            stops: AtomicU64::new(0),
            shutdown: watch::Sender::new(false),
        })
    }
}

/// An agent with a process and a driver.
async fn agent(host: &Arc<ScriptedHost>, number: u64) -> Arc<AgentHandle> {
    let request = AgentRequest { kind: "codex".to_owned(), ..AgentRequest::default() };
    let id = ProcessId::from_number(number, 1);
    let spec = AgentSpec::parse(request, id.clone(), now(), "default".to_owned()).expect("a spec");
    let dir = AgentDir::create(&host.home, &id, Durability::Programs, &spec).expect("a directory");
    let (handle, commands) = AgentHandle::new(spec, dir, None, &AgentState::default());
    let mut driver =
        Driver::new(Arc::clone(host) as Arc<dyn Host>, Arc::clone(&handle), AgentState::default(), commands);
    driver.start_process().await.expect("started");
    spawn(driver).await.expect("it runs");
    handle
}

async fn queue_turn(handle: &AgentHandle) -> Result<u64, RequestError> {
    let (answer, number) = oneshot::channel();
    let turn = Turn { agent: handle.id.to_string(), prompt: "work".to_owned(), ..Turn::default() };
    ask(handle, Command::Turn(Box::new(turn), true, answer)).await?;
    number.await.expect("an answer")
}

#[tokio::test]
async fn a_panic_of_a_driver_fails_its_agent_stops_its_process_and_leaves_other_agents_alone() {
    let (home, other_home) = (TestHome::new("panics"), TestHome::new("panics-not"));
    let (host, other_host) = (home.host(), other_home.host());
    let (handle, other) = (agent(&host, 1).await, agent(&other_host, 2).await);
    assert_eq!(queue_turn(&handle).await.expect("queued"), 1);
    host.read_panics.store(true, Ordering::SeqCst);
    host.news.send_replace(1);
    let mut view = handle.view.subscribe();
    let failed = tokio::time::timeout(DEADLINE, view.wait_for(|view| view.agent.ended_at.is_some()));
    let agent = failed.await.expect("it fails in time").expect("a view").agent.clone();
    let fault = agent.fault.expect("a fault");
    assert_eq!((agent.status, fault.code), (AgentStatus::Failed, FaultCode::Internal));
    assert!(fault.message.contains("a message that pinfold cannot handle"), "{}", fault.message);
    // Its process is stopped, its turn has ended, and both are on disk.
    assert_eq!(host.stops.load(Ordering::SeqCst), 1);
    let turn = handle.dir.read_turn::<Turn>(1).expect("readable").expect("a turn");
    assert_eq!(turn.status, TurnStatus::Failed);
    let state = handle.dir.read_state::<AgentState>().expect("readable").expect("a state");
    assert!(state.is_over() && state.fault.is_some_and(|fault| fault.code == FaultCode::Internal));
    let refused = queue_turn(&handle).await.expect_err("it has ended");
    assert!(refused.0.message.contains("is over"), "{}", refused.0.message);
    // The other agent still takes turns.
    assert_eq!(queue_turn(&other).await.expect("queued"), 1);
    assert!(!other.is_over() && other_host.stops.load(Ordering::SeqCst) == 0);
    other_host.shutdown.send_replace(true);
}
