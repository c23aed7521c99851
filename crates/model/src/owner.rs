//! Owners and their parents: who sees whose processes.
//!
//! An owner sees itself and its descendants, and nothing else. An unknown relation counts as none, so missing data
//! makes a view smaller, never larger.

use std::collections::{BTreeMap, BTreeSet};

use crate::spec::check_name;

/// The most ancestors an owner can have.
pub const MAX_DEPTH: usize = 16;

/// The most owners that can have a parent.
pub const MAX_CHILDREN: usize = 100_000;

/// The parent of each owner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    parents: BTreeMap<String, String>,
    children: BTreeMap<String, BTreeSet<String>>,
}

/// Why a parent is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadParent {
    #[error("the parent of owner `{owner}` is `{parent}` and cannot be changed: leave `parent` out, or give that one")]
    Another { owner: String, parent: String },
    #[error("owner `{owner}` cannot be its own ancestor: give a parent that is not its descendant")]
    Cycle { owner: String },
    #[error("owner `{owner}` would have more than {MAX_DEPTH} ancestors: give a parent higher up")]
    TooDeep { owner: String },
    #[error(
        "owner `{owner}` cannot have a parent: {MAX_CHILDREN} owners have one, which is the maximum; reuse an owner or leave `parent` out"
    )]
    TooMany { owner: String },
}

impl Owners {
    pub fn parent(&self, owner: &str) -> Option<&str> {
        self.parents.get(owner).map(String::as_str)
    }

    /// The parent, its parent, and so on, nearest first.
    pub fn ancestors(&self, owner: &str) -> Vec<String> {
        let mut chain = Vec::new();
        let mut at = owner;
        while let Some(parent) = self.parent(at)
            && chain.len() < MAX_DEPTH
        {
            chain.push(parent.to_owned());
            at = parent;
        }
        chain
    }

    /// Whether `viewer` sees the processes of `owner`.
    pub fn sees(&self, viewer: &str, owner: &str) -> bool {
        viewer == owner || self.ancestors(owner).iter().any(|ancestor| ancestor == viewer)
    }

    /// The viewer itself and all its descendants.
    pub fn view_of(&self, viewer: &str) -> Vec<String> {
        let mut view = vec![viewer.to_owned()];
        let mut at = 0;
        while let Some(owner) = view.get(at) {
            let children = self.children.get(owner).cloned().unwrap_or_default();
            view.extend(children);
            at += 1;
        }
        view
    }

    /// Every owner that has a parent or is one.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.parents.keys().chain(self.children.keys()).map(String::as_str)
    }

    /// Sets the parent of an owner. The first parent is final.
    pub fn try_add(&mut self, owner: &str, parent: &str) -> Result<(), BadParent> {
        match self.parent(owner) {
            Some(known) if known == parent => return Ok(()),
            Some(known) => return Err(BadParent::Another { owner: owner.to_owned(), parent: known.to_owned() }),
            None => {}
        }
        if self.parents.len() >= MAX_CHILDREN {
            return Err(BadParent::TooMany { owner: owner.to_owned() });
        }
        if self.sees(owner, parent) {
            return Err(BadParent::Cycle { owner: owner.to_owned() });
        }
        if self.ancestors(parent).len() + 1 + self.height(owner) > MAX_DEPTH {
            return Err(BadParent::TooDeep { owner: owner.to_owned() });
        }
        self.parents.insert(owner.to_owned(), parent.to_owned());
        self.children.entry(parent.to_owned()).or_default().insert(owner.to_owned());
        Ok(())
    }

    /// Adds ancestors read from a record, up to the first that contradicts what is known.
    pub fn add_ancestors(&mut self, owner: &str, ancestors: &[String]) {
        let mut at = owner;
        for parent in ancestors {
            if check_name("parent", parent).is_err() || self.try_add(at, parent).is_err() {
                return;
            }
            at = parent;
        }
    }

    /// Generations below an owner.
    fn height(&self, owner: &str) -> usize {
        let children = self.children.get(owner).into_iter().flatten();
        children.map(|child| 1 + self.height(child)).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_owners_with_a_parent_is_bounded() {
        let mut owners = Owners::default();
        for number in 0..MAX_CHILDREN {
            assert_eq!(owners.try_add(&number.to_string(), "parent"), Ok(()));
        }
        assert!(matches!(owners.try_add("another", "parent"), Err(BadParent::TooMany { .. })));
        assert_eq!(owners.try_add("7", "parent"), Ok(()), "it has this parent already");
    }

    fn family() -> Owners {
        let mut owners = Owners::default();
        for (owner, parent) in [("child", "chat"), ("grandchild", "child"), ("sibling", "chat")] {
            owners.try_add(owner, parent).expect("accepted");
        }
        owners
    }

    #[test]
    fn an_owner_sees_itself_and_its_descendants_and_not_the_reverse() {
        let owners = family();
        assert!(owners.sees("chat", "chat") && owners.sees("chat", "grandchild") && owners.sees("child", "grandchild"));
        assert!(!owners.sees("child", "chat") && !owners.sees("child", "sibling") && !owners.sees("unknown", "chat"));
        assert_eq!(owners.view_of("chat"), ["chat", "child", "sibling", "grandchild"]);
        assert_eq!(owners.view_of("unknown"), ["unknown"]);
        assert_eq!(owners.ancestors("grandchild"), ["child", "chat"]);
    }

    #[test]
    fn the_first_parent_is_final_and_cycles_are_refused() {
        let mut owners = family();
        assert_eq!(owners.try_add("child", "chat"), Ok(()));
        assert!(matches!(owners.try_add("child", "other"), Err(BadParent::Another { .. })));
        assert!(matches!(owners.try_add("chat", "grandchild"), Err(BadParent::Cycle { .. })));
        assert!(matches!(owners.try_add("me", "me"), Err(BadParent::Cycle { .. })));
    }

    #[test]
    fn the_depth_is_bounded() {
        let mut owners = Owners::default();
        for n in 0..MAX_DEPTH {
            owners.try_add(&format!("o{}", n + 1), &format!("o{n}")).expect("accepted");
        }
        assert!(matches!(owners.try_add("deeper", &format!("o{MAX_DEPTH}")), Err(BadParent::TooDeep { .. })));
        assert!(matches!(owners.try_add("o0", "above"), Err(BadParent::TooDeep { .. })));
    }

    #[test]
    fn recorded_ancestors_are_added_up_to_the_first_contradiction() {
        let mut owners = family();
        owners.add_ancestors("new", &["child".into(), "chat".into(), "top".into()]);
        assert!(owners.sees("top", "new"));
        owners.add_ancestors("child", &["stranger".into()]);
        assert!(!owners.sees("stranger", "child"));
    }
}
