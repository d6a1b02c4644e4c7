//! What the file system should hold: names and attributes after each operation, and what each piece
//! of a file may be.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Bytes of the unit in which files are written here: smaller than a sector.
pub const CELL: usize = 64;

/// An inode, identified by its owner's number. The root is 0.
pub type Id = u32;

/// What a cell of a file holds when version `version` of it was written; never zeroes.
pub fn cell_bytes(id: Id, version: u32, cell: usize) -> [u8; CELL] {
    let word = u64::from(version) << 32 | u64::from(id & 0xFFFF) << 16 | cell as u64 & 0xFFFF;
    let mut bytes = [0; CELL];
    for part in bytes.chunks_exact_mut(8) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The version of a cell; 0 is a hole, `None` is nothing that was ever written there.
pub fn version_of(id: Id, cell: usize, bytes: &[u8]) -> Option<u32> {
    let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let version = (word >> 32) as u32;
    let expected = match word {
        0 => [0; CELL],
        _ => cell_bytes(id, version, cell),
    };
    (bytes == expected).then_some(version)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    File,
    Dir,
    Symlink(Vec<u8>),
}

#[derive(Clone, Debug)]
pub struct Node {
    pub kind: Kind,
    pub mode: u16,
    /// Length and byte of each value.
    pub xattrs: BTreeMap<String, (usize, u8)>,
}

/// Names and attributes of all.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    pub nodes: BTreeMap<Id, Node>,
    pub names: BTreeMap<(Id, String), Id>,
}

/// A tree as a set of sentences, the same for two trees exactly if they are.
pub type Facts = BTreeSet<String>;

pub fn name_fact(parent: Id, name: &str, child: Id) -> String {
    format!("{parent}/{name} is {child}")
}

pub fn node_fact(id: Id, node: &Node, links: usize) -> String {
    let (kind, mode) = (&node.kind, node.mode);
    format!("{id}: {kind:?} {mode:o} {links} links {:?}", node.xattrs)
}

pub fn hash_of(facts: &Facts) -> u64 {
    let mut hasher = DefaultHasher::new();
    facts.hash(&mut hasher);
    hasher.finish()
}

impl Tree {
    pub fn links(&self, id: Id) -> usize {
        match self.nodes[&id].kind {
            Kind::Dir => {
                let inside = self
                    .names
                    .range((id, String::new())..(id + 1, String::new()));
                2 + inside.filter(|(_, child)| self.is_dir(**child)).count()
            }
            _ => self.names.values().filter(|&&child| child == id).count(),
        }
    }

    pub fn is_dir(&self, id: Id) -> bool {
        id == 0 || self.nodes[&id].kind == Kind::Dir
    }

    pub fn is_empty(&self, dir: Id) -> bool {
        let inside = (dir, String::new())..(dir + 1, String::new());
        self.names.range(inside).next().is_none()
    }

    /// One of the names of an inode.
    pub fn name_of(&self, id: Id) -> Option<&(Id, String)> {
        self.names
            .iter()
            .find(|(_, child)| **child == id)
            .map(|(name, _)| name)
    }

    /// Whether `dir` is `outer` or lies in it.
    pub fn is_inside(&self, dir: Id, outer: Id) -> bool {
        let mut at = dir;
        while at != outer {
            match self.name_of(at) {
                Some((parent, _)) => at = *parent,
                None => return false,
            }
        }
        true
    }

    pub fn facts(&self) -> Facts {
        let mut facts = Facts::new();
        for ((parent, name), child) in &self.names {
            facts.insert(name_fact(*parent, name, *child));
            facts.insert(node_fact(*child, &self.nodes[child], self.links(*child)));
        }
        facts
    }
}

/// What an operation does to the data of files.
#[derive(Clone, Debug)]
pub enum Effect {
    None,
    /// Cells get a version; the file grows to their end.
    Write {
        id: Id,
        from: usize,
        len: usize,
        version: u32,
    },
    /// Cells become zero, the size stays.
    Zero {
        id: Id,
        from: usize,
        to: usize,
    },
    Resize {
        id: Id,
        cells: usize,
    },
}

/// What is durable when an operation has returned.
#[derive(Clone, Debug)]
pub enum Durable {
    Nothing,
    /// The data of a file, and names and attributes as they were after an operation.
    File {
        id: Id,
        names: usize,
    },
    All,
}

/// One operation, for the oracle.
#[derive(Clone, Debug)]
pub struct Step {
    pub what: String,
    pub effect: Effect,
    pub durable: Durable,
    pub tree: Tree,
    pub hash: u64,
}

/// What a file may hold.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    /// What was last made durable.
    floor: Vec<u32>,
    current: Vec<u32>,
    /// What else each cell was given since.
    later: BTreeMap<usize, Vec<u32>>,
    /// Sizes it had since.
    sizes: (usize, usize),
}

