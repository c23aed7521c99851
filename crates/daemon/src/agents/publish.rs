//! Publishing the state of an agent, as clients see it.

use pinfold_agents::{Conversation, Phase};
use pinfold_api::types::{Agent, AgentStatus};
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Cause;

use super::driver::Driver;
use super::handle::View;
use crate::clock::rfc3339;

impl Driver {
    /// Makes the current state visible to clients.
    pub(super) fn publish(&self) {
        let running = self.conversation.as_ref().and_then(Conversation::turn).or(self.state.pending.as_ref()).cloned();
        let view = View { agent: self.agent(), running, over_through: self.state.over_through };
        self.handle.view.send_replace(view);
    }

    fn agent(&self) -> Agent {
        let (spec, state) = (&self.handle.spec, &self.state);
        let conversation = self.conversation.as_ref();
        let turn = conversation.and_then(Conversation::turn).or(state.pending.as_ref()).map(|turn| turn.number);
        let cwd = self.process.as_ref().map(|running| running.process.cwd());
        let cause = state.cause.as_ref().filter(|_| state.is_over());
        Agent {
            id: spec.id.to_string(),
            name: spec.name.clone(),
            kind: spec.kind.name().to_owned(),
            status: self.status(),
            fault: state.fault.clone(),
            cause: cause.map(Cause::kind),
            stopped_by: cause.and_then(Cause::stopped_by).map(str::to_owned),
            owner: self.handle.owner(),
            cwd: cwd.or_else(|| spec.cwd.clone()).unwrap_or_else(|| self.host.user_home()),
            model: spec.model.clone(),
            mode: spec.mode,
            approvals: spec.approvals,
            transport: spec.transport,
            session: state.session.clone().or_else(|| spec.resume.clone()),
            version: state.version.clone(),
            process: state.processes.back().map(ProcessId::to_string),
            lives: state.processes.iter().map(ProcessId::to_string).collect(),
            turn,
            queued: state.queue.len() as u64,
            turns: state.turns,
            asks: conversation.map(|known| known.asks().to_vec()).unwrap_or_default(),
            notices: conversation.map(|known| known.notices().to_vec()).unwrap_or_default(),
            created_at: rfc3339(spec.at),
            ended_at: state.ended.map(rfc3339),
        }
    }

    fn status(&self) -> AgentStatus {
        if self.state.fault.is_some() {
            return AgentStatus::Failed;
        }
        if self.state.is_over() {
            return AgentStatus::Stopped;
        }
        match (&self.conversation, &self.process) {
            (Some(conversation), Some(_)) if conversation.phase() == Phase::Open => match conversation.turn() {
                Some(_) if !conversation.asks().is_empty() => AgentStatus::Asking,
                Some(_) => AgentStatus::Busy,
                None => AgentStatus::Idle,
            },
            (_, Some(_)) => AgentStatus::Starting,
            (_, None) if self.state.has_waiting_turn() => AgentStatus::Starting,
            (_, None) => AgentStatus::Resting,
        }
    }
}
