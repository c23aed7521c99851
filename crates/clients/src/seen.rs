//! A tool result as the model sees it: the text in the client's next request.

use std::fmt;

use serde_json::Value;

#[derive(Clone, Debug)]
pub struct Seen {
    pub text: String,
}

impl Seen {
    /// A field by name, from the structured content or from the lines of the text, depending on the client.
    pub fn get(&self, name: &str) -> String {
        self.find(name).unwrap_or_else(|| panic!("no {name} in what the model sees:\n{self}"))
    }

    /// The same, if it exists.
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

    /// Whether the process is over: it has an outcome, and either no state or `finished`.
    pub fn is_over(&self) -> bool {
        let outcome = self.find("exit_code").or_else(|| self.find("signal"));
        outcome.is_some() && self.find("state").is_none_or(|state| state == "finished")
    }

    /// The structured content, if the client shows it.
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
