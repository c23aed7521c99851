//! The list of processes as a tree of owners, with filter and selection.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use pinfold_api::types::{Agent, Owner, Record, Sample, Status};

use crate::list::{ListCursor, Move};
use crate::text::one_line;

/// Samples of one process that are kept for its bars.
pub(crate) const MAX_SAMPLES: usize = 8;
/// The least memory that a full bar stands for; more if a listed process uses more.
const MEMORY_SCALE: u64 = 256 << 20;
/// The label of a process in which a hosted agent runs: the agent's id.
const AGENT_LABEL: &str = "pinfold.agent";
/// Ended processes that are requested at first; more when the list is scrolled to its end.
pub(crate) const ENDED_STEP: u32 = 100;
/// Ended processes in memory; older ones are found with `pinfold ps`.
pub(crate) const MAX_ENDED: u32 = 2000;
/// The deepest owner that is indented further.
const MAX_DEPTH: usize = 8;

/// A row of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Row {
    Owner {
        name: String,
        depth: usize,
        live: usize,
    },
    Process {
        index: Index,
        depth: usize,
    },
    /// Ended processes that are not in memory.
    More {
        count: u64,
    },
}

/// Where a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Index {
    Live(usize),
    Ended(usize),
}

/// What identifies a row over refreshes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RowKey {
    Owner(String),
    Process(String),
    More,
}

#[derive(Debug, Default)]
pub(crate) struct Processes {
    pub(crate) live: Vec<Record>,
    pub(crate) ended: Vec<Record>,
    pub(crate) ended_total: u64,
    pub(crate) ended_wanted: u32,
    pub(crate) hide_ended: bool,
    pub(crate) owners: Vec<Owner>,
    pub(crate) samples: HashMap<String, VecDeque<Sample>>,
    /// The memory that a full bar stands for: the same for all, so that bars can be compared.
    pub(crate) memory_scale: u64,
    /// Names of agents by id: of the living ones, and of stopped ones while one of their processes is listed.
    agent_names: HashMap<String, String>,
    pub(crate) rows: Vec<Row>,
    pub(crate) cursor: ListCursor,
    selected: Option<RowKey>,
    /// Only rows with this text.
    pub(crate) filter: String,
    /// Only this owner and its descendants.
    pub(crate) owner: Option<String>,
    /// Whether the list was read at all.
    pub(crate) loaded: bool,
}

impl Processes {
    pub(crate) fn new() -> Self {
        Processes { ended_wanted: ENDED_STEP, ..Processes::default() }
    }

    /// Takes a fresh list of the live ones, and remembers what they use.
    pub(crate) fn take_live(&mut self, live: Vec<Record>) {
        let ids: HashSet<&str> = live.iter().map(|record| record.id.as_str()).collect();
        self.samples.retain(|id, _| ids.contains(id.as_str()));
        for record in &live {
            let Some(sample) = &record.sample else { continue };
            let ring = self.samples.entry(record.id.clone()).or_default();
            if ring.back().is_none_or(|last| last.at != sample.at) {
                ring.push_back(sample.clone());
                if ring.len() > MAX_SAMPLES {
                    ring.pop_front();
                }
            }
        }
        let memory = self.samples.values().flatten().map(|sample| sample.memory_bytes);
        self.memory_scale = memory.max().unwrap_or(0).max(MEMORY_SCALE);
        self.live = live;
        self.loaded = true;
    }

    /// Takes the names of the living agents; whether a row may be called otherwise now.
    pub(crate) fn take_agents(&mut self, agents: &[Agent]) -> bool {
        let listed: HashSet<&str> = self.live.iter().chain(&self.ended).filter_map(agent_of).collect();
        let mut names = std::mem::take(&mut self.agent_names);
        let before = names.clone();
        names.retain(|id, _| listed.contains(id.as_str()));
        for agent in agents {
            let name = agent.name.clone().unwrap_or_else(|| format!("{} agent {}", agent.kind, agent.id));
            names.insert(agent.id.clone(), name);
        }
        self.agent_names = names;
        self.agent_names != before
    }

