//! What a model sees of a result: the text that the client put into its next request.

use std::fmt;

use serde_json::Value;

/// A result as the model sees it.
#[derive(Clone, Debug)]
pub struct Seen {
    pub text: String,
}

impl Seen {
    /// A fact by its name, from the structured content or from the lines of the text, whichever the client shows.
    pub fn get(&self, name: &str) -> String {
        self.find(name).unwrap_or_else(|| panic!("no {name} in what the model sees:\n{self}"))
    }

    /// The same, if it is there.
    pub fn find(&self, name: &str) -> Option<String> {
        match self.facts() {
            Some(facts) => match &facts[name] {
                Value::Null => None,
                Value::String(text) => Some(text.clone()),
                other => Some(other.to_string()),
            },
            None => self.text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": ").map(str::to_owned)),
        }
    }

    /// Whether it says that the process is over: it has an outcome, and no state, or the last one.
    pub fn is_over(&self) -> bool {
        let outcome = self.find("exit_code").or_else(|| self.find("signal"));
        outcome.is_some() && self.find("state").is_none_or(|state| state == "finished")
    }

    /// The structured content, if that is what the client shows.
    fn facts(&self) -> Option<Value> {
        let at = self.text.find('{').filter(|at| *at == 0 || self.text[..*at].ends_with("Output:\n"))?;
        serde_json::from_str(&self.text[at..]).ok()
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
