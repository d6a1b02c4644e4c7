//! Checks whether a file system is consistent. Everything is checked, read-only.
//!
//! ```text
//! for each window of blocks:   groups and inodes claim their blocks → compare with the bitmaps
//! for each window of inodes:   inodes say their links, directories count them → compare
//! at the end:                  every directory hangs from the root, the totals agree
//! ```
//! Memory is bounded by the windows (`usage::WINDOW_CLUSTERS`, `table::WINDOW_INODES`), not by
//! the file system: one of more than 1 TiB (at 4 KiB blocks) or 16 million inodes is walked more
//! than once. In addition, twenty bytes are used per directory, sixteen per block of the current
//! directory, and sixteen per xattr block of the window. Inodes are read in the order of their
//! tables, and the entries of a directory in the order of its blocks: no entry needs a lookup.
//! Each issue is reported once, as soon as it is found; a damaged structure is not trusted, and
//! everything below it is skipped.
//!
//! Not done: repair, checks of file data, quota totals, and the journal's contents (it is
//! replayed in memory before anything is checked).

#![cfg_attr(
    not(test),
    warn(clippy::as_conversions, clippy::arithmetic_side_effects)
)]

mod bitmaps;
mod directories;
mod index;
mod inodes;
mod issue;
mod orphans;
mod table;
mod usage;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use uext4_ondisk::features::Incompat;
use uext4_ondisk::group_desc::GroupDesc;
use uext4_ondisk::inode::FileType;
use uext4_ondisk::num::{index, len32};
use uext4_ondisk::superblock::{STATE_ERROR, STATE_VALID};
use uext4_ondisk::{GroupNr, Ino, Pblk};

pub use issue::Issue;

use crate::base::error::{Error, Result};
use crate::inode::Inode;
use crate::journal::sbi::Sbi;
use directories::Parents;
use inodes::GroupInodes;
use table::Table;
use usage::Usage;

/// Counts of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Issues reported.
    pub issues: u64,
    /// Inodes in use.
    pub inodes: u64,
    /// Directories among them.
    pub directories: u64,
    /// Blocks in use.
    pub blocks_used: u64,
    /// Inodes that the next mount for writing deletes or truncates to their size. They are not
    /// issues.
    pub orphans: u64,
}

/// How far a check has come. Both passes begin again for each window of a large file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being read.
    pub pass: Pass,
    /// How many of `total` have been read.
    pub done: u64,
    /// All groups, or all directories, times the windows.
    pub total: u64,
}

/// What a check reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The inodes of each group, and the blocks that they own.
    Groups,
    /// The names in each directory.
    Directories,
}

/// Where a check reports.
pub(crate) struct Observer<'a> {
    /// Is called for each issue.
    pub report: &'a mut dyn FnMut(Issue),
    /// Is called before each group and each directory.
    pub progress: &'a mut dyn FnMut(Progress),
}

/// Checks the whole file system and shows `observer` each issue.
///
/// Fails with device errors, which say nothing about the file system; damage is an issue, not an
/// error. [`Error::Unsupported`] if fast commits wait in the journal: bitmaps and counts do not
/// show them.
pub(crate) fn check<'a>(sbi: &'a Arc<Sbi>, observer: Observer<'a>) -> Result<Summary> {
    if sbi.fast_commit().is_some() {
        let what = "checking while fast commits wait in the journal (mount it once first)".into();
        return Err(Error::Unsupported { what });
    }
    let mut checker = Checker {
        sbi,
        shared: sbi,
        observer,
        summary: Summary::default(),
        failed: None,
        usage: Usage::new(0..0),
        xattr_refs: HashMap::new(),
        orphans: HashSet::new(),
        directories: Vec::new(),
        parents: Parents::default(),
        dot_dots: Parents::default(),
    };
    checker.run();
    match checker.failed {
        Some(error) => Err(error),
        None => Ok(checker.summary),
    }
}

