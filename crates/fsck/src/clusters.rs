//! Sets of clusters, which threads fill at the same time.
//!
//! One bitmap for each group, in chunks of 4,096 clusters that are made when the first cluster of
//! each is added: a sparse file system costs what is used of it. Those that memory has no room for
//! are in a temporary file. Adding is one atomic operation for 64 clusters.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use uext4_blockdev::{Scratch, Words};
use uext4_ondisk::num::index;
use uext4_ondisk::{Geometry, GroupNr, Pblk};

/// Words of a chunk.
const CHUNK: usize = 64;

/// A bit for each cluster of a chunk; `None` if they are in the temporary file.
type Chunk = OnceLock<Option<Box<[AtomicU64; CHUNK]>>>;

/// A group that has clusters in the set.
pub type Group = OnceLock<Box<Table>>;

/// The clusters of a group.
#[derive(Debug)]
pub struct Table {
    chunks: Box<[Chunk]>,
    /// All chunks, of which those are used that memory has no room for.
    spilled: OnceLock<Words>,
}

/// A set of the clusters of a file system. Clusters are counted from the first data block on.
#[derive(Debug)]
pub struct ClusterSet {
    groups: Box<[Group]>,
    /// Those that were taken out again, if any were.
    removed: OnceLock<Box<[Group]>>,
    /// Blocks of clusters in the set that hold nothing: a redo log may take them if no other
    /// cluster is left.
    spare: Vec<Range<u64>>,
    scratch: Arc<Scratch>,
    per_group: u32,
    clusters: u64,
    first_data_block: u64,
    cluster_bits: u8,
}

impl ClusterSet {
    /// The empty set. Where its bits are is `scratch`'s to say.
    pub fn new(geometry: &Geometry, scratch: &Arc<Scratch>) -> Self {
        let data = geometry.blocks_count - u64::from(geometry.first_data_block);
        Self {
            groups: empty(index(geometry.groups_count.get())),
            removed: OnceLock::new(),
            spare: Vec::new(),
            scratch: Arc::clone(scratch),
            per_group: geometry.clusters_per_group.get(),
            clusters: data.div_ceil(1 << geometry.cluster_bits),
            first_data_block: geometry.first_data_block.into(),
            cluster_bits: geometry.cluster_bits,
        }
    }

    /// Blocks of clusters in the set that hold nothing.
    pub fn spare(&self) -> &[Range<u64>] {
        &self.spare
    }

    /// Says which blocks of clusters in the set hold nothing.
    pub fn set_spare(&mut self, spare: Vec<Range<u64>>) {
        self.spare = spare;
    }

    /// Whether what the set holds can be believed: it may be in a temporary file.
    ///
    /// # Errors
    /// [`crate::Error::Spill`].
    pub fn check(&self) -> crate::error::Result<()> {
        self.scratch.check().map_err(crate::Error::Spill)
    }

    /// The clusters that `len` blocks from `start` on touch, cut to the file system.
    pub fn of_blocks(&self, start: Pblk, len: u64) -> Range<u64> {
        let first = start.0.saturating_sub(self.first_data_block);
        let end = start
            .0
            .saturating_add(len)
            .saturating_sub(self.first_data_block);
        let end = end.div_ceil(1 << self.cluster_bits).min(self.clusters);
        (first >> self.cluster_bits).min(end)..end
    }

    /// The first block of a cluster.
    pub fn first_block(&self, cluster: u64) -> Pblk {
        Pblk((cluster << self.cluster_bits).saturating_add(self.first_data_block))
    }

    /// How many clusters there are.
    pub fn clusters(&self) -> u64 {
        self.clusters
    }

    /// Adds clusters; calls `again` for each run of those that were in the set before.
    pub fn add(&self, clusters: Range<u64>, mut again: impl FnMut(Range<u64>)) {
        let end = clusters.end.min(self.clusters);
        let mut at = clusters.start;
        while at < end {
            let (word, from, bits) = self.word(&self.groups, at, end);
            let mask = mask(from, bits);
            let old = word.fetch_or(mask, Ordering::Relaxed) & mask;
            if old != 0 {
                runs(old >> from, |run| again(at + run.start..at + run.end));
            }
            at += u64::from(bits);
        }
    }

