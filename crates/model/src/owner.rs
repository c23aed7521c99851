//! Owners and their parents: who sees whose processes.
//!
//! An owner sees itself and its descendants, and nothing else. Whoever is not known to be a descendant is none: a
//! gap in what is known makes a view smaller, never wider.

use std::collections::{BTreeMap, BTreeSet};

use crate::spec::check_name;

/// Parents, grandparents and so on: a chain is at most this long.
pub const DEPTH_MOST: usize = 16;

/// Owners with a parent; another is refused one.
pub const CHILDREN_MOST: usize = 100_000;

/// Who the parent of each owner is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owners {
    parents: BTreeMap<String, String>,
    children: BTreeMap<String, BTreeSet<String>>,
}

/// Why a parent is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadParent {
    #[error("the parent of owner `{owner}` is `{parent}` and stays so: leave `parent` out, or name that one")]
    Another { owner: String, parent: String },
    #[error("owner `{owner}` cannot be below itself: name a parent that is not its descendant")]
    Cycle { owner: String },
    #[error("owner `{owner}` would be more than {DEPTH_MOST} generations deep")]
    TooDeep { owner: String },
    #[error("owner `{owner}` cannot have a parent: {CHILDREN_MOST} owners have one, which is the most")]
    TooMany { owner: String },
}

impl Owners {
    /// The parent, if there is one.
    pub fn parent(&self, owner: &str) -> Option<&str> {
        self.parents.get(owner).map(String::as_str)
    }

    /// The parent, its parent, and so on.
    pub fn ancestors(&self, owner: &str) -> Vec<String> {
        let mut chain = Vec::new();
        let mut at = owner;
        while let Some(parent) = self.parent(at)
            && chain.len() < DEPTH_MOST
        {
            chain.push(parent.to_owned());
            at = parent;
        }
        chain
    }

    /// Whether this owner's processes are in the view of that one.
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

    /// Says who the parent of an owner is. The first one said stands.
    pub fn try_add(&mut self, owner: &str, parent: &str) -> Result<(), BadParent> {
        match self.parent(owner) {
            Some(known) if known == parent => return Ok(()),
            Some(known) => return Err(BadParent::Another { owner: owner.to_owned(), parent: known.to_owned() }),
            None => {}
        }
        if self.parents.len() >= CHILDREN_MOST {
            return Err(BadParent::TooMany { owner: owner.to_owned() });
        }
        if self.sees(owner, parent) {
            return Err(BadParent::Cycle { owner: owner.to_owned() });
        }
        if self.ancestors(parent).len() + 1 + self.height(owner) > DEPTH_MOST {
            return Err(BadParent::TooDeep { owner: owner.to_owned() });
        }
        self.parents.insert(owner.to_owned(), parent.to_owned());
        self.children.entry(parent.to_owned()).or_default().insert(owner.to_owned());
        Ok(())
    }

    /// Takes up a chain that was written down. What contradicts what is known is left out.
    pub fn learn(&mut self, owner: &str, ancestors: &[String]) {
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
    fn as_many_have_a_parent_as_there_may_be_and_no_more() {
        let mut owners = Owners::default();
        for number in 0..CHILDREN_MOST {
            assert_eq!(owners.try_add(&number.to_string(), "parent"), Ok(()));
        }
        assert!(matches!(owners.try_add("another", "parent"), Err(BadParent::TooMany { .. })));
        assert_eq!(owners.try_add("7", "parent"), Ok(()), "it is one of them");
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
        assert!(!owners.sees("child", "chat") && !owners.sees("child", "sibling") && !owners.sees("nobody", "chat"));
        assert_eq!(owners.view_of("chat"), ["chat", "child", "sibling", "grandchild"]);
        assert_eq!(owners.view_of("nobody"), ["nobody"]);
        assert_eq!(owners.ancestors("grandchild"), ["child", "chat"]);
    }

    #[test]
    fn the_first_parent_stands_and_no_cycle_is_made() {
        let mut owners = family();
        assert_eq!(owners.try_add("child", "chat"), Ok(()));
        assert!(matches!(owners.try_add("child", "other"), Err(BadParent::Another { .. })));
        assert!(matches!(owners.try_add("chat", "grandchild"), Err(BadParent::Cycle { .. })));
        assert!(matches!(owners.try_add("me", "me"), Err(BadParent::Cycle { .. })));
    }

    #[test]
    fn a_chain_has_an_end() {
        let mut owners = Owners::default();
        for n in 0..DEPTH_MOST {
            owners.try_add(&format!("o{}", n + 1), &format!("o{n}")).expect("accepted");
        }
        assert!(matches!(owners.try_add("deeper", &format!("o{DEPTH_MOST}")), Err(BadParent::TooDeep { .. })));
        assert!(matches!(owners.try_add("o0", "above"), Err(BadParent::TooDeep { .. })));
    }

    #[test]
    fn a_chain_that_was_written_down_is_taken_up_as_far_as_it_fits() {
        let mut owners = family();
        owners.learn("new", &["child".into(), "chat".into(), "top".into()]);
        assert!(owners.sees("top", "new"));
        owners.learn("child", &["stranger".into()]);
        assert!(!owners.sees("stranger", "child"));
    }
}
