//! Dependencies between processes: conditions, cycles, and the order of a stop.

use super::Definition;

/// What a dependency must have reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Condition {
    Started,
    Ready,
    /// It exited with code 0.
    Finished,
}

impl Condition {
    pub(super) fn parse(word: &str) -> Option<Self> {
        match word {
            "started" => Some(Condition::Started),
            "ready" => Some(Condition::Ready),
            "finished" => Some(Condition::Finished),
            _ => None,
        }
    }
}

/// A process that another needs first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// Its position in the project.
    pub(crate) on: usize,
    pub(crate) until: Condition,
}

/// The processes of a cycle in order, if there is one.
pub(super) fn find_cycle(processes: &[Definition]) -> Option<Vec<usize>> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        OnPath,
        Done,
    }
    let mut marks = vec![Mark::New; processes.len()];
    for root in 0..processes.len() {
        if marks[root] != Mark::New {
            continue;
        }
        // The path from the root, each with the number of its dependencies that were followed. No recursion: a file may
        // have thousands of processes.
        let mut path = vec![(root, 0)];
        marks[root] = Mark::OnPath;
        while let Some((at, followed)) = path.last_mut() {
            let Some(dependency) = processes[*at].depends_on.get(*followed) else {
                marks[*at] = Mark::Done;
                path.pop();
                continue;
            };
            *followed += 1;
            match marks[dependency.on] {
                Mark::Done => {}
                Mark::New => {
                    marks[dependency.on] = Mark::OnPath;
                    path.push((dependency.on, 0));
                }
                Mark::OnPath => {
                    return Some(path.iter().map(|(at, _)| *at).skip_while(|at| *at != dependency.on).collect());
                }
            }
        }
    }
    None
}

/// For each process the length of the longest chain of dependencies below it: 0 depends on nothing. A stop goes from the
/// largest to 0. The project must have no cycle.
pub(crate) fn depths(processes: &[Definition]) -> Vec<usize> {
    let mut depths = vec![0; processes.len()];
    // Each round makes at least one more depth final, so this ends after as many rounds as the longest chain.
    for _ in 0..processes.len() {
        let mut changed = false;
        for (position, process) in processes.iter().enumerate() {
            let depth = process.depends_on.iter().map(|dependency| depths[dependency.on] + 1).max().unwrap_or(0);
            changed |= std::mem::replace(&mut depths[position], depth) != depth;
        }
        if !changed {
            break;
        }
    }
    depths
}

#[cfg(test)]
mod tests {
    use pinfold_api::types::StartRequest;

    use super::*;

    fn project(edges: &[&[usize]]) -> Vec<Definition> {
        let dependency = |on: &usize| Dependency { on: *on, until: Condition::Started };
        let process = |edges: &&[usize]| Definition {
            name: String::new(),
            depends_on: edges.iter().map(dependency).collect(),
            request: StartRequest::default(),
        };
        edges.iter().map(process).collect()
    }

    #[test]
    fn a_cycle_is_found_wherever_it_is() {
        assert_eq!(find_cycle(&project(&[&[0]])), Some(vec![0]));
        assert_eq!(find_cycle(&project(&[&[1], &[2], &[3], &[1]])), Some(vec![1, 2, 3]));
        assert_eq!(find_cycle(&project(&[&[], &[0], &[0, 1], &[2, 0]])), None);
    }

    #[test]
    fn a_long_chain_has_no_cycle_and_its_depth() {
        let edges: Vec<Vec<usize>> = (0..2000).map(|at: usize| at.checked_sub(1).into_iter().collect()).collect();
        let processes = project(&edges.iter().map(Vec::as_slice).collect::<Vec<_>>());
        assert_eq!(find_cycle(&processes), None);
        assert_eq!(depths(&processes)[1999], 1999);
    }
}
