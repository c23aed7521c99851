//! How an agent stands, as its driver shows it.

use pinfold_agents::{Conversation, Phase};
use pinfold_api::types::{Agent, AgentStatus};
use pinfold_model::id::ProcessId;
use pinfold_model::outcome::Cause;

use super::driver::Driver;
use super::seat::View;
use crate::clock::rfc3339;
use crate::registry::records::api_cause;

impl Driver {
    /// Shows how the agent stands.
    pub(super) fn publish(&self) {
        let running = self.conversation.as_ref().and_then(Conversation::turn).or(self.state.pending.as_ref()).cloned();
        let view = View { agent: self.agent(), running, over_through: self.state.over_through };
        self.seat.view.send_replace(view);
    }

    fn agent(&self) -> Agent {
        let (spec, state) = (&self.seat.spec, &self.state);
        let conversation = self.conversation.as_ref();
        let turn = conversation.and_then(Conversation::turn).or(state.pending.as_ref()).map(|turn| turn.number);
        let cwd = self
            .life
            .as_ref()
            .map(|life| life.entry.state.borrow().history.intent.spec.cwd.to_string_lossy().into_owned());
        let cause = state.cause.as_ref().filter(|_| state.is_over());
        Agent {
            id: spec.id.to_string(),
            name: spec.name.clone(),
            kind: spec.kind.name().to_owned(),
            status: self.status(),
            fault: state.fault.clone(),
            cause: cause.map(api_cause),
            stopped_by: cause.and_then(Cause::asked_by).map(str::to_owned),
            owner: self.seat.owner(),
            cwd: cwd.or_else(|| spec.cwd.clone()).unwrap_or_else(|| self.core.user_home.clone()),
            model: spec.model.clone(),
            mode: spec.mode,
            approvals: spec.approvals,
            transport: spec.transport,
            session: state.session.clone().or_else(|| spec.resume.clone()),
            version: state.version.clone(),
            process: state.lives.back().map(ProcessId::to_string),
            lives: state.lives.iter().map(ProcessId::to_string).collect(),
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
        match (&self.conversation, &self.life) {
            (Some(conversation), Some(_)) if conversation.phase() == Phase::Open => match conversation.turn() {
                Some(_) if !conversation.asks().is_empty() => AgentStatus::Asking,
                Some(_) => AgentStatus::Busy,
                None => AgentStatus::Idle,
            },
            (_, Some(_)) => AgentStatus::Starting,
            (_, None) if self.state.pending.is_some() || !self.state.queue.is_empty() => AgentStatus::Starting,
            (_, None) => AgentStatus::Resting,
        }
    }
}