    /// Takes clusters out of the set.
    pub fn remove(&self, clusters: Range<u64>) {
        let end = clusters.end.min(self.clusters);
        let mut at = clusters.start;
        while at < end {
            let (word, from, bits) = self.word(&self.groups, at, end);
            let mask = mask(from, bits);
            let old = word.fetch_and(!mask, Ordering::Relaxed) & mask;
            if old != 0 {
                let removed = self.removed.get_or_init(|| empty(self.groups.len()));
                let (removed, ..) = self.word(removed, at, end);
                removed.fetch_or(old, Ordering::Relaxed);
            }
            at += u64::from(bits);
        }
    }

    /// Adds all clusters that were taken out, and those of another set of the same file system.
    pub fn add_removed_and(&self, others: Option<&Self>) {
        let shape = |set: &Self| (set.per_group, set.cluster_bits, set.first_data_block);
        let others = others.filter(|others| shape(others) == shape(self));
        let others = others.map_or(&[][..], |others| &others.groups);
        let removed = self.removed.get().map_or(&[][..], |groups| groups);
        for sets in [removed, others] {
            for (to, from) in self.groups.iter().zip(sets) {
                let Some(from) = from.get() else {
                    continue;
                };
                let to = to.get_or_init(|| self.table());
                for at in 0..from.chunks.len() {
                    let Some(from) = from.get(at) else {
                        continue;
                    };
                    for (to, from) in self.chunk(to, at).iter().zip(from) {
                        to.fetch_or(from.load(Ordering::Relaxed), Ordering::Relaxed);
                    }
                }
            }
        }
    }

    /// A group without clusters.
    fn table(&self) -> Box<Table> {
        let count = index(self.per_group).div_ceil(64 * CHUNK);
        Box::new(Table {
            chunks: (0..count).map(|_| OnceLock::new()).collect(),
            spilled: OnceLock::new(),
        })
    }