    /// The name of a process, else that of the agent that runs in it.
    pub(crate) fn name<'a>(&'a self, record: &'a Record) -> Option<&'a str> {
        let of_agent = || {
            // An agent that stopped before this program started is known only by what its process was started for.
            let known = self.agent_names.get(agent_of(record)?);
            known.or(record.intent.as_ref()).map(String::as_str)
        };
        record.name.as_deref().or_else(of_agent)
    }

    /// What a process is called in a list: its name, else its command.
    pub(crate) fn title(&self, record: &Record) -> String {
        one_line(self.name(record).unwrap_or(&record.command))
    }

    /// Takes a closer look at one of them: lists are read without trees.
    pub(crate) fn observe(&mut self, record: Record) {
        if let Some(known) = self.live.iter_mut().find(|known| known.id == record.id) {
            let sample = known.sample.take();
            *known = Record { sample, ..record };
        }
    }

    pub(crate) fn get(&self, index: Index) -> &Record {
        match index {
            Index::Live(index) => &self.live[index],
            Index::Ended(index) => &self.ended[index],
        }
    }

    pub(crate) fn find(&self, id: &str) -> Option<&Record> {
        self.live.iter().chain(&self.ended).find(|record| record.id == id)
    }

    /// The process on the selected row.
    pub(crate) fn selected(&self) -> Option<&Record> {
        match self.rows.get(self.cursor.index)? {
            Row::Process { index, .. } => Some(self.get(*index)),
            Row::Owner { .. } | Row::More { .. } => None,
        }
    }

    pub(crate) fn selected_row(&self) -> Option<&Row> {
        self.rows.get(self.cursor.index)
    }

    /// The live processes below an owner's row: what a stop of that row stops.
    pub(crate) fn live_below(&self, owner: &str) -> Vec<&Record> {
        let family = self.family(owner);
        self.live.iter().filter(|record| family.contains(record.owner.as_str()) && self.fits(record)).collect()
    }

    /// The rows again, from what is known; the selected row stays selected.
    pub(crate) fn rebuild(&mut self, page: usize) {
        self.rows = self.build();
        let selected = self.selected.take();
        let found = selected.as_ref().and_then(|key| self.rows.iter().position(|row| self.key(row) == *key));
        if let Some(index) = found {
            self.cursor.index = index;
        } else if selected.is_none() {
            // At first the newest process is selected, not its owner.
            let first = self.rows.iter().position(|row| matches!(row, Row::Process { .. }));
            self.cursor.index = first.unwrap_or(0);
        }
        self.fit(page);
    }

    pub(crate) fn go(&mut self, movement: Move, page: usize) {
        self.cursor.go(movement, self.rows.len(), page);
        self.fit(page);
    }

    pub(crate) fn select(&mut self, index: usize, page: usize) {
        self.cursor.index = index;
        self.fit(page);
    }

    /// Keeps the position on the screen, and asks for more ended ones at the end.
    pub(crate) fn fit(&mut self, page: usize) {
        self.cursor.fit(self.rows.len(), page);
        self.selected = self.rows.get(self.cursor.index).map(|row| self.key(row));
        let at_end = self.cursor.index + 1 >= self.rows.len();
        if at_end && self.ended.len() as u64 >= u64::from(self.ended_wanted) {
            self.ended_wanted = (self.ended_wanted + 4 * ENDED_STEP).min(MAX_ENDED);
        }
    }

    /// The selected row changes with the data only if it is gone.
    fn key(&self, row: &Row) -> RowKey {
        match row {
            Row::Owner { name, .. } => RowKey::Owner(name.clone()),
            Row::Process { index, .. } => RowKey::Process(self.get(*index).id.clone()),
            Row::More { .. } => RowKey::More,
        }
    }

    fn fits(&self, record: &Record) -> bool {
        if self.filter.is_empty() {
            return true;
        }
        let wanted = self.filter.to_lowercase();
        let has = |text: &str| text.to_lowercase().contains(&wanted);
        has(&record.id)
            || has(&record.command)
            || has(&record.owner)
            || has(&self.title(record))
            || has(status_word(record.status))
            || record.labels.iter().any(|(key, value)| has(&format!("{key}={value}")))
    }

