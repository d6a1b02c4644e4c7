//! Random operations on a file system and on the model of it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use uext4::data::Fallocate;
use uext4::xattr::SetMode;
use uext4::{Creation, NewInode, OpenInode, OpenOptions, RenameMode, SetAttributes, Volume};
use uext4_blockdev::{BlockDevice, MemoryDevice, VirtualClock};
use uext4_testkit::SplitMix64;

use super::model::{CELL, Durable, Effect, Id, Kind, Node, Step, Tree, cell_bytes, hash_of};
use super::recorder::{Event, Recorder};

/// Inodes there are at most.
const INODES_MAX: usize = 40;
/// Cells of a file, at most.
const CELLS_MAX: usize = 1500;

/// What a run did: to the device, and to the model.
pub struct Run {
    pub events: Vec<(usize, Event)>,
    pub steps: Vec<Step>,
    /// What is on the device at the end.
    pub image: MemoryDevice,
}

struct Workload {
    fs: Volume,
    clock: Arc<VirtualClock>,
    random: SplitMix64,
    tree: Tree,
    /// Cells of each file.
    sizes: BTreeMap<Id, usize>,
    /// The operation that last changed names or attributes of an inode.
    changed: BTreeMap<Id, usize>,
    /// The operation that made it.
    made: BTreeMap<Id, usize>,
    held: Vec<OpenInode>,
    next: Id,
    /// The number of the operation that runs.
    at: usize,
}

/// An operation on the way to become a [`Step`].
struct Done {
    what: String,
    effect: Effect,
    durable: Durable,
}

fn named(what: String) -> Done {
    Done {
        what,
        effect: Effect::None,
        durable: Durable::Nothing,
    }
}

/// Does `count` operations on a copy of `image`, then unmounts.
pub fn run(image: &MemoryDevice, seed: u64, count: usize) -> Run {
    let device = Arc::new(Recorder::new(image));
    let clock = Arc::new(VirtualClock::new(1_700_000_000));
    let as_device: Arc<dyn BlockDevice> = Arc::clone(&device) as _;
    let options = OpenOptions::default();
    let fs = Volume::open(as_device, Arc::clone(&clock) as _, &options).unwrap();
    let mut workload = Workload {
        fs,
        clock,
        random: SplitMix64::new(seed),
        tree: Tree::default(),
        sizes: BTreeMap::new(),
        changed: BTreeMap::new(),
        made: BTreeMap::new(),
        held: Vec::new(),
        next: 1,
        at: 0,
    };
    let mut steps = vec![workload.step(named("mount".to_owned()))];
    while steps.len() <= count {
        workload.at = steps.len();
        device.operation.store(steps.len(), Relaxed);
        if let Some(done) = workload.operate() {
            steps.push(workload.step(done));
        }
    }
    device.operation.store(steps.len(), Relaxed);
    workload.held.clear();
    workload.fs.close().unwrap();
    steps.push(workload.step(Done {
        durable: Durable::All,
        ..named("unmount".to_owned())
    }));
    let events = device.take_events();
    Run {
        events,
        steps,
        image: device.image(),
    }
}

impl Workload {
    fn step(&self, done: Done) -> Step {
        Step {
            what: done.what,
            effect: done.effect,
            durable: done.durable,
            hash: hash_of(&self.tree.facts()),
            tree: self.tree.clone(),
        }
    }

    fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound as u64) as usize
    }

    /// One of all inodes with a name that are such.
    fn pick(&mut self, filter: impl Fn(&Tree, Id) -> bool) -> Option<Id> {
        let all: Vec<Id> = self.tree.nodes.keys().copied().collect();
        let fit: Vec<Id> = all
            .into_iter()
            .filter(|id| filter(&self.tree, *id))
            .collect();
        match fit.len() {
            0 => None,
            len => Some(fit[self.below(len)]),
        }
    }

    fn pick_file(&mut self) -> Option<Id> {
        self.pick(|tree, id| tree.nodes[&id].kind == Kind::File)
    }

    /// A directory, the root too.
    fn pick_dir(&mut self) -> Id {
        let dirs = self
            .tree
            .nodes
            .values()
            .filter(|node| node.kind == Kind::Dir);
        if self.random.below(dirs.count() as u64 + 1) == 0 {
            return 0;
        }
        self.pick(|tree, id| tree.is_dir(id)).unwrap_or(0)
    }

    /// A name of an inode that is no directory.
    fn pick_name(&mut self) -> Option<((Id, String), Id)> {
        let id = self.pick(|tree, id| !tree.is_dir(id))?;
        let names: Vec<(Id, String)> = self
            .tree
            .names
            .iter()
            .filter(|(_, child)| **child == id)
            .map(|(name, _)| name.clone())
            .collect();
        let len = names.len();
        Some((names[self.below(len)].clone(), id))
    }

    fn new_name(&mut self) -> String {
        let long = self.random.below(4) == 0;
        let tail = if long { "-".repeat(80) } else { String::new() };
        format!("n{}{tail}", self.at)
    }

    fn open(&self, id: Id) -> OpenInode {
        if id == 0 {
            return self.fs.root().unwrap();
        }
        let (parent, name) = self.tree.name_of(id).unwrap();
        self.open(*parent).lookup(name.as_bytes()).unwrap()
    }

    fn note(&mut self, ids: &[Id]) {
        for id in ids {
            self.changed.insert(*id, self.at);
        }
    }

    fn operate(&mut self) -> Option<Done> {
        match self.below(100) {
            0..14 => self.create(),
            14..17 => self.link(),
            17..26 => self.unlink(),
            26..28 => self.rmdir(),
            28..38 => self.rename(),
            38..52 => self.write(),
            52..58 => self.truncate(),
            58..65 => self.fallocate(),
            65..71 => self.set_xattr(),
            71..74 => self.chmod(),
            74..86 => self.fsync(),
            86..89 => {
                self.fs.sync().unwrap();
                Some(Done {
                    durable: Durable::All,
                    ..named("sync".to_owned())
                })
            }
            89..93 => {
                let seconds = self.random.below(40);
                self.clock.advance(Duration::from_secs(seconds));
                self.fs.tick().unwrap();
                Some(named("tick".to_owned()))
            }
            93..97 => {
                let id = self.pick_file()?;
                let file = self.open(id);
                self.held.push(file);
                Some(named(format!("open {id}")))
            }
            _ => {
                let len = self.held.len();
                if len == 0 {
                    return None;
                }
                let at = self.below(len);
                drop(self.held.swap_remove(at));
                Some(named("close".to_owned()))
            }
        }
    }

    fn create(&mut self) -> Option<Done> {
        if self.tree.nodes.len() >= INODES_MAX {
            return None;
        }
        let (dir, name, id) = (self.pick_dir(), self.new_name(), self.next);
        self.next += 1;
        let kind = match self.below(8) {
            0 | 1 => Kind::Dir,
            2 => {
                let len = [5, 59, 60, 300][self.below(4)];
                Kind::Symlink(vec![b'a' + (id % 26) as u8; len])
            }
            _ => Kind::File,
        };
        let new = match &kind {
            Kind::Dir => NewInode::Directory,
            Kind::File => NewInode::File,
            Kind::Symlink(target) => NewInode::Symlink(target),
        };
        let mode = if matches!(kind, Kind::Symlink(_)) {
            0o777
        } else {
            0o640
        };
        let creation = Creation {
            mode,
            umask: 0,
            uid: id,
            gid: 7,
        };
        let parent = self.open(dir);
        parent.create(name.as_bytes(), new, &creation).unwrap();
        let what = format!("create {dir}/{name} as {id}, {kind:?}");
        if kind == Kind::File {
            self.sizes.insert(id, 0);
        }
        let xattrs = BTreeMap::new();
        self.tree.nodes.insert(id, Node { kind, mode, xattrs });
        self.tree.names.insert((dir, name), id);
        self.made.insert(id, self.at);
        self.note(&[dir, id]);
        Some(named(what))
    }

    fn link(&mut self) -> Option<Done> {
        let (id, dir, name) = (self.pick_name()?.1, self.pick_dir(), self.new_name());
        let parent = self.open(dir);
        self.open(id).link(&parent, name.as_bytes()).unwrap();
        let what = format!("link {id} as {dir}/{name}");
        self.tree.names.insert((dir, name), id);
        self.note(&[dir, id]);
        Some(named(what))
    }

    /// A name is gone from the model.
    fn forget(&mut self, id: Id) {
        if self.tree.name_of(id).is_none() {
            self.tree.nodes.remove(&id);
        }
    }

    fn unlink(&mut self) -> Option<Done> {
        let ((dir, name), id) = self.pick_name()?;
        self.open(dir).unlink(name.as_bytes()).unwrap();
        let what = format!("unlink {dir}/{name}, {id}");
        self.tree.names.remove(&(dir, name));
        self.forget(id);
        self.note(&[dir, id]);
        Some(named(what))
    }

    fn rmdir(&mut self) -> Option<Done> {
        let id = self.pick(|tree, id| tree.is_dir(id) && tree.is_empty(id))?;
        let (dir, name) = self.tree.name_of(id)?.clone();
        self.open(dir).rmdir(name.as_bytes()).unwrap();
        let what = format!("rmdir {dir}/{name}, {id}");
        self.tree.names.remove(&(dir, name));
        self.forget(id);
        self.note(&[dir]);
        Some(named(what))
    }

    fn rename(&mut self) -> Option<Done> {
        let ((from, old), id) = match self.below(4) {
            0 => {
                let dir = self.pick(|tree, id| tree.is_dir(id))?;
                (self.tree.name_of(dir)?.clone(), dir)
            }
            _ => self.pick_name()?,
        };
        let mode = match self.below(5) {
            0 => RenameMode::Exchange,
            _ => RenameMode::Replace,
        };
        let replaces = mode == RenameMode::Exchange || self.below(2) == 0;
        let (to, new) = if replaces && !self.tree.is_dir(id) {
            self.pick_name()?.0
        } else {
            (self.pick_dir(), self.new_name())
        };
        let target = self.tree.names.get(&(to, new.clone())).copied();
        let inside = self.tree.is_dir(id) && self.tree.is_inside(to, id);
        if inside || target == Some(id) || (mode == RenameMode::Exchange && target.is_none()) {
            return None;
        }
        let parent = self.open(to);
        let source = self.open(from);
        source
            .rename(old.as_bytes(), &parent, new.as_bytes(), mode)
            .unwrap();
        let what = format!("{mode:?} {from}/{old} ({id}) to {to}/{new} ({target:?})");
        self.tree.names.remove(&(from, old.clone()));
        self.tree.names.insert((to, new), id);
        if let Some(target) = target {
            match mode {
                RenameMode::Exchange => _ = self.tree.names.insert((from, old), target),
                _ => self.forget(target),
            }
            self.note(&[target]);
        }
        self.note(&[from, to, id]);
        Some(named(what))
    }

    fn write(&mut self) -> Option<Done> {
        let id = self.pick_file()?;
        let size = self.sizes[&id];
        let most = [4, 40, 300][self.below(3)];
        let len = 1 + self.below(most);
        let from = match self.below(4) {
            0 if size > 0 => self.below(size),
            1 => size + self.below(200),
            2 if size > 0 => self.below(size) / 16 * 16,
            _ => size,
        };
        if from + len > CELLS_MAX {
            return None;
        }
        let version = self.at as u32;
        let bytes: Vec<u8> = (from..from + len)
            .flat_map(|cell| cell_bytes(id, version, cell))
            .collect();
        let file = self.open(id);
        let done = file.write_at((from * CELL) as u64, &bytes).unwrap();
        assert_eq!(done, bytes.len());
        self.sizes.insert(id, size.max(from + len));
        Some(Done {
            effect: Effect::Write {
                id,
                from,
                len,
                version,
            },
            ..named(format!("write {id}, cells {from}..{}", from + len))
        })
    }

    fn truncate(&mut self) -> Option<Done> {
        let id = self.pick_file()?;
        let size = self.sizes[&id];
        let cells = match self.below(4) {
            0 => 0,
            1 => size + self.below(100),
            _ => self.below(size + 1),
        };
        let cells = cells.min(CELLS_MAX);
        let attributes = SetAttributes {
            size: Some((cells * CELL) as u64),
            ..SetAttributes::default()
        };
        self.open(id).set_attributes(&attributes).unwrap();
        self.sizes.insert(id, cells);
        Some(Done {
            effect: Effect::Resize { id, cells },
            ..named(format!("truncate {id} from {size} to {cells} cells"))
        })
    }

    fn fallocate(&mut self) -> Option<Done> {
        let id = self.pick_file()?;
        let size = self.sizes[&id];
        let (from, len) = (self.below(size + 20), 1 + self.below(150));
        let (how, effect) = match self.below(4) {
            0 => (Fallocate::Allocate { keep_size: true }, Effect::None),
            1 => {
                let cells = size.max(from + len);
                let grown = Effect::Resize { id, cells };
                self.sizes.insert(id, cells);
                (Fallocate::Allocate { keep_size: false }, grown)
            }
            number => {
                let keep_size = true;
                let how = match number {
                    2 => Fallocate::PunchHole,
                    _ => Fallocate::ZeroRange { keep_size },
                };
                let to = from + len;
                (how, Effect::Zero { id, from, to })
            }
        };
        let file = self.open(id);
        let has_extents = file.inode().flags.contains(uext4::InodeFlags::EXTENTS);
        if !has_extents && !matches!(how, Fallocate::PunchHole) {
            self.sizes.insert(id, size);
            return None;
        }
        file.fallocate(how, (from * CELL) as u64, (len * CELL) as u64)
            .unwrap();
        Some(Done {
            effect,
            ..named(format!("{how:?} {id}, cells {from}..{}", from + len))
        })
    }

    fn set_xattr(&mut self) -> Option<Done> {
        let id = self.pick(|tree, id| !matches!(tree.nodes[&id].kind, Kind::Symlink(_)))?;
        let name = ["user.a", "user.b", "user.c"][self.below(3)].to_owned();
        let value = match self.below(4) {
            0 => None,
            _ => Some(([1, 40, 250][self.below(3)], 1 + self.below(255) as u8)),
        };
        let bytes = value.map(|(len, byte)| vec![byte; len]);
        let inode = self.open(id);
        inode
            .set_xattr(name.as_bytes(), bytes.as_deref(), SetMode::Any)
            .unwrap();
        let what = format!("set {name} of {id} to {value:?}");
        let xattrs = &mut self.tree.nodes.get_mut(&id)?.xattrs;
        match value {
            Some(value) => xattrs.insert(name, value),
            None => xattrs.remove(&name),
        };
        self.note(&[id]);
        Some(named(what))
    }

    fn chmod(&mut self) -> Option<Done> {
        let id = self.pick(|tree, id| !matches!(tree.nodes[&id].kind, Kind::Symlink(_)))?;
        let mode = self.random.below(0o1000) as u16;
        let attributes = SetAttributes {
            mode: Some(mode),
            ..SetAttributes::default()
        };
        self.open(id).set_attributes(&attributes).unwrap();
        self.tree.nodes.get_mut(&id)?.mode = mode;
        self.note(&[id]);
        Some(named(format!("chmod {id} to {mode:o}")))
    }

    fn fsync(&mut self) -> Option<Done> {
        let id = match self.below(4) {
            0 => self.pick_dir(),
            _ => self.pick_file()?,
        };
        let all = self.below(3) > 0;
        let inode = self.open(id);
        let names = if all {
            inode.fsync().unwrap();
            self.changed.get(&id).copied().unwrap_or(0)
        } else {
            inode.fdatasync().unwrap();
            self.made.get(&id).copied().unwrap_or(0)
        };
        Some(Done {
            durable: Durable::File { id, names },
            ..named(format!("fsync {id}, all: {all}"))
        })
    }
}