    /// A chunk of a group, made if it is the first time that it is asked for.
    fn chunk<'s>(&self, table: &'s Table, at: usize) -> &'s [AtomicU64] {
        let make = || {
            let has_room = self.scratch.take(CHUNK * size_of::<u64>());
            has_room.then(|| Box::new([const { AtomicU64::new(0) }; CHUNK]))
        };
        match table.chunks[at].get_or_init(make) {
            Some(words) => &**words,
            None => {
                let all = || self.scratch.words(table.chunks.len() * CHUNK);
                part(table.spilled.get_or_init(all), at)
            }
        }
    }

    /// The word that has a bit of a group; `None` if no cluster of the group was ever added.
    fn load(&self, group: usize, bit: u32) -> Option<u64> {
        let table = self.groups.get(group)?.get()?;
        let at = index(bit / 64);
        let words = table.get(at / CHUNK);
        Some(words.map_or(0, |words| words[at % CHUNK].load(Ordering::Relaxed)))
    }

    /// Whether a cluster is in the set.
    pub fn contains(&self, cluster: u64) -> bool {
        let (group, bit) = self.split(cluster);
        self.load(group, bit)
            .is_some_and(|word| word >> (bit % 64) & 1 != 0)
    }

    /// Whether any of these clusters is in the set.
    pub fn contains_any(&self, clusters: Range<u64>) -> bool {
        let mut at = clusters.start;
        let end = clusters.end.min(self.clusters);
        while at < end {
            let (group, bit) = self.split(at);
            let bits = (64 - bit % 64).min(self.per_group - bit);
            let bits = u64::from(bits).min(end - at);
            let word = self.load(group, bit).unwrap_or(0);
            if word & mask(bit % 64, bits as u32) != 0 {
                return true;
            }
            at += bits;
        }
        false
    }

    /// Whether nothing is in the set.
    pub fn is_empty(&self) -> bool {
        let tables = self.groups.iter().filter_map(OnceLock::get);
        let mut words = tables.flat_map(|table| table.all().flatten().flatten());
        words.all(|word| word.load(Ordering::Relaxed) == 0)
    }

    /// How many clusters from `from` on, before `end`, are in the set if `from` is, or else are
    /// not.
    pub fn stretch(&self, from: u64, end: u64) -> u64 {
        let end = end.min(self.clusters);
        let is_in = self.contains(from);
        let mut at = from;
        while at < end {
            let (group, bit) = self.split(at);
            let Some(word) = self.load(group, bit) else {
                if is_in {
                    break;
                }
                at = at.saturating_add((self.per_group - bit).into());
                continue;
            };
            let other = if is_in { !word } else { word } >> (bit % 64);
            let left = (64 - bit % 64).min(self.per_group - bit);
            let same = other.trailing_zeros().min(left);
            at = at.saturating_add(same.into());
            if same < left {
                break;
            }
        }
        at.min(end).saturating_sub(from)
    }

    /// Whether a cluster of the group was ever added.
    pub fn has_group(&self, group: GroupNr) -> bool {
        self.groups
            .get(index(group.0))
            .is_some_and(|group| group.get().is_some())
    }

    /// The words of a group, 64 clusters each from the lowest bit on; none if no cluster of the
    /// group was ever added.
    pub fn words(&self, group: GroupNr) -> impl Iterator<Item = u64> + '_ {
        let table = self.groups.get(index(group.0)).and_then(OnceLock::get);
        let chunks = table.into_iter().flat_map(|table| table.all());
        chunks.flat_map(|words| {
            (0..CHUNK).map(move |at| words.map_or(0, |words| words[at].load(Ordering::Relaxed)))
        })
    }

    /// Calls `each` for each run of clusters that this set and another of the same file system
    /// have.
    pub fn each_common(&self, other: &Self, mut each: impl FnMut(Range<u64>)) {
        let mut open = 0..0;
        for group in 0..self.groups.len() as u32 {
            let words = self.words(GroupNr(group)).zip(other.words(GroupNr(group)));
            let base = u64::from(group) * u64::from(self.per_group);
            for (at, (one, two)) in words.enumerate() {
                let first = base + 64 * at as u64;
                runs(one & two, |run| {
                    let run = first + run.start..first + run.end;
                    if open.end != run.start && !open.is_empty() {
                        each(open.clone());
                    }
                    if open.end != run.start || open.is_empty() {
                        open.start = run.start;
                    }
                    open.end = run.end;
                });
            }
        }
        if !open.is_empty() {
            each(open);
        }
    }

    /// The first cluster from `from` on that is not in the set.
    pub fn first_absent(&self, from: u64) -> Option<u64> {
        let mut at = from;
        while at < self.clusters {
            let (group, bit) = self.split(at);
            let Some(word) = self.load(group, bit) else {
                return Some(at);
            };
            let free = (!word >> (bit % 64)).trailing_zeros();
            let left = (64 - bit % 64).min(self.per_group - bit);
            if free < left {
                let found = at + u64::from(free);
                return (found < self.clusters).then_some(found);
            }
            at += u64::from(left);
        }
        None
    }

    /// Adds the first `len` clusters at one stretch in `within` that are not in the set; returns
    /// the first of them.
    pub fn take_run(&self, within: Range<u64>, len: u64) -> Option<u64> {
        let last = within.end.min(self.clusters);
        let mut at = within.start;
        while let Some(free) = self.first_absent(at) {
            let end = free.saturating_add(len);
            if end > last {
                break;
            }
            let taken = self.first_present(free, end);
            if taken == end {
                self.add(free..end, |_| ());
                return Some(free);
            }
            at = taken;
        }
        None
    }

    /// The first cluster from `from` on that is in the set, or `end`.
    pub fn first_present(&self, from: u64, end: u64) -> u64 {
        let end = end.min(self.clusters);
        let mut at = from;
        while at < end {
            let (group, bit) = self.split(at);
            let left = u64::from((64 - bit % 64).min(self.per_group - bit));
            let Some(word) = self.load(group, bit) else {
                at += u64::from(self.per_group - bit);
                continue;
            };
            let word = word >> (bit % 64);
            let skip = u64::from(word.trailing_zeros());
            if skip < left {
                return (at + skip).min(end);
            }
            at += left;
        }
        end
    }

    fn split(&self, cluster: u64) -> (usize, u32) {
        let group = cluster / u64::from(self.per_group);
        let bit = (cluster % u64::from(self.per_group)) as u32;
        (usize::try_from(group).unwrap_or(usize::MAX), bit)
    }

    /// The word of cluster `at`, the bit of it, and how many bits before `end` the word has.
    fn word<'s>(&self, groups: &'s [Group], at: u64, end: u64) -> (&'s AtomicU64, u32, u32) {
        let (group, bit) = self.split(at);
        let table = groups[group].get_or_init(|| self.table());
        let in_group = index(bit / 64);
        let words = self.chunk(table, in_group / CHUNK);
        let bits = (64 - bit % 64).min(self.per_group - bit);
        let bits = u64::from(bits).min(end - at) as u32;
        (&words[in_group % CHUNK], bit % 64, bits)
    }
}