struct Checker<'a> {
    sbi: &'a Sbi,
    shared: &'a Arc<Sbi>,
    observer: Observer<'a>,
    summary: Summary,
    /// The first device error; nothing is checked after it.
    failed: Option<Error>,
    usage: Usage,
    /// References to xattr blocks found in this window, by block.
    xattr_refs: HashMap<Pblk, u32>,
    orphans: HashSet<Ino>,
    /// All directories in use, in the order of their inodes.
    directories: Vec<Ino>,
    parents: Parents,
    dot_dots: Parents,
}

impl Checker<'_> {
    fn run(&mut self) {
        let rescue = self.sbi.rescue();
        if let Some(lost) = &rescue.superblock {
            let why = lost.why.clone();
            self.report(Issue::LostSuperblock { why });
        }
        if let Some(cut) = rescue.cut_off {
            let (need, have) = (cut.need, cut.have);
            let blocks = self.sbi.geometry().blocks_count;
            let blocks = blocks.saturating_sub(self.sbi.blocks_present());
            return self.report(Issue::CutOff { need, have, blocks });
        }
        let superblock = self.sbi.superblock();
        if superblock.s_state.get() & STATE_ERROR != 0 {
            self.report(Issue::ErrorState {
                count: superblock.s_error_count.get(),
            });
        }
        self.read_orphans();
        let per_group = self.sbi.geometry().inodes_per_group;
        let mut table = Table::new(self.inode_window(0), per_group);
        let Some((free_blocks, free_inodes)) = self.block_windows(&mut table) else {
            return;
        };
        self.inode_windows(table);
        self.check_parents();
        self.totals(free_blocks, free_inodes);
    }

    /// Compares owners with bitmaps, window by window. Returns the numbers of free blocks and
    /// inodes; `None` after a device error. The first window adds the inodes that it finds to
    /// `table`.
    fn block_windows(&mut self, table: &mut Table) -> Option<(u64, u64)> {
        let geometry = self.sbi.geometry();
        let groups = geometry.groups_count.get();
        let step = (usage::WINDOW_CLUSTERS / geometry.clusters_per_group).max(1);
        let first_cluster = |group: u32| {
            let per_group = geometry.clusters_per_group.get();
            u64::from(group).saturating_mul(per_group.into())
        };
        let mut free = (0, 0);
        let windows = u64::from(groups.div_ceil(step));
        for (window_nr, from) in (0_u64..).zip((0..groups).step_by(index(step))) {
            let window = from..from.saturating_add(step).min(groups);
            let first_window = from == 0;
            self.usage = Usage::new(first_cluster(window.start)..first_cluster(window.end));
            self.claim_mmp_block(first_window);
            for group in (0..groups).map(GroupNr) {
                if let Some(desc) = self.desc(group, first_window) {
                    self.claim_group(group, &desc, first_window);
                }
            }
            for group in (0..groups).map(GroupNr) {
                self.progress(Progress {
                    pass: Pass::Groups,
                    done: window_nr
                        .saturating_mul(groups.into())
                        .saturating_add(group.0.into()),
                    total: windows.saturating_mul(groups.into()),
                });
                if let Some(desc) = self.desc(group, false) {
                    let inodes =
                        self.group_inodes(group, &desc, first_window.then_some(&mut *table));
                    free.1 = u64::saturating_add(free.1, inodes);
                }
                if self.failed.is_some() {
                    return None;
                }
            }
            self.xattr_refcounts();
            for group in window.map(GroupNr) {
                if let Some(desc) = self.desc(group, false) {
                    let blocks = self.block_bitmap(group, &desc) << geometry.cluster_bits;
                    free.0 = u64::saturating_add(free.0, blocks);
                }
            }
        }
        self.summary.blocks_used = geometry.blocks_count.saturating_sub(free.0);
        Some(free)
    }

    /// Claims the blocks that the inodes of a group own. With a table, adds the inodes to it,
    /// checks inodes and counts, and returns the number of free inodes; otherwise returns 0.
    #[expect(
        clippy::arithmetic_side_effects,
        reason = "no more inodes are marked or counted than a group has: less than 2^32"
    )]
    fn group_inodes(
        &mut self,
        group: GroupNr,
        desc: &GroupDesc,
        mut table: Option<&mut Table>,
    ) -> u64 {
        let first_window = table.is_some();
        let inodes = match GroupInodes::read(self.sbi, group, desc) {
            Ok(inodes) => inodes,
            Err(error) => {
                self.report_once(first_window, None, error);
                return 0;
            }
        };
        let (mut marked_count, mut dirs) = (0, 0);
        for (ino, marked) in inodes.candidates() {
            marked_count += u32::from(marked);
            if let Some(inode) = self.used_inode(ino, marked, first_window) {
                if let Some(table) = &mut table {
                    table.add(&inode);
                    if inode.file_type == FileType::Directory {
                        dirs += 1;
                        self.directories.push(ino);
                    }
                }
                self.summary.inodes += u64::from(first_window);
                self.inode_blocks(&inode, first_window);
            }
        }
        if !first_window {
            return 0;
        }
        if !inodes.is_padded() {
            self.report(Issue::BitmapPadding {
                group,
                what: "inode bitmap",
            });
        }
        self.summary.directories += u64::from(dirs);
        let free = self.sbi.geometry().inodes_per_group.get() - marked_count;
        self.compare_count(group, "free inodes", [desc.free_inodes, free]);
        self.compare_count(group, "used directories", [desc.used_dirs, dirs]);
        free.into()
    }

    /// Reports a count of a group's descriptor that differs from the number counted.
    fn compare_count(&mut self, group: GroupNr, field: &'static str, [stored, counted]: [u32; 2]) {
        if stored != counted {
            self.report(Issue::GroupCount {
                group,
                field,
                stored,
                counted,
            });
        }
    }

    /// The groups of the inode window that begins at group `from`.
    fn inode_window(&self, from: u32) -> Range<u32> {
        let geometry = self.sbi.geometry();
        let step = (table::WINDOW_INODES / geometry.inodes_per_group).max(1);
        from..from.saturating_add(step).min(geometry.groups_count.get())
    }

    /// Compares names with inodes and link counts, window by window. `first` is the first
    /// window's table, which contains its inodes.
    fn inode_windows(&mut self, first: Table) {
        let geometry = self.sbi.geometry();
        let directories = std::mem::take(&mut self.directories);
        let mut table = first;
        let step = len32(table.groups().len()).max(1);
        let windows = u64::from(geometry.groups_count.get().div_ceil(step));
        let mut window_nr = 0_u64;
        loop {
            let first_window = table.groups().start == 0;
            for (nr, &ino) in (0_u64..).zip(&directories) {
                let count = u64::try_from(directories.len()).unwrap_or(u64::MAX);
                self.progress(Progress {
                    pass: Pass::Directories,
                    done: window_nr.saturating_mul(count).saturating_add(nr),
                    total: windows.saturating_mul(count),
                });
                if let Some(inode) = self.used_inode(ino, true, false) {
                    self.directory(&mut table, &inode, first_window);
                }
                if self.failed.is_some() {
                    return;
                }
            }
            self.link_counts(&table);
            let from = table.groups().end;
            if from >= geometry.groups_count.get() {
                return;
            }
            window_nr = window_nr.saturating_add(1);
            let window = self.inode_window(from);
            table = Table::new(window.clone(), geometry.inodes_per_group);
            self.for_each_used(window, |inode| table.add(inode));
        }
    }

    fn progress(&mut self, progress: Progress) {
        (self.observer.progress)(progress);
    }

    /// Calls `f` for every inode in use in a range of groups; nothing is reported.
    fn for_each_used(&mut self, groups: Range<u32>, mut f: impl FnMut(&Inode)) {
        for group in groups.map(GroupNr) {
            let Some(desc) = self.desc(group, false) else {
                continue;
            };
            let Ok(inodes) = GroupInodes::read(self.sbi, group, &desc) else {
                continue;
            };
            for (ino, marked) in inodes.candidates().filter(|(_, marked)| *marked) {
                if let Some(inode) = self.used_inode(ino, marked, false) {
                    f(&inode);
                }
            }
            if self.failed.is_some() {
                return;
            }
        }
    }

    fn desc(&mut self, group: GroupNr, first_window: bool) -> Option<GroupDesc> {
        match self.sbi.group_desc(group) {
            Ok(desc) => Some(desc),
            Err(error) => {
                self.report_once(first_window, None, error);
                None
            }
        }
    }

    /// Checks the superblock's counts; a file system in use does not update them, nor do backups
    /// contain current ones.
    fn totals(&mut self, free_blocks: u64, free_inodes: u64) {
        let superblock = self.sbi.superblock();
        if superblock.s_state.get() & STATE_VALID == 0
            || superblock.features().incompat.contains(Incompat::RECOVER)
            || self.sbi.is_from_backup()
        {
            return;
        }
        let totals = [
            ("free blocks", superblock.free_blocks_count(), free_blocks),
            (
                "free inodes",
                superblock.s_free_inodes_count.get().into(),
                free_inodes,
            ),
        ];
        for (field, stored, counted) in totals {
            if stored != counted {
                self.report(Issue::TotalCount {
                    field,
                    stored,
                    counted,
                });
            }
        }
    }

    fn report(&mut self, issue: Issue) {
        self.summary.issues = self.summary.issues.saturating_add(1);
        (self.observer.report)(issue);
    }

    /// Reports damage as an issue; stores a device error as the reason why the check failed.
    fn report_error(&mut self, ino: Option<Ino>, error: Error) {
        match error {
            Error::Corrupt(damage) => self.report(Issue::Damage { ino, damage }),
            Error::Device(_) => {
                self.failed.get_or_insert(error);
            }
            // What cannot be checked (for example, encrypted data) is not an issue.
            _ => {}
        }
    }

    /// As [`Checker::report_error`], but what is wrong is reported in the first window only.
    fn report_once(&mut self, first_window: bool, ino: Option<Ino>, error: Error) {
        if first_window || matches!(error, Error::Device(_)) {
            self.report_error(ino, error);
        }
    }
}

