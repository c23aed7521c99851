//! What a caller sees: everything, or what one owner and its descendants own (D5).

use pinfold_model::facts::History;
use pinfold_model::spec::check_name;

use crate::core::Core;
use crate::refusal::Refusal;

/// What a caller sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// All.
    Operator,
    /// What this owner and its descendants own.
    Owner(String),
}

impl Scope {
    /// The owner whose consumers it reads as; empty for the operator.
    pub(crate) fn name(&self) -> &str {
        match self {
            Scope::Operator => "",
            Scope::Owner(owner) => owner,
        }
    }
}

impl Core {
    /// Whether a process is in a caller's view.
    pub(crate) fn sees(&self, scope: &Scope, history: &History) -> bool {
        match scope {
            Scope::Operator => true,
            Scope::Owner(viewer) => self.owners.sees(viewer, history.owner()),
        }
    }

    /// The owners in view, narrowed to one that was asked for; `None` means all there are.
    pub(crate) fn owners_in_view(&self, scope: &Scope, asked: Option<&str>) -> Result<Option<Vec<String>>, Refusal> {
        if let Some(asked) = asked {
            check_name("owner", asked)?;
        }
        Ok(match (scope, asked) {
            (Scope::Operator, None) => None,
            (Scope::Operator, Some(asked)) => Some(vec![asked.to_owned()]),
            (Scope::Owner(viewer), None) => Some(self.owners.view_of(viewer)),
            (Scope::Owner(viewer), Some(asked)) => {
                Some(if self.owners.sees(viewer, asked) { vec![asked.to_owned()] } else { vec![] })
            }
        })
    }
}