impl Table {
    /// A chunk, if any cluster of it was ever added.
    fn get(&self, at: usize) -> Option<&[AtomicU64]> {
        match self.chunks.get(at)?.get()? {
            Some(words) => Some(&**words),
            None => self.spilled.get().map(|words| part(words, at)),
        }
    }

    /// All chunks in order.
    fn all(&self) -> impl Iterator<Item = Option<&[AtomicU64]>> {
        (0..self.chunks.len()).map(|at| self.get(at))
    }
}

/// A chunk of all words of a group.
fn part(words: &[AtomicU64], at: usize) -> &[AtomicU64] {
    &words[at * CHUNK..(at + 1) * CHUNK]
}

/// Groups without clusters.
fn empty(count: usize) -> Box<[Group]> {
    (0..count).map(|_| OnceLock::new()).collect()
}

/// `bits` ones from bit `from` on; `bits` is 1 to 64.
fn mask(from: u32, bits: u32) -> u64 {
    (u64::MAX >> (64 - bits)) << from
}

/// Calls `each` for each run of ones in a word.
fn runs(mut word: u64, mut each: impl FnMut(Range<u64>)) {
    let mut at = 0;
    while word != 0 {
        let skip = word.trailing_zeros();
        word >>= skip;
        at += u64::from(skip);
        let len = word.trailing_ones();
        each(at..at + u64::from(len));
        word = word.checked_shr(len).unwrap_or(0);
        at += u64::from(len);
    }
}

#[cfg(test)]
mod tests {
    use uext4_mkfs::{Options, layout};

    use super::*;

    fn set() -> ClusterSet {
        set_within(u64::MAX)
    }

    fn set_within(memory: u64) -> ClusterSet {
        let mut options = Options::new([0; 16], [0; 16], 0);
        options.block_size = Some(uext4_mkfs::BlockSizeWish::Exactly(
            uext4_ondisk::BlockSize::MIN,
        ));
        let layout = layout(&options, 64 << 20).unwrap();
        ClusterSet::new(&layout.geometry, &Arc::new(Scratch::new(memory)))
    }

    #[test]
    fn adding_says_what_was_there() {
        let set = set();
        let mut again = Vec::new();
        set.add(10..200, |run| again.push(run));
        assert!(again.is_empty());
        set.add(5..12, |run| again.push(run));
        set.add(199..300, |run| again.push(run));
        assert_eq!(again, [10..12, 199..200]);
        assert!(set.contains(5) && set.contains(299) && !set.contains(300) && !set.contains(4));
        assert!(set.contains_any(0..6) && !set.contains_any(0..5));
    }

    #[test]
    fn what_was_taken_out_and_what_others_have_comes_back() {
        let (set, other) = (set(), set());
        set.add(10..200, |_| ());
        set.remove(5..20);
        other.add(9000..9003, |_| ());
        set.add_removed_and(Some(&other));
        assert!(set.contains(10) && set.contains(19) && !set.contains(9));
        assert_eq!(set.first_present(200, u64::MAX), 9000);
        assert_eq!(set.first_absent(9000), Some(9003));
    }

    #[test]
    fn gaps_and_runs_are_found_across_groups() {
        // In memory, in a temporary file, and some of them here and some there.
        for memory in [u64::MAX, 0, 600] {
            gaps_and_runs(&set_within(memory));
        }
    }

    fn gaps_and_runs(set: &ClusterSet) {
        let per_group = u64::from(set.per_group);
        set.add(0..per_group + 7, |_| ());
        assert_eq!(set.first_absent(0), Some(per_group + 7));
        set.remove(per_group - 1..per_group);
        assert_eq!(set.first_absent(3), Some(per_group - 1));
        assert_eq!(set.first_present(per_group - 1, u64::MAX), per_group);
        assert_eq!(set.first_present(per_group + 7, u64::MAX), set.clusters());
        set.add(set.clusters() - 1..u64::MAX, |_| ());
        assert_eq!(
            set.first_present(per_group + 7, u64::MAX),
            set.clusters() - 1
        );
        assert_eq!(set.words(GroupNr(0)).next(), Some(u64::MAX));
        assert!(!set.is_empty());
        set.scratch.check().unwrap();
    }
}