/// The clusters that contain blocks `start` to `start + len`; the range has been checked.
fn clusters(sbi: &Sbi, start: Pblk, len: u32) -> Range<u64> {
    let geometry = sbi.geometry();
    let first = start.0.saturating_sub(geometry.first_data_block.into());
    let end = first.saturating_add(len.into());
    first >> geometry.cluster_bits..end.div_ceil(1 << geometry.cluster_bits)
}

/// The first block of a cluster.
fn first_block(sbi: &Sbi, cluster: u64) -> Pblk {
    let geometry = sbi.geometry();
    let block = cluster << geometry.cluster_bits;
    Pblk(block.saturating_add(geometry.first_data_block.into()))
}

/// The first inode of a group.
fn first_inode(sbi: &Sbi, group: GroupNr) -> Ino {
    let per_group = sbi.geometry().inodes_per_group.get();
    Ino(group.0.saturating_mul(per_group).saturating_add(1))
}

/// Bit `number` of a bitmap; 0 past its end.
fn bit(bitmap: &[u8], number: u32) -> bool {
    bitmap
        .get(index(number / 8))
        .is_some_and(|byte| byte >> (number % 8) & 1 != 0)
}

/// Whether every bit from `from` to the end is set.
fn all_set(bitmap: &[u8], from: u32) -> bool {
    (from..len32(bitmap.len()).saturating_mul(8)).all(|i| bit(bitmap, i))
}
