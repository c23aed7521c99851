//! Which variables of the inherited environment are passed to a process.

/// Patterns of variable names; `*` matches any characters. Variables set by a request itself are always passed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EnvironmentFilter {
    /// If given, only these are passed.
    pub allow: Option<Vec<String>>,
    /// Never passed, even if `allow` matches.
    pub deny: Vec<String>,
}

impl EnvironmentFilter {
    pub fn passes(&self, name: &str) -> bool {
        let allowed =
            self.allow.as_ref().is_none_or(|allow| allow.iter().any(|pattern| matches_pattern(pattern, name)));
        allowed && !self.deny.iter().any(|pattern| matches_pattern(pattern, name))
    }
}

/// Whether a name matches a pattern; `*` matches any number of characters.
fn matches_pattern(pattern: &str, name: &str) -> bool {
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
    fn a_star_matches_any_characters() {
        for (pattern, name) in
            [("PATH", "PATH"), ("LC_*", "LC_ALL"), ("*", "X"), ("*_KEY", "API_KEY"), ("A*B*C", "AxxBC")]
        {
            assert!(matches_pattern(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("PATH", "PATHX"), ("LC_*", "XLC_ALL"), ("*_KEY", "API_KEYS"), ("A*B*C", "ACB"), ("", "X")]
        {
            assert!(!matches_pattern(pattern, name), "{pattern} {name}");
        }
        assert!(!matches_pattern("AB*BA", "ABA"), "the parts do not share characters");
    }

    #[test]
    fn deny_wins_over_allow() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert!(EnvironmentFilter::default().passes("TOKEN"));
        let deny = EnvironmentFilter { allow: None, deny: names(&["*TOKEN*"]) };
        assert!(deny.passes("PATH") && !deny.passes("GITHUB_TOKEN"));
        let both = EnvironmentFilter { allow: Some(names(&["PATH", "CI_*"])), deny: names(&["*_KEY"]) };
        assert!(both.passes("PATH") && both.passes("CI_JOB") && !both.passes("HOME") && !both.passes("CI_KEY"));
    }
}
