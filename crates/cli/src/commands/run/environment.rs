//! The environment that is passed on to a new process. Requests are JSON, so values that are not UTF-8 are left out.

use std::collections::BTreeMap;
use std::ffi::OsString;

use pinfold_api::trace::{TRACEPARENT_ENV as TRACEPARENT, TraceParent};

use super::{HOME, MARKS};

/// Names listed in the warning; further ones are counted.
const MAX_NAMED: usize = 8;

/// Variables to pass on, and the names of those that are not UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Environment {
    pub(crate) variables: BTreeMap<String, Option<String>>,
    not_text: Vec<String>,
}

impl Environment {
    /// Takes all variables except those that pinfold sets in every process: a new process gets its own.
    pub(crate) fn read(variables: impl Iterator<Item = (OsString, OsString)>) -> Self {
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
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.not_text.retain(|known| known != name);
        self.variables.insert(name.to_owned(), Some(value.to_owned()));
    }

    /// Removes a variable. PINFOLD_HOME is sent as unset: the daemon would set it otherwise.
    pub(crate) fn unset(&mut self, name: &str) {
        self.not_text.retain(|known| known != name);
        self.variables.remove(name);
        if name == HOME {
            self.variables.insert(name.to_owned(), None);
        }
    }

    /// Takes the trace context out of TRACEPARENT, for the start request: the process gets the span of its own run there. A
    /// value that is no trace context stays as it is.
    pub(crate) fn take_traceparent(&mut self) -> Option<String> {
        let text = self.variables.get(TRACEPARENT)?.clone()?;
        TraceParent::parse(&text).ok()?;
        self.variables.remove(TRACEPARENT);
        Some(text)
    }

    /// A warning about variables that are not passed on.
    pub(crate) fn warning(&self) -> Option<String> {
        let names: Vec<_> = self.not_text.iter().take(MAX_NAMED).map(String::as_str).collect();
        let more = match self.not_text.len().saturating_sub(MAX_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let plural = if self.not_text.len() == 1 { "its value is" } else { "their values are" };
        (!names.is_empty()).then(|| format!("not passed on because {plural} not UTF-8: {}{more}", names.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_trace_context_goes_into_the_request_and_anything_else_stays() {
        let good = b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let mut environment = Environment::read([pair("TRACEPARENT", good)].into_iter());
        assert_eq!(environment.take_traceparent().as_deref(), std::str::from_utf8(good).ok());
        assert_eq!(environment, Environment::default());
        let mut environment = Environment::read([pair("TRACEPARENT", b"mine")].into_iter());
        assert_eq!(environment.take_traceparent(), None);
        assert_eq!(environment.variables["TRACEPARENT"].as_deref(), Some("mine"));
    }

    fn pair(name: &str, value: &[u8]) -> (OsString, OsString) {
        (name.into(), OsString::from_vec(value.to_vec()))
    }

    #[test]
    fn what_is_not_text_is_named_unless_it_is_replaced() {
        let variables = [pair("A", b"1"), pair("B", b"\xff"), pair("PINFOLD_ID", b"k3"), pair("C", b"\xff")];
        let mut environment = Environment::read(variables.into_iter());
        assert_eq!(environment.variables, [("A".to_owned(), Some("1".to_owned()))].into());
        let warning = environment.warning().expect("a warning");
        assert_eq!(warning, "not passed on because their values are not UTF-8: B, C");
        environment.set("B", "2");
        assert!(environment.warning().expect("a warning").ends_with("because its value is not UTF-8: C"));
        environment.unset("C");
        assert_eq!(environment.warning(), None);
    }
}
