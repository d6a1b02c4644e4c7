//! What the files of an image hold, inode by inode, to compare before damage and after a repair.
//!
//! It is read without the engine and without e2fsprogs, from the survey alone: those who compare
//! must not share the faults of those who mend. The image must be consistent.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::{DefaultHasher, Hasher};

use uext4_ondisk::dir_block::inline_parent;
use uext4_ondisk::dir_entry::DirBlock;
use uext4_ondisk::inode::{FileType, I_BLOCK_LEN, InodeFlags};
use uext4_ondisk::num::{index, len64};
use uext4_ondisk::xattr::{INDEX_SYSTEM, INLINE_DATA_NAME, XattrPlace, XattrValue, parse_entries};
use uext4_ondisk::{Ino, Lblk};

use super::survey::{Known, Survey};
use super::target::{Hurt, get16, get32};

/// All files that have a name, by inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    inodes: BTreeMap<Ino, Content>,
}

/// What an inode holds.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Content {
    mode: u16,
    owner: u32,
    group: u32,
    size: u64,
    /// Of its bytes, a hole read as zeroes; of a device, its number.
    digest: u64,
    attributes: BTreeMap<(u8, Vec<u8>), u64>,
    /// Of a directory.
    names: BTreeMap<Vec<u8>, Ino>,
    /// How it is reached: one of its paths.
    path: String,
}

/// An attribute of a file, whichever.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Attribute {
    index: u8,
    name: String,
    digest: u64,
}

/// What a name leads to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    file_type: Option<FileType>,
    size: u64,
    digest: u64,
}

impl Contents {
    /// Reads all files that the root leads to.
    #[track_caller]
    pub fn new(image: &Survey) -> Self {
        let mut inodes = BTreeMap::new();
        let mut todo = vec![(Ino::ROOT, String::new())];
        while let Some((ino, path)) = todo.pop() {
            if inodes.contains_key(&ino) {
                continue;
            }
            let known = image.known(ino);
            let known = known.unwrap_or_else(|| panic!("{path}: inode {ino} is free"));
            let content = content(image, known, path);
            for (name, &child) in &content.names {
                let name = String::from_utf8_lossy(name);
                todo.push((child, format!("{}/{name}", content.path)));
            }
            inodes.insert(ino, content);
        }
        Self { inodes }
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.inodes.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.inodes.is_empty()
    }

    /// All but what this path leads to.
    #[must_use]
    pub fn without(&self, path: &str) -> Self {
        let mut names = path.split('/').filter(|name| !name.is_empty()).peekable();
        let mut all = self.clone();
        if names.peek().is_some() {
            let below =
                |dir: Ino, name: &str| self.inodes.get(&dir)?.names.get(name.as_bytes()).copied();
            if let Some(ino) = names.try_fold(Ino::ROOT, below) {
                all.inodes.remove(&ino);
            }
        }
        all
    }

    /// What of the files of `before` the `other` still holds and this does not, whatever the names
    /// are: contents and attributes, a line for each, the first few.
    pub fn loses(&self, other: &Self, before: &Self) -> Vec<String> {
        let all = [self, other, before];
        let mut lost = fewer(all.map(Self::held));
        lost.extend(fewer(all.map(Self::attributes)));
        lost.truncate(5);
        lost
    }

