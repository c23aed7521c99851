//! Which variables of an environment reach a process without being asked for by name.

/// Names that pass and names that do not, with `*` for any characters. What a request sets itself always passes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentFilter {
    /// Only these pass; all do without.
    pub allow: Option<Vec<String>>,
    /// These do not, even if they are allowed.
    pub deny: Vec<String>,
}

impl EnvironmentFilter {
    /// Whether a variable of this name passes.
    pub fn passes(&self, name: &str) -> bool {
        let allowed = self.allow.as_ref().is_none_or(|allow| allow.iter().any(|pattern| fits(pattern, name)));
        allowed && !self.deny.iter().any(|pattern| fits(pattern, name))
    }
}

/// Whether a name fits a pattern. Every `*` stands for any characters, none among them.
fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_star_stands_for_any_characters() {
        for (pattern, name) in
            [("PATH", "PATH"), ("LC_*", "LC_ALL"), ("*", "X"), ("*_KEY", "API_KEY"), ("A*B*C", "AxxBC")]
        {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("PATH", "PATHX"), ("LC_*", "XLC_ALL"), ("*_KEY", "API_KEYS"), ("A*B*C", "ACB"), ("", "X")]
        {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
        assert!(!fits("AB*BA", "ABA"), "the parts do not share characters");
    }

    #[test]
    fn what_is_denied_does_not_pass_though_it_is_allowed() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        assert!(EnvironmentFilter::default().passes("TOKEN"));
        let deny = EnvironmentFilter { allow: None, deny: words(&["*TOKEN*"]) };
        assert!(deny.passes("PATH") && !deny.passes("GITHUB_TOKEN"));
        let both = EnvironmentFilter { allow: Some(words(&["PATH", "CI_*"])), deny: words(&["*_KEY"]) };
        assert!(both.passes("PATH") && both.passes("CI_JOB") && !both.passes("HOME") && !both.passes("CI_KEY"));
    }
}
