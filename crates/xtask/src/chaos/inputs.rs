//! Sends numbered inputs to processes, each with an id, until they are accepted, and some of them twice. Each process prints what
//! it reads, so that a lost, doubled or misplaced input shows in its output.

use std::time::Duration;

use pinfold_api::client::ClientError;
use pinfold_api::types::{InputRequest, Status};

use super::clients::{Actor, Campaign, RetryingClient, lock};
use super::random::Dice;

/// One process that gets input.
#[derive(Clone, Debug)]
struct InputTarget {
    actor: Actor,
    /// Accepted inputs; end of file counts as the last one.
    taken: u64,
}

/// The result of sending an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fed {
    Taken,
    /// The daemon cannot be reached, or not all of it was accepted.
    NotYet,
    /// The process has ended; the checks decide whether that is right.
    Over,
}

impl Campaign {
    /// Sends inputs to all processes in turn until the end of the campaign, then the remaining ones.
    pub(super) fn feed_processes(&self) -> anyhow::Result<()> {
        let voice = RetryingClient::new(self)?;
        let mut dice = Dice::new(self.seed, 4);
        let (mut mouths, mut seen) = (Vec::<InputTarget>::new(), 0);
        loop {
            let last = self.has_stopped_starting();
            let actors = lock(&self.actors);
            let new = actors[seen..].iter().filter(|actor| actor.part.fed);
            mouths.extend(new.map(|actor| InputTarget { actor: actor.clone(), taken: 0 }));
            seen = actors.len();
            drop(actors);
            if self.is_over() || (last && mouths.is_empty() && self.is_all_started()) {
                return Ok(());
            }
            if !mouths.is_empty() {
                let place = dice.between(0, mouths.len() as u64) as usize;
                if !self.feed(&voice, &mut mouths[place], &mut dice) {
                    mouths.swap_remove(place);
                }
            }
            std::thread::sleep(Duration::from_millis(if last { 1 } else { 10 }));
        }
    }

    /// Sends the next input; returns whether more follow.
    fn feed(&self, voice: &RetryingClient<'_>, mouth: &mut InputTarget, dice: &mut Dice) -> bool {
        let lines = mouth.actor.part.lines.unwrap_or(0);
        match self.send(voice, &mouth.actor, mouth.taken + 1) {
            Fed::NotYet => return true,
            Fed::Over => return false,
            Fed::Taken => mouth.taken += 1,
        }
        // Repeat an accepted input, as a client that missed the answer would.
        if mouth.taken <= lines && dice.between(0, 4) == 0 {
            let again = dice.between(mouth.taken.saturating_sub(20).max(1), mouth.taken + 1);
            self.send(voice, &mouth.actor, again);
        }
        mouth.taken <= lines
    }

    fn send(&self, voice: &RetryingClient<'_>, actor: &Actor, number: u64) -> Fed {
        let end = number > actor.part.lines.unwrap_or(0);
        let text = (!end).then(|| format!("{number}\n"));
        let request =
            &InputRequest { text, eof: end, input_id: Some(format!("in-{number}")), ..InputRequest::default() };
        let id = actor.id.as_str();
        let sent = voice.once(|client| async move {
            match client.input(id, request).await {
                Ok(answer) if answer.complete => Ok(Fed::Taken),
                Ok(_) => Ok(Fed::NotYet),
                // Refused because the process has ended, or temporarily.
                Err(ClientError::Api { .. }) => {
                    let over = matches!(client.show(id).await?.status, Status::Finished | Status::Lost);
                    Ok(if over { Fed::Over } else { Fed::NotYet })
                }
                Err(error) => Err(error),
            }
        });
        sent.unwrap_or(Fed::NotYet)
    }
}