    /// All attributes, and the paths of the files that have them.
    fn attributes(&self) -> Shown<'_, Attribute> {
        let mut all = Shown::new();
        for content in self.inodes.values() {
            for ((index, name), &digest) in &content.attributes {
                let attribute = Attribute {
                    index: *index,
                    name: String::from_utf8_lossy(name).into_owned(),
                    digest,
                };
                all.entry(attribute).or_default().push(&content.path);
            }
        }
        all
    }

    /// The names of `before` that in the `other` still lead to what they led to, and not in this: a
    /// line for each, the first few. A directory without its names is among them, although all of
    /// its files may be kept elsewhere. A name that leads to a file which it never was of is lost.
    pub fn loses_names(&self, other: &Self, before: &Self) -> Vec<String> {
        let [ours, theirs, before] = [self, other, before].map(Self::by_path);
        let lost = before
            .iter()
            .filter(|&(path, held)| theirs.get(path) == Some(held) && ours.get(path) != Some(held))
            .map(|(path, held)| format!("the name {path} of {:?}", held.file_type));
        lost.take(5).collect()
    }

    /// What each path leads to.
    fn by_path(&self) -> BTreeMap<String, Held> {
        let of_directory = |directory: &Content| {
            let path = directory.path.clone();
            let child = move |(name, child): (&Vec<u8>, &Ino)| {
                let content = self.inodes.get(child)?;
                let path = format!("{path}/{}", String::from_utf8_lossy(name));
                // It is made by those who need it.
                let is_made = path == "/lost+found" && content.is_directory();
                (!is_made).then(|| (path, content.held()))
            };
            directory.names.iter().filter_map(child).collect::<Vec<_>>()
        };
        self.inodes.values().flat_map(of_directory).collect()
    }

    /// What the names lead to, and the paths of each. Of directories all are alike.
    fn held(&self) -> Shown<'_, Held> {
        let mut all = Shown::new();
        let names = self.inodes.values().flat_map(|content| &content.names);
        let children = names.filter_map(|(name, child)| Some((name, self.inodes.get(child)?)));
        for (name, content) in children {
            // Where lost files go is made anew where it is missing, by those who need it. A file
            // of that name is one like others.
            if content.is_directory() && name == b"lost+found" {
                continue;
            }
            all.entry(content.held()).or_default().push(&content.path);
        }
        all
    }

    /// What of this is no longer in `after`, or changed, though it was not hurt: a line for each,
    /// the first few.
    pub fn missing(&self, after: &Self, hurt: &Hurt) -> Vec<String> {
        if hurt.all {
            return Vec::new();
        }
        let unhurt = self
            .inodes
            .iter()
            .filter(|(ino, _)| !hurt.inodes.contains(ino));
        let lines = unhurt.filter_map(|(ino, before)| {
            let path = &before.path;
            let what = match after.inodes.get(ino) {
                // A file without a name and without content is not worth a name.
                None if before.is_empty() && !hurt.inodes.is_empty() => return None,
                None => "has no name any more".to_owned(),
                Some(after) => before.difference(after, hurt)?,
            };
            Some(format!("inode {ino}, {path}: {what}"))
        });
        lines.take(5).collect()
    }
}

/// Things, and the paths of all that show them.
type Shown<'a, T> = BTreeMap<T, Vec<&'a str>>;

