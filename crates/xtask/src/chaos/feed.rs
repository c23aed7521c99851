//! Those who are fed: numbered inputs under their names, sent until they are taken, and some of them again. Each process gives back what it
//! reads, so that an input that was lost, came twice or out of order shows in its output as any other loss does.

use std::time::Duration;

use pinfold_api::client::ClientError;
use pinfold_api::types::{InputRequest, Status};

use super::crew::{Actor, Play, Voice, lock};
use super::dice::Dice;

/// One process that is fed.
#[derive(Clone, Debug)]
struct Mouth {
    actor: Actor,
    /// Inputs that were taken; the end of input counts as the last one.
    taken: u64,
}

/// What became of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fed {
    Taken,
    /// Nobody can be reached just now, or not all of it was taken.
    NotYet,
    /// The process is over, which the accounting judges.
    Over,
}

impl Play {
    /// Feeds everybody bit by bit until the last call, and then all that is left.
    pub(super) fn feed_processes(&self) -> anyhow::Result<()> {
        let voice = Voice::new(self)?;
        let mut dice = Dice::new(self.seed, 4);
        let (mut mouths, mut seen) = (Vec::<Mouth>::new(), 0);
        loop {
            let last = self.is_last_call();
            let actors = lock(&self.actors);
            let new = actors[seen..].iter().filter(|actor| actor.part.fed);
            mouths.extend(new.map(|actor| Mouth { actor: actor.clone(), taken: 0 }));
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

    /// Sends the next input; whether there are others to come.
    fn feed(&self, voice: &Voice<'_>, mouth: &mut Mouth, dice: &mut Dice) -> bool {
        let lines = mouth.actor.part.lines.unwrap_or(0);
        match self.send(voice, &mouth.actor, mouth.taken + 1) {
            Fed::NotYet => return true,
            Fed::Over => return false,
            Fed::Taken => mouth.taken += 1,
        }
        // A client that did not hear of it, or has lost its memory.
        if mouth.taken <= lines && dice.between(0, 4) == 0 {
            let again = dice.between(mouth.taken.saturating_sub(20).max(1), mouth.taken + 1);
            self.send(voice, &mouth.actor, again);
        }
        mouth.taken <= lines
    }

    fn send(&self, voice: &Voice<'_>, actor: &Actor, number: u64) -> Fed {
        let end = number > actor.part.lines.unwrap_or(0);
        let text = (!end).then(|| format!("{number}\n"));
        let request =
            &InputRequest { text, eof: end, input_id: Some(format!("in-{number}")), ..InputRequest::default() };
        let id = actor.id.as_str();
        let told = voice.once(|client| async move {
            match client.input(id, request).await {
                Ok(answer) if answer.complete => Ok(Fed::Taken),
                Ok(_) => Ok(Fed::NotYet),
                // Refused: because it is over, or for the moment.
                Err(ClientError::Api { .. }) => {
                    let over = matches!(client.show(id).await?.status, Status::Finished | Status::Lost);
                    Ok(if over { Fed::Over } else { Fed::NotYet })
                }
                Err(error) => Err(error),
            }
        });
        told.unwrap_or(Fed::NotYet)
    }
}
