//! Whose descendant a process is: the way up from a process to init.
//!
//! A parent may end, and its pid may become another process's, while we climb. So each step is checked: after the parent
//! was read, the child must still name it as its parent. An orphan goes to the nearest subreaper above it, so a climb that
//! is begun again still meets every subreaper that it would have met.

use std::io;

use crate::proc::{self, Stat};

/// No climb is longer: pid namespaces nest 32 deep, and nobody nests thousands of shells.
const MAX_DEPTH: usize = 4096;
/// How often a climb is begun again because an ancestor ended under it.
const MAX_TRIES: usize = 64;

/// The ancestors of a process, its parent first, as far up as this pid namespace shows them. An error if the process is
/// gone, or if its ancestors change faster than they can be read.
pub fn ancestors(pid: u32) -> io::Result<Vec<Stat>> {
    for _ in 0..MAX_TRIES {
        if let Some(ancestors) = try_climb(proc::stat(pid)?)? {
            return Ok(ancestors);
        }
    }
    Err(io::Error::other(format!("the ancestors of process {pid} change while they are read")))
}

/// `None` if the way changed under us.
fn try_climb(from: Stat) -> io::Result<Option<Vec<Stat>>> {
    let mut way: Vec<Stat> = Vec::new();
    let mut child = from;
    while child.ppid != 0 && way.len() < MAX_DEPTH {
        let parent = match proc::stat(child.ppid) {
            Ok(parent) => parent,
            Err(error) if proc::is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        };
        match proc::stat(child.pid) {
            Ok(again) if again.start_time == child.start_time && again.ppid == parent.pid => {}
            Ok(_) => return Ok(None),
            Err(error) if proc::is_gone(&error) => return Ok(None),
            Err(error) => return Err(error),
        }
        way.push(parent.clone());
        child = parent;
    }
    Ok(Some(way))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_up_begins_with_the_parent_and_ends_at_the_top() {
        let own = proc::stat(std::process::id()).expect("own stat");
        let way = ancestors(own.pid).expect("a way up");
        assert_eq!(way.first().map(|parent| parent.pid), Some(own.ppid));
        assert_eq!(way.last().map(|top| top.ppid), Some(0));
        assert!(way.windows(2).all(|pair| pair[0].ppid == pair[1].pid));
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        let mut child = std::process::Command::new("true").spawn().expect("a child");
        let pid = child.id();
        child.wait().expect("it ended");
        assert!(proc::is_gone(&ancestors(pid).expect_err("gone")));
    }
}
