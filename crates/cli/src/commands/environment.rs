//! The environment of this command, as far as it can be passed on: requests are JSON, which carries text alone.

use std::collections::BTreeMap;
use std::ffi::OsString;

use super::run::{HOME, MARKS};

/// Names that a warning lists; the rest is counted.
const NAMED_MOST: usize = 8;

/// Variables that go on, and the names of those that cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Environment {
    pub(super) variables: BTreeMap<String, Option<String>>,
    not_text: Vec<String>,
}

impl Environment {
    /// Without the marks of the process that this command may run in: they are not for a new one.
    pub(super) fn read(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
        let mut environment = Self::default();
        for (name, value) in variables {
            match (name.into_string(), value.into_string()) {
                (Ok(name), _) if MARKS.contains(&name.as_str()) => {}
                (Ok(name), Ok(value)) => drop(environment.variables.insert(name, Some(value))),
                (Ok(name), Err(_)) => environment.not_text.push(name),
                (Err(name), _) => environment.not_text.push(name.to_string_lossy().into_owned()),
            }
        }
        environment
    }

    /// Sets a variable.
    pub(super) fn set(&mut self, name: &str, value: &str) {
        self.not_text.retain(|known| known != name);
        self.variables.insert(name.to_owned(), Some(value.to_owned()));
    }

    /// Takes a variable out. The home must be unset by name: the daemon sets it where the request says nothing of it.
    pub(super) fn unset(&mut self, name: &str) {
        self.not_text.retain(|known| known != name);
        self.variables.remove(name);
        if name == HOME {
            self.variables.insert(name.to_owned(), None);
        }
    }

    /// What is to be said of variables that do not go on.
    pub(super) fn warning(&self) -> Option<String> {
        let names: Vec<_> = self.not_text.iter().take(NAMED_MOST).map(String::as_str).collect();
        let more = match self.not_text.len().saturating_sub(NAMED_MOST) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let plural = if self.not_text.len() == 1 { "its value is" } else { "their values are" };
        (!names.is_empty()).then(|| format!("not passed on, since {plural} not UTF-8: {}{more}", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn pair(name: &str, value: &[u8]) -> (OsString, OsString) {
        (name.into(), OsString::from_vec(value.to_vec()))
    }

    #[test]
    fn what_is_not_text_is_named_unless_it_is_replaced() {
        let variables = [pair("A", b"1"), pair("B", b"\xff"), pair("PINFOLD_ID", b"k3"), pair("C", b"\xff")];
        let mut environment = Environment::read(variables.into_iter());
        assert_eq!(environment.variables, [("A".to_owned(), Some("1".to_owned()))].into());
        let warning = environment.warning().expect("a warning");
        assert_eq!(warning, "not passed on, since their values are not UTF-8: B, C");
        environment.set("B", "2");
        assert!(environment.warning().expect("a warning").ends_with("since its value is not UTF-8: C"));
        environment.unset("C");
        assert_eq!(environment.warning(), None);
    }
}
