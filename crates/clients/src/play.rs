//! One scenario, played once with one client and one set of tools: what it took.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};

use pinfold_testkit::{Pinfold, Setup};

use crate::agents::{Program, Way};
use crate::chat::{Chat, Leftovers};
use crate::dialect::ToolSet;
use crate::model::Cost;
use crate::scenarios::Scenario;
use crate::shells::{self, Stop};

/// How long one may take, the start of its client included.
const DEADLINE: Duration = Duration::from_secs(180);

/// What came of it.
#[derive(Clone, Debug)]
pub struct Played {
    /// What it cost, or why it was not completed.
    pub outcome: Result<Cost, Stop>,
    /// What the model called and read.
    pub log: String,
}

/// What is dropped in this order: the client, the daemon, and then what the client's own tools left running.
struct Set {
    chat: Chat,
    _pinfold: Pinfold,
    _leftovers: Leftovers,
}

/// Plays it, with a daemon and a client of its own.
pub fn play(binary: &Path, program: &Program, scenario: Scenario, from: ToolSet) -> Played {
    let played = catch_unwind(AssertUnwindSafe(|| {
        let pinfold = Pinfold::prepare(&binary.to_string_lossy(), Setup::default());
        let way = match from {
            ToolSet::Pinfold => Way::of(&pinfold),
            ToolSet::Own => Way::Without,
        };
        let chat = Chat::start_by(program, &way);
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
