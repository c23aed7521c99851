//! Restart chains: what a restart needs and the record of a process does not contain. There is one file per chain, named
//! after the first process of the chain, until the chain ends. Each run in a chain is called a life.
//!
//! This is the only place where environment values are written to disk: with mode 0600, and removed with the chain.
//!
//! Invariant S9, *a chain's file is replaced as a whole*: after any crash, a reader finds either the old or the new
//! content, complete.

use std::collections::BTreeMap;
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;

use pinfold_model::id::ProcessId;
use serde::{Deserialize, Serialize};

use crate::layout::{DIRECTORY_MODE, Home, replace_file};

/// The version of a chain's file.
const CHAIN_FORMAT: u32 = 1;

/// The state of a chain that is not in the records of its processes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    format: u32,
    /// The process of the latest life (run of the chain). Its start may have failed.
    pub current: ProcessId,
    /// The life before it.
    pub previous: Option<ProcessId>,
    /// The environment of every life.
    pub env: BTreeMap<String, Option<String>>,
    /// The life that is being stopped by a restart request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<ProcessId>,
}

impl Chain {
    pub fn new(first: ProcessId, env: BTreeMap<String, Option<String>>) -> Self {
        Self { format: CHAIN_FORMAT, current: first, previous: None, env, asked: None }
    }

    /// The chain with a new current life.
    pub fn with_life(self, id: ProcessId, previous: ProcessId) -> Self {
        Self { previous: Some(previous), current: id, asked: None, ..self }
    }
}

/// Writes the file of the chain with this first life.
pub fn commit_chain(home: &Home, first: &ProcessId, chain: &Chain) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(home.chains()) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let json = serde_json::to_vec(chain).map_err(io::Error::other)?;
    replace_file(&home.chains().join(first.as_str()), &json, home.durability())
}

/// Removes the file of a chain that has ended.
pub fn remove_chain(home: &Home, first: &ProcessId) -> io::Result<()> {
    match std::fs::remove_file(home.chains().join(first.as_str())) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Every chain by its first life, or the error if its file cannot be read.
pub fn read_chains(home: &Home) -> Vec<(ProcessId, io::Result<Chain>)> {
    let Ok(entries) = std::fs::read_dir(home.chains()) else { return vec![] };
    let read = |entry: std::fs::DirEntry| {
        let first = ProcessId::parse(entry.file_name().to_str()?).ok()?;
        let chain = std::fs::read(entry.path()).and_then(|json| {
            let chain: Chain = serde_json::from_slice(&json).map_err(io::Error::other)?;
            if chain.format > CHAIN_FORMAT {
                return Err(io::Error::other("it was written by a newer pinfold: upgrade pinfold"));
            }
            Ok(chain)
        });
        Some((first, chain))
    };
    entries.flatten().filter_map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Scratch, id, mode_of};

    /// S9
    #[test]
    fn a_chain_is_read_back_is_private_and_can_be_removed() {
        let home = Scratch::home();
        assert!(read_chains(&home).is_empty());
        let env = [("TOKEN".to_owned(), Some("s3cret".to_owned())), ("GONE".to_owned(), None)].into();
        let chain = Chain::new(id(1), env);
        commit_chain(&home, &id(1), &chain).expect("written");
        let later = Chain { asked: Some(id(2)), ..chain.with_life(id(2), id(1)) };
        commit_chain(&home, &id(1), &later).expect("replaced");
        assert_eq!((later.current.clone(), later.previous.clone()), (id(2), Some(id(1))));
        let [(first, Ok(read))] = &read_chains(&home)[..] else { panic!("one chain") };
        assert_eq!((first, read), (&id(1), &later));
        assert_eq!(mode_of(&home.chains().join(id(1).as_str())), 0o600);
        assert_eq!(mode_of(&home.chains()), 0o700);
        std::fs::write(home.chains().join(id(3).as_str()), "{").expect("damage");
        assert_eq!(read_chains(&home).iter().filter(|(_, chain)| chain.is_ok()).count(), 1);
        remove_chain(&home, &id(1)).expect("removed");
        remove_chain(&home, &id(1)).expect("removed already");
    }
}
