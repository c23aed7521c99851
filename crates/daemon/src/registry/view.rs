//! Views: everything, or what one owner and its descendants own (D5).

use pinfold_model::facts::History;
use pinfold_model::spec::check_name;

use crate::core::Core;
use crate::request_error::RequestError;

/// What a caller sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Viewer {
    /// Everything.
    Operator,
    /// What this owner and its descendants own.
    Owner(String),
}

impl Viewer {
    /// The owner's name, which its consumers are stored under; empty for the operator.
    pub(crate) fn name(&self) -> &str {
        match self {
            Viewer::Operator => "",
            Viewer::Owner(owner) => owner,
        }
    }
}

impl Core {
    /// Whether a process is in a caller's view.
    pub(crate) fn sees(&self, viewer: &Viewer, history: &History) -> bool {
        match viewer {
            Viewer::Operator => true,
            Viewer::Owner(own) => self.owners.sees(own, history.owner()),
        }
    }

    /// The owners in view, narrowed to `owner` if that is given; `None` means all.
    pub(crate) fn owners_in_view(
        &self,
        viewer: &Viewer,
        owner: Option<&str>,
    ) -> Result<Option<Vec<String>>, RequestError> {
        if let Some(owner) = owner {
            check_name("owner", owner)?;
        }
        Ok(match (viewer, owner) {
            (Viewer::Operator, None) => None,
            (Viewer::Operator, Some(owner)) => Some(vec![owner.to_owned()]),
            (Viewer::Owner(own), None) => Some(self.owners.view_of(own)),
            (Viewer::Owner(own), Some(owner)) => {
                Some(if self.owners.sees(own, owner) { vec![owner.to_owned()] } else { vec![] })
            }
        })
    }
}