/// What the first has fewer of than the second, as far as the third had it.
fn fewer<T: Ord + Debug>([ours, theirs, before]: [Shown<'_, T>; 3]) -> Vec<String> {
    let count = |all: &Shown<'_, T>, thing| all.get(thing).map_or(0, Vec::len);
    let lost = before.iter().filter_map(|(thing, paths)| {
        let kept = count(&theirs, thing).min(paths.len());
        let missing = kept.saturating_sub(count(&ours, thing));
        let path = paths.first()?;
        (missing > 0).then(|| format!("{missing} of {kept} of {thing:?}, such as {path}"))
    });
    lost.collect()
}

impl Content {
    fn is_directory(&self) -> bool {
        FileType::from_mode(self.mode) == Some(FileType::Directory)
    }

    /// What a name of it leads to. Of directories all are alike.
    fn held(&self) -> Held {
        Held {
            file_type: FileType::from_mode(self.mode),
            size: if self.is_directory() { 0 } else { self.size },
            digest: self.digest,
        }
    }

    fn is_empty(&self) -> bool {
        self.size == 0 && self.attributes.is_empty()
    }

    fn difference(&self, after: &Self, hurt: &Hurt) -> Option<String> {
        if self.mode != after.mode {
            return Some(format!("mode {:o} became {:o}", self.mode, after.mode));
        }
        if (self.owner, self.group) != (after.owner, after.group) {
            return Some("another owner".to_owned());
        }
        if !self.names.is_empty() {
            let is_lost = |(name, ino): &(&Vec<u8>, &Ino)| {
                !hurt.inodes.contains(ino) && after.names.get(*name) != Some(ino)
            };
            let lost = self.names.iter().find(is_lost);
            let name = lost.map(|(name, _)| String::from_utf8_lossy(name));
            if let Some(name) = name {
                return Some(format!("lost the name {name}"));
            }
        } else if (self.size, self.digest) != (after.size, after.digest) {
            let (before, after) = (self.size, after.size);
            return Some(format!("other content, size {before} became {after}"));
        }
        (self.attributes != after.attributes).then(|| "other attributes".to_owned())
    }
}

fn content(image: &Survey, known: &Known, path: String) -> Content {
    let raw = &known.raw;
    let wide = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
    let is_directory = known.file_type == Some(FileType::Directory);
    let mut attributes = attributes(image, known);
    let inline = attributes.remove(&(INDEX_SYSTEM, INLINE_DATA_NAME.to_vec()));
    let inline = known.flags.contains(InodeFlags::INLINE_DATA).then(|| {
        let root = raw.i_block.to_vec();
        [root, inline.unwrap_or_default()].concat()
    });
    Content {
        mode: raw.i_mode.get(),
        owner: wide(raw.i_uid.get(), raw.i_uid_high.get()),
        group: wide(raw.i_gid.get(), raw.i_gid_high.get()),
        size: known.size(),
        names: match &inline {
            _ if !is_directory => BTreeMap::new(),
            Some(bytes) => inline_names(image, known, bytes),
            None => names(image, known),
        },
        digest: match &inline {
            _ if is_directory => 0,
            Some(bytes) => digest_of(&bytes[..bytes.len().min(known.size() as usize)]),
            None => digest(image, known),
        },
        attributes: attributes
            .into_iter()
            .map(|(name, value)| (name, digest_of(&value)))
            .collect(),
        path,
    }
}

/// The digest of some bytes as the beginning of a file: zero sectors count for nothing.
fn digest_of(bytes: &[u8]) -> u64 {
    let mut digest = DefaultHasher::new();
    add(&mut digest, 0, bytes);
    digest.finish()
}

/// Adds bytes that stand at this byte of a file.
fn add(digest: &mut DefaultHasher, start: u64, bytes: &[u8]) {
    for (sector, at) in bytes.chunks(512).zip((start..).step_by(512)) {
        let end = sector.iter().rposition(|&byte| byte != 0);
        if let Some(end) = end {
            digest.write_u64(at);
            digest.write(&sector[..=end]);
        }
    }
}

/// The digest of a file's bytes.
fn digest(image: &Survey, known: &Known) -> u64 {
    let mut digest = DefaultHasher::new();
    let is_mapped = matches!(known.file_type, Some(FileType::Regular | FileType::Symlink));
    if !is_mapped || known.nodes.is_empty() && known.blocks.is_empty() {
        add(&mut digest, 0, &known.raw.i_block);
        return digest.finish();
    }
    let len = u64::from(image.geometry.block_size.bytes());
    let mut blocks: Vec<_> = known.blocks.iter().filter(|m| !m.unwritten).collect();
    blocks.sort_unstable_by_key(|mapped| mapped.lblk);
    for mapped in blocks {
        let start = u64::from(mapped.lblk.0) * len;
        let within = known.size().saturating_sub(start).min(len);
        add(
            &mut digest,
            start,
            &image.block(mapped.pblk)[..within as usize],
        );
    }
    digest.finish()
}

fn names(image: &Survey, known: &Known) -> BTreeMap<Vec<u8>, Ino> {
    let is_index = known.flags.contains(InodeFlags::INDEX);
    let is_inner = |lblk: Lblk| lblk == Lblk(0) || known.index_nodes.contains(&lblk);
    let leaves = known
        .blocks
        .iter()
        .filter(|mapped| !(is_index && is_inner(mapped.lblk)));
    let blocks = leaves.map(|mapped| image.block(mapped.pblk));
    blocks.flat_map(|block| records(image, block)).collect()
}

fn records(image: &Survey, bytes: &[u8]) -> Vec<(Vec<u8>, Ino)> {
    let entries = DirBlock::new(bytes, None, image.geometry.features.incompat);
    let entries = entries.map(|entry| entry.unwrap());
    let entries = entries.filter(|entry| entry.name != b"." && entry.name != b"..");
    entries
        .map(|entry| (entry.name.to_vec(), entry.ino))
        .collect()
}

fn inline_names(image: &Survey, known: &Known, bytes: &[u8]) -> BTreeMap<Vec<u8>, Ino> {
    let parent = inline_parent(bytes);
    assert!(
        image.known(parent).is_some(),
        "{}: parent {parent}",
        known.ino
    );
    let size = (known.size() as usize).min(bytes.len());
    let (first, rest) = bytes[..size].split_at(I_BLOCK_LEN.min(size));
    let mut names = records(image, &first[4..]);
    names.extend(records(image, rest));
    names.into_iter().collect()
}

/// The attributes of an inode, with their values.
fn attributes(image: &Survey, known: &Known) -> BTreeMap<(u8, Vec<u8>), Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut take = |region: &[u8], first: usize, place| {
        for entry in parse_entries(region, first, place).unwrap() {
            let value = match entry.value {
                XattrValue::Here(bytes) => bytes.to_vec(),
                XattrValue::Inode { ino, size } => held(image, ino, size),
            };
            all.insert((entry.index, entry.name.to_vec()), value);
        }
    };
    let bytes = &image.bytes[image.inode_place(known.ino)];
    if bytes.len() > 128 {
        let at = 128 + usize::from(get16(bytes, 128));
        if bytes.len() >= at + 4 && get32(bytes, at) == 0xEA02_0000 {
            take(&bytes[at + 4..], 0, XattrPlace::Inode(known.ino));
        }
    }
    if let Some(block) = known.xattr_block() {
        take(image.block(block), 32, XattrPlace::Block(block));
    }
    all
}

/// The value that an inode holds.
fn held(image: &Survey, ino: Ino, size: u32) -> Vec<u8> {
    let known = image.known(ino).unwrap();
    let blocks = known.blocks.iter();
    let mut value: Vec<_> = blocks
        .flat_map(|mapped| image.block(mapped.pblk).to_vec())
        .collect();
    assert!(
        len64(value.len()) >= u64::from(size),
        "{ino}: a short value"
    );
    value.truncate(index(size));
    value
}