    /// An owner and its descendants.
    fn family<'a>(&'a self, owner: &'a str) -> HashSet<&'a str> {
        let mut family = HashSet::from([owner]);
        let mut next = vec![owner];
        while let Some(parent) = next.pop() {
            let children = self.owners.iter().filter(|child| child.parent.as_deref() == Some(parent));
            next.extend(children.map(|child| child.owner.as_str()).filter(|child| family.insert(child)));
        }
        family
    }

    fn build(&self) -> Vec<Row> {
        let family = self.owner.as_deref().map(|owner| self.family(owner));
        let shown = |record: &Record| {
            self.fits(record) && family.as_ref().is_none_or(|family| family.contains(record.owner.as_str()))
        };
        let mut by_owner: BTreeMap<&str, Vec<Index>> = BTreeMap::new();
        let live = self.live.iter().enumerate().map(|(index, record)| (record, Index::Live(index)));
        let ended = self.ended.iter().enumerate().map(|(index, record)| (record, Index::Ended(index)));
        for (record, index) in live.chain(ended.filter(|_| !self.hide_ended)).filter(|(record, _)| shown(record)) {
            by_owner.entry(&record.owner).or_default().push(index);
        }
        let tree = OwnerTree::new(&by_owner, &self.owners);
        let mut rows = Vec::new();
        for root in &tree.roots {
            self.add_owner(root, 0, &tree, &by_owner, &mut rows);
        }
        let missing = self.ended_total.saturating_sub(self.ended.len() as u64);
        if missing > 0 && !self.hide_ended && self.filter.is_empty() && self.owner.is_none() {
            rows.push(Row::More { count: missing });
        }
        rows
    }

    fn add_owner(
        &self,
        name: &str,
        depth: usize,
        tree: &OwnerTree<'_>,
        by_owner: &BTreeMap<&str, Vec<Index>>,
        rows: &mut Vec<Row>,
    ) {
        let own = by_owner.get(name).map(Vec::as_slice).unwrap_or_default();
        let live = own.iter().filter(|index| matches!(index, Index::Live(_))).count();
        rows.push(Row::Owner { name: name.to_owned(), depth: depth.min(MAX_DEPTH), live });
        for index in own {
            rows.push(Row::Process { index: *index, depth: depth.min(MAX_DEPTH) });
        }
        for child in tree.children.get(name).into_iter().flatten() {
            self.add_owner(child, depth + 1, tree, by_owner, rows);
        }
    }
}

/// The owners that have something to show, and their ancestors, as a tree.
struct OwnerTree<'a> {
    roots: Vec<&'a str>,
    children: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> OwnerTree<'a> {
    fn new(by_owner: &BTreeMap<&'a str, Vec<Index>>, owners: &'a [Owner]) -> Self {
        let parents: HashMap<&str, &str> =
            owners.iter().filter_map(|owner| Some((owner.owner.as_str(), owner.parent.as_deref()?))).collect();
        let mut needed: BTreeSet<&str> = BTreeSet::new();
        for owner in by_owner.keys().copied() {
            let mut current = Some(owner);
            while let Some(name) = current.filter(|name| needed.insert(name)) {
                current = parents.get(name).copied();
            }
        }
        let mut tree = OwnerTree { roots: Vec::new(), children: BTreeMap::new() };
        for name in needed {
            match parents.get(name).filter(|parent| !is_below(parent, name, &parents)) {
                Some(parent) => tree.children.entry(parent).or_default().push(name),
                None => tree.roots.push(name),
            }
        }
        tree
    }
}

/// Whether an owner is below another one, or that one itself. Guards against a cycle of parents.
fn is_below(owner: &str, ancestor: &str, parents: &HashMap<&str, &str>) -> bool {
    let mut current = Some(owner);
    for _ in 0..=parents.len() {
        match current {
            Some(name) if name == ancestor => return true,
            Some(name) => current = parents.get(name).copied(),
            None => return false,
        }
    }
    true
}

/// The id of the agent that runs in a process.
fn agent_of(record: &Record) -> Option<&str> {
    record.labels.get(AGENT_LABEL).map(String::as_str)
}

/// A status in one word.
pub(crate) fn status_word(status: Status) -> &'static str {
    match status {
        Status::Starting => "starting",
        Status::Running => "running",
        Status::Lingering => "lingering",
        Status::Finished => "finished",
        Status::Lost => "lost",
    }
}
