//! Starting the process of an agent, and the WebSocket that some agents connect to.

use pinfold_agents::Conversation;
use pinfold_api::types::{AgentEventKind, Transport};
use pinfold_store::tokens::random_token;
use tokio::time::Instant;

use super::agent_process::{self, Endpoint};
use super::agent_socket::{self, AgentSocket};
use super::driver::Driver;
use crate::request_error::RequestError;

impl Driver {
    /// Starts the next process and opens the conversation with it. The run number is on disk first, so that a process
    /// which a daemon started just before it crashed is found by its idempotency key.
    pub(super) async fn start_process(&mut self) -> Result<(), RequestError> {
        if !self.state.starting {
            self.state.run += 1;
            self.state.starting = true;
            self.save().await;
        }
        let own = self.state.session.clone().filter(|_| !self.starts_fresh());
        let resumed = own.is_some() && own != self.handle.spec.resume;
        let resume = own.or_else(|| self.handle.spec.resume.clone());
        let (endpoint, socket) = self.open_endpoint().await?;
        let url = endpoint.as_ref().map(|endpoint| AgentSocket::url(endpoint.port));
        let started = agent_process::start(&*self.host, &self.handle, self.state.run, (resume.clone(), endpoint)).await;
        self.state.starting = false;
        let mut started = started?;
        started.resumed = resumed;
        if let Some(socket) = socket {
            started.read_from(socket, self.handle.dir.stream(self.state.run));
        }
        let settings = self.handle.spec.adapter_settings(resume, &started.process.cwd(), url);
        let seq = self.state.seq;
        self.state.note_process(started.process.id().clone());
        let process = started.process.id().to_string();
        self.process = Some(started);
        let mut conversation = Conversation::new(self.handle.spec.kind, settings, self.handle.spec.approvals, seq);
        let effects = conversation.open();
        self.conversation = Some(conversation);
        self.ready_by = Some(Instant::now() + self.handle.spec.ready_timeout);
        self.show(AgentEventKind::Started, |event| event.process = Some(process));
        self.carry_out(effects, 0).await;
        Ok(())
    }

    /// For an agent that connects to pinfold: opens a port and makes a token that only this agent gets. Both are on disk
    /// before the process is started, and do not change if an earlier daemon has already started it.
    async fn open_endpoint(&mut self) -> Result<(Option<Endpoint>, Option<AgentSocket>), RequestError> {
        if self.handle.spec.transport != Transport::Websocket {
            return Ok((None, None));
        }
        let key = self.handle.spec.start_key(self.state.run);
        let token = match self.host.has_started(&self.handle.owner(), &key) {
            true => None,
            false => Some(random_token().map_err(RequestError::internal)?),
        };
        if let Some(token) = &token {
            self.state.port = None;
            self.state.token_hash = agent_socket::hash(token);
        }
        let socket = self.open_socket().await.map_err(RequestError::internal)?;
        self.state.port = Some(socket.port());
        self.save().await;
        Ok((Some(Endpoint { port: socket.port(), token }), Some(socket)))
    }

    /// Opens the port that the process of this run connects to.
    pub(super) async fn open_socket(&self) -> std::io::Result<AgentSocket> {
        // The messages of the previous run are kept for observers, those of earlier ones are not.
        if let Some(past) = self.state.run.checked_sub(2) {
            let _ = std::fs::remove_file(self.handle.dir.stream(past));
        }
        let received = self.handle.dir.stream(self.state.run);
        AgentSocket::listen(self.state.port, self.state.token_hash.clone(), received).await
    }
}
