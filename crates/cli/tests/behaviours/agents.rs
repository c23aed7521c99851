//! Hosted agents, with a program that speaks a real agent's protocol and misbehaves on request. The real agents are in
//! `tests/clients`.

mod faults;
mod inbox;
mod keys;
mod ladder;
mod looking;
mod models;
mod observers;
mod owners;
mod rounds;
mod survival;
mod turns;
mod user;

use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};

use pinfold_api::client::ClientError;
use pinfold_api::error::{ApiError, ErrorCode};
use pinfold_api::types::{
    Agent, AgentEvent, AgentEventsQuery, AgentRequest, AgentStopRequest, InterruptAnswer, InterruptRequest, Turn,
    TurnQuery, TurnRequest, TurnStatus,
};
use pinfold_testkit::{Pinfold, until_some};

use crate::PINFOLD;

/// A daemon, and a directory in which a fake agent works.
struct Host {
    pinfold: Pinfold,
    work: PathBuf,
}

impl Host {
    fn start() -> Self {
        Self::at(Pinfold::start(PINFOLD))
    }

    fn at(pinfold: Pinfold) -> Self {
        let work = pinfold.home().join("work");
        std::fs::create_dir_all(&work).expect("a directory");
        // Agents run as the user of the daemon.
        let owner = std::fs::metadata(pinfold.home()).expect("a home").uid();
        chown(&work, Some(owner), None).expect("a directory of the daemon's user");
        // Named as the first argument of the program, which is a shell: a file that was just written cannot always be executed
        // while other tests fork.
        std::fs::write(work.join("app-server"), include_str!("agents/fake.sh")).expect("the fake is written");
        Self { pinfold, work }
    }

    fn program(&self) -> String {
        "/bin/sh".to_owned()
    }

    fn request(&self) -> AgentRequest {
        AgentRequest {
            kind: "codex".into(),
            program: Some(self.program()),
            cwd: Some(self.work.to_string_lossy().into_owned()),
            wait: Some("60s".into()),
            ..AgentRequest::default()
        }
    }

    /// An agent that behaves.
    fn agent(&self) -> Agent {
        self.host(&self.request())
    }

    fn host(&self, request: &AgentRequest) -> Agent {
        self.try_host(request).expect("it is hosted")
    }

    fn try_host(&self, request: &AgentRequest) -> Result<Agent, ApiError> {
        self.pinfold.block(self.pinfold.client().host_agent(request)).map_err(api_error)
    }

    fn show(&self, id: &str) -> Agent {
        self.pinfold.block(self.pinfold.client().agent(id)).expect("it is known")
    }

    fn try_turn(&self, id: &str, request: &TurnRequest) -> Result<Turn, ApiError> {
        self.pinfold.block(self.pinfold.client().give_turn(id, request)).map_err(api_error)
    }

    /// Starts a turn without waiting for it.
    fn begin(&self, id: &str, text: &str) -> Turn {
        self.try_turn(id, &TurnRequest { text: text.into(), ..TurnRequest::default() }).expect("a turn")
    }

    /// Runs a turn and waits until it ends.
    fn turn(&self, id: &str, text: &str) -> Turn {
        let turn = self.begin(id, text);
        self.finish(id, turn.number)
    }

    fn finish(&self, id: &str, number: u64) -> Turn {
        let query = TurnQuery { wait: Some("60s".into()) };
        let turn = self.pinfold.block(self.pinfold.client().turn(id, number, &query)).expect("a turn");
        assert!(turn.status.is_over(), "{turn:?}");
        turn
    }

    fn peek(&self, id: &str, number: u64) -> Turn {
        self.pinfold.block(self.pinfold.client().turn(id, number, &TurnQuery::default())).expect("a turn")
    }

    fn interrupt(&self, id: &str, request: &InterruptRequest) -> InterruptAnswer {
        self.pinfold.block(self.pinfold.client().interrupt_agent(id, request)).expect("an interrupt")
    }

    fn stop(&self, id: &str) -> Agent {
        self.pinfold.block(self.pinfold.client().stop_agent(id, &AgentStopRequest::default())).expect("a stop")
    }

    fn events(&self, id: &str) -> Vec<AgentEvent> {
        let query = AgentEventsQuery { limit: Some(1000), ..AgentEventsQuery::default() };
        self.pinfold.block(self.pinfold.client().agent_events(id, &query)).expect("events").events
    }

    /// The prompts that the fake got, over all its processes.
    fn asked(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.work.join("asked")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn touch(&self, name: &str) {
        std::fs::write(self.work.join(name), "").expect("a file");
    }

    fn until_asked(&self, count: usize) {
        until_some("the fake is asked", || (self.asked().len() >= count).then_some(()));
    }
}

fn api_error(error: ClientError) -> ApiError {
    match error {
        ClientError::Api { error, .. } => error,
        other => ApiError { code: ErrorCode::Internal, message: other.to_string(), id: None },
    }
}

fn exists(path: &Path) -> bool {
    path.exists()
}

/// Checks that the turn completed with this text.
#[track_caller]
fn assert_said(turn: &Turn, text: &str) {
    assert_eq!((turn.status, turn.text.as_deref()), (TurnStatus::Completed, Some(text)), "{turn:?}");
}