impl Contents {
    fn set(&mut self, cell: usize, version: u32) {
        self.current[cell] = version;
        self.later.entry(cell).or_default().push(version);
    }

    fn resize(&mut self, cells: usize) {
        for cell in cells..self.current.len() {
            self.set(cell, 0);
        }
        self.current.resize(cells, 0);
        self.sizes = (self.sizes.0.min(cells), self.sizes.1.max(cells));
    }

    fn apply(&mut self, effect: &Effect) {
        match *effect {
            Effect::None => {}
            Effect::Write {
                from, len, version, ..
            } => {
                if from + len > self.current.len() {
                    self.resize(from + len);
                }
                (from..from + len).for_each(|cell| self.set(cell, version));
            }
            Effect::Zero { from, to, .. } => {
                let to = to.min(self.current.len());
                (from..to).for_each(|cell| self.set(cell, 0));
            }
            Effect::Resize { cells, .. } => self.resize(cells),
        }
    }

    fn settle(&mut self) {
        self.floor = self.current.clone();
        self.later.clear();
        self.sizes = (self.floor.len(), self.floor.len());
    }

    /// # Errors
    /// What of the bytes must not be.
    pub fn judge(&self, id: Id, bytes: &[u8]) -> Result<(), String> {
        let cells = bytes.len() / CELL;
        if !bytes.len().is_multiple_of(CELL) || cells < self.sizes.0 || cells > self.sizes.1 {
            let sizes = (self.sizes.0 * CELL, self.sizes.1 * CELL);
            return Err(format!("file {id}: {} bytes, not {sizes:?}", bytes.len()));
        }
        for (cell, bytes) in bytes.chunks_exact(CELL).enumerate() {
            let Some(version) = version_of(id, cell, bytes) else {
                return Err(format!("file {id}, cell {cell}: foreign bytes {bytes:x?}"));
            };
            let floor = self.floor.get(cell).copied().unwrap_or(0);
            let later = self.later.get(&cell);
            if version != floor && !later.is_some_and(|later| later.contains(&version)) {
                return Err(format!(
                    "file {id}, cell {cell}: version {version}, not {floor} or {later:?}"
                ));
            }
        }
        Ok(())
    }
}

/// What may be found after a power cut during a certain operation.
pub struct Oracle<'a> {
    steps: &'a [Step],
    /// The operation that runs.
    at: usize,
    /// The operation before which names must not go back.
    floor: usize,
    files: BTreeMap<Id, Contents>,
}

impl<'a> Oracle<'a> {
    pub fn new(steps: &'a [Step]) -> Self {
        Self {
            steps,
            at: 0,
            floor: 0,
            files: BTreeMap::new(),
        }
    }

    /// Operation `at` runs, all before it have returned.
    pub fn advance(&mut self, at: usize) {
        while self.at < at {
            match self.steps[self.at].durable {
                Durable::Nothing => {}
                Durable::File { id, names } => {
                    self.floor = self.floor.max(names);
                    self.files.entry(id).or_default().settle();
                }
                Durable::All => {
                    self.floor = self.at;
                    self.files.values_mut().for_each(Contents::settle);
                }
            }
            self.at += 1;
            let effect = &self.steps[self.at].effect;
            if let Effect::Write { id, .. } | Effect::Zero { id, .. } | Effect::Resize { id, .. } =
                effect
            {
                self.files.entry(*id).or_default().apply(effect);
            }
        }
    }

    /// # Errors
    /// How names or attributes differ from those after each operation that may be the last.
    pub fn judge_names(&self, found: &Facts) -> Result<(), String> {
        let hash = hash_of(found);
        let mut allowed = self.steps[self.floor..=self.at].iter().rev();
        if allowed.clone().any(|step| step.hash == hash) {
            return Ok(());
        }
        let earlier = self.steps[..self.floor]
            .iter()
            .rposition(|step| step.hash == hash);
        let nearest = allowed
            .by_ref()
            .min_by_key(|step| step.tree.facts().symmetric_difference(found).count())
            .unwrap();
        let facts = nearest.tree.facts();
        let missing: Vec<_> = facts.difference(found).collect();
        let surplus: Vec<_> = found.difference(&facts).collect();
        Err(format!(
            "names are as after no operation of {}..={} (as after {earlier:?}); nearest: {}: \
             missing {missing:#?}, surplus {surplus:#?}",
            self.floor, self.at, nearest.what
        ))
    }

    /// # Errors
    /// What of a file's bytes must not be.
    pub fn judge_file(&self, id: Id, bytes: &[u8]) -> Result<(), String> {
        match self.files.get(&id) {
            Some(contents) => contents.judge(id, bytes),
            None if bytes.is_empty() => Ok(()),
            None => Err(format!(
                "file {id} was never written, has {} bytes",
                bytes.len()
            )),
        }
    }

    /// What runs.
    pub fn what(&self) -> String {
        format!("operation {} ({})", self.at, self.steps[self.at].what)
    }
}
