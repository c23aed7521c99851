//! Plays one scenario once, with one client and one set of tools, and measures it.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use pinfold_testkit::{Pinfold, Setup};

use crate::agents::{Program, ServerAccess};
use crate::chat::{Chat, Leftovers};
use crate::dialect::ToolSet;
use crate::model::Cost;
use crate::scenarios::Scenario;
use crate::shells::{self, Stop};

/// The time limit of a scenario, including the start of its client.
const DEADLINE: Duration = Duration::from_secs(180);

/// The result of a scenario.
#[derive(Clone, Debug)]
pub struct Played {
    /// Its cost, or why it was not completed.
    pub outcome: Result<Cost, Stop>,
    /// The model's calls and their results.
    pub log: String,
}

/// Dropped in this order: the client, the daemon, then what the client's own tools left running.
struct Set {
    chat: Chat,
    _pinfold: Pinfold,
    _leftovers: Leftovers,
}

/// Plays a scenario with its own daemon and client.
pub fn play(binary: &Path, program: &Program, scenario: Scenario, from: ToolSet) -> Played {
    let played = catch_unwind(AssertUnwindSafe(|| {
        let pinfold = Pinfold::prepare(&binary.to_string_lossy(), Setup::default());
        let access = match from {
            ToolSet::Pinfold => ServerAccess::of(&pinfold),
            ToolSet::Own => ServerAccess::None,
        };
        let chat = Chat::start_by(program, &access);
        let leftovers = Leftovers::of(&chat);
        let mut set = Set { chat, _pinfold: pinfold, _leftovers: leftovers };
        set.chat.model.set_deadline(Instant::now() + DEADLINE);
        let mut shell = shells::of(program.agent(), from);
        let chat = &mut set.chat;
        let done = catch_unwind(AssertUnwindSafe(|| scenario.play(chat, &mut *shell)));
        let outcome = done.unwrap_or_else(|panic| Err(Stop::Failed(message(&*panic))));
        Played { outcome: outcome.map(|()| set.chat.model.cost()), log: set.chat.log().to_owned() }
    }));
    played.unwrap_or_else(|panic| Played { outcome: Err(Stop::Failed(message(&*panic))), log: String::new() })
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
}
