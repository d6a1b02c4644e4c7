//! The inodes of the file system itself: those with reserved numbers, and those that the
//! superblock names. They have no names, and in their place only a few things can be right.

use uext4_ondisk::dir_block::DirFormat;
use uext4_ondisk::dir_entry::update_tail;
use uext4_ondisk::extent::{Extent, empty_extent_root};
use uext4_ondisk::features::{Compat, Incompat, RoCompat};
use uext4_ondisk::indirect::{number_at, numbers};
use uext4_ondisk::inode::{
    FULL_EXTRA_ISIZE, FileType, GOOD_OLD_INODE_SIZE, InodeFlags, NDIR_BLOCKS, RawInode, S_IFDIR,
};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::{Ino, Lblk, Pblk};
use zerocopy::IntoBytes;

use super::subject::Subject;
use super::worker::Worker;
use crate::directory_list::Run;
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::inode_map::Kind;
use crate::mapping::{self, FileMap};
use crate::problem::InodeProblem;
use crate::state::State;
use crate::volume::is_clear;

/// Reserved inode: the boot loader, which may be a regular file.
const BOOT_LOADER: Ino = Ino(5);

/// `s_creator_os` of the Hurd.
const HURD: u32 = 1;

/// The inodes that the superblock names; 0 is none.
#[derive(Clone, Copy, Debug, Default)]
pub struct System {
    named: [u32; 5],
    /// The inode of the orphan file, without that feature.
    unused_orphan_file: u32,
    /// Times below it are numbers of inodes; 0 if there is no way to know.
    pub times_from: u32,
    /// The Hurd keeps other things where Linux has high halves of numbers.
    pub is_hurd: bool,
    /// The time of the repair; of one without a clock, that of the last write.
    pub now: u32,
}

impl System {
    pub fn new(superblock: &SuperBlock, now: u32) -> Self {
        let features = superblock.features();
        let journal = features.compat.contains(Compat::HAS_JOURNAL);
        let quota = features.ro_compat.contains(RoCompat::QUOTA);
        let orphans = features.compat.contains(Compat::ORPHAN_FILE);
        let orphan_file = superblock.s_orphan_file_inum.get();
        let inodes = superblock.s_inodes_count.get();
        let written = superblock.s_wtime.get();
        let others = [superblock.s_mkfs_time.get(), superblock.s_lastcheck.get()];
        // Those not known are 0.
        let is_late = written > inodes && others.iter().all(|&time| time == 0 || time > inodes);
        let given = |feature: bool, ino: u32| if feature { ino } else { 0 };
        Self {
            named: [
                given(journal, superblock.s_journal_inum.get()),
                given(quota, superblock.s_usr_quota_inum.get()),
                given(quota, superblock.s_grp_quota_inum.get()),
                given(quota, superblock.s_prj_quota_inum.get()),
                given(orphans, orphan_file),
            ],
            unused_orphan_file: given(!orphans, orphan_file),
            times_from: if is_late { inodes } else { 0 },
            is_hurd: superblock.s_creator_os.get() == HURD,
            now: now.max(superblock.s_wtime.get()).max(1),
        }
    }

    /// Whether the superblock names this inode, and its feature is there.
    pub fn is_named(&self, ino: Ino) -> bool {
        ino.0 != 0 && self.named.contains(&ino.0)
    }
}

impl Worker<'_, '_> {
    /// Examines what is particular to an inode of the file system. Others are left alone.
    pub fn reserved(&self, subject: &mut Subject<'_>) -> Result<()> {
        let ino = subject.ino;
        if self.common.system.is_named(ino) {
            if ino == Ino::JOURNAL && is_clear(subject.bytes) {
                // A new journal is made when free blocks are known.
                subject.is_cleared = true;
                return Ok(());
            }
            return self.system_file(subject);
        }
        if ino.0 >= self.state.geometry().first_ino {
            return match ino.0 == self.common.system.unused_orphan_file {
                true => self.clear_problem(subject, InodeProblem::SystemUnused),
                false => Ok(()),
            };
        }
        let raw = &subject.raw;
        let mode = raw.i_mode.get();
        let is_regular = subject.file_type() == Some(FileType::Regular);
        let links = raw.i_links_count.get();
        let holds_numbers = raw.i_block.iter().any(|&byte| byte != 0);
        let holds_data = links != 0 || number_at(&raw.i_block, 0) != 0;
        match ino {
            Ino::BAD_BLOCKS
                if !is_list_of_bad_blocks(subject) || self.has_lost_extents(subject) =>
            {
                self.clear_problem(subject, InodeProblem::BadBlocks)
            }
            Ino::BAD_BLOCKS => Ok(()),
            Ino::ROOT => {
                // Made anew when free blocks are known.
                subject.is_cleared = subject.file_type() != Some(FileType::Directory);
                Ok(())
            }
            Ino::RESIZE if self.has_resize_inode() && mode != 0 => self.system_file(subject),
            Ino::USER_QUOTA | Ino::GROUP_QUOTA | Ino::JOURNAL
                if holds_data || self.holds_remains(subject) =>
            {
                self.clear_problem(subject, InodeProblem::SystemUnused)
            }
            Ino::USER_QUOTA | Ino::GROUP_QUOTA | Ino::JOURNAL => {
                subject.is_cleared = true;
                Ok(())
            }
            Ino::RESIZE if self.has_resize_inode() => {
                subject.is_cleared = true;
                Ok(())
            }
            // As the kernel leaves it when the file system has grown beyond what was reserved.
            Ino::RESIZE if is_regular && !holds_numbers => Ok(()),
            BOOT_LOADER if is_regular => Ok(()),
            _ if mode == 0 && self.holds_remains(subject) => {
                self.clear_problem(subject, InodeProblem::SystemUnused)
            }
            _ if mode == 0 => {
                subject.is_cleared = true;
                Ok(())
            }
            _ => {
                let finding = subject.finding(InodeProblem::ReservedMode).found(mode);
                self.clear(subject, finding)
            }
        }
    }

    /// Whether a reserved inode that is not in use says that it has blocks, or how they are read.
    fn holds_remains(&self, subject: &Subject<'_>) -> bool {
        let raw = &subject.raw;
        let read_as = InodeFlags::INDEX.union(InodeFlags::CASEFOLD);
        let stored = InodeFlags::EXTENTS.union(InodeFlags::INLINE_DATA);
        raw.i_blocks_lo.get() != 0
            || raw.i_blocks_high.get() != 0
            || subject.size() > self.mapped_size_max()
            || subject.xattr_block().0 != 0
            || subject.flags().intersects(read_as)
            || subject.has(stored)
            || self.has_lost_extents(subject)
    }

    /// Whether the flag says that there are extents, in a file system without any.
    fn has_lost_extents(&self, subject: &Subject<'_>) -> bool {
        let incompat = self.state.geometry().features.incompat;
        subject.flags().contains(InodeFlags::EXTENTS) && !incompat.contains(Incompat::EXTENTS)
    }

    fn clear_problem(&self, subject: &mut Subject<'_>, problem: InodeProblem) -> Result<()> {
        let finding = subject.finding(problem);
        self.clear(subject, finding)
    }

    fn has_resize_inode(&self) -> bool {
        let compat = self.state.geometry().features.compat;
        compat.contains(Compat::RESIZE_INODE)
    }

    /// Blocks that the resize inode counts: its table, the descriptor blocks that are reserved,
    /// which are tables in turn, and their copies, which those list.
    pub fn resize_blocks(&self, raw: &RawInode) -> Result<u64> {
        let geometry = self.state.geometry();
        let own = Pblk(number_at(&raw.i_block, NDIR_BLOCKS + 1).into());
        if own.0 == 0 || !geometry.contains(own, 1) {
            return Ok(0);
        }
        let overlay = self.state.volume.overlay();
        let mut table = vec![0; geometry.block_size.len()];
        let mut copies = table.clone();
        overlay.read_block(own, &mut table)?;
        let mut blocks = 1;
        for reserved in numbers(&table)
            .iter()
            .map(|number| Pblk(number.get().into()))
        {
            if reserved.0 != 0 && geometry.contains(reserved, 1) {
                overlay.read_block(reserved, &mut copies)?;
                blocks += 1 + numbers(&copies).iter().filter(|n| n.get() != 0).count() as u64;
            }
        }
        Ok(blocks)
    }
}

/// Whether the inode of bad blocks has nothing but blocks: neither an owner nor attributes.
fn is_list_of_bad_blocks(subject: &Subject<'_>) -> bool {
    let raw = &subject.raw;
    let others = [
        raw.i_mode,
        raw.i_uid,
        raw.i_gid,
        raw.i_links_count,
        raw.i_file_acl_high,
    ];
    let form = InodeFlags::INLINE_DATA.union(InodeFlags::CASEFOLD);
    others.iter().all(|field| field.get() == 0)
        && raw.i_file_acl_lo.get() == 0
        && !subject.flags().intersects(form)
}

/// Notes the reserved inodes, which are in use whatever they hold.
pub fn note_reserved(state: &State<'_>) {
    for ino in (1..state.geometry().first_ino).map(Ino) {
        if ino != Ino::ROOT && state.inodes.get(ino).kind == Kind::Unused {
            state.inodes.set(ino, Kind::Reserved, false, 0);
        }
    }
}

/// Makes an empty root directory, if there is none.
pub fn root(state: &mut State<'_>) -> Result<()> {
    if state.inodes.get(Ino::ROOT).kind == Kind::File(FileType::Directory) {
        return Ok(());
    }
    if state.volume.inode_place(Ino::ROOT).is_none() {
        // Its inode table must be found first.
        return Ok(());
    }
    let finding = Finding::new(InodeProblem::RootMissing, Place::inode(Ino::ROOT));
    let cause = state.report(finding);
    state.findings.empty_root();
    let geometry = state.geometry().clone();
    let at = state.allocate(
        geometry.group_start(uext4_ondisk::GroupNr(0)),
        1,
        "the root directory",
    )?;
    let format = DirFormat::new(&geometry);
    let mut block = vec![0; geometry.block_size.len()];
    format.fill(&mut block, format.dots(Ino::ROOT, Ino::ROOT).into_iter());
    if let Some(seed) = geometry.csum_seed {
        update_tail(&mut block, seed.inode(Ino::ROOT, 0));
    }
    state.volume.overlay().replace(at, cause, &block)?;
    let has_extents = geometry.features.incompat.contains(Incompat::EXTENTS);
    let mut raw = RawInode::zeroed();
    let now = state.options.now.into();
    (raw.i_atime, raw.i_ctime, raw.i_mtime) = (now, now, now);
    raw.i_mode = (S_IFDIR | 0o755).into();
    raw.i_links_count = 2.into();
    raw.i_size_lo = geometry.block_size.bytes().into();
    if has_extents {
        raw.i_flags = InodeFlags::EXTENTS.bits().into();
        raw.i_block = empty_extent_root();
    }
    let room = usize::from(geometry.inode_size) - GOOD_OLD_INODE_SIZE;
    raw.i_extra_isize = FULL_EXTRA_ISIZE
        .min(u16::try_from(room).unwrap_or(0))
        .into();
    state.volume.update_inode(Ino::ROOT, cause, |bytes| {
        bytes.fill(0);
        let len = bytes.len().min(raw.as_bytes().len());
        bytes[..len].copy_from_slice(&raw.as_bytes()[..len]);
    })?;
    let extent = Extent {
        lblk: Lblk(0),
        len: 1,
        pblk: at,
        unwritten: false,
    };
    mapping::store(state, Ino::ROOT, &FileMap::default(), &[extent], cause)?;
    let kind = Kind::File(FileType::Directory);
    state.inodes.set(Ino::ROOT, kind, false, 2);
    let run = Run {
        lblk: Lblk(0),
        pblk: at,
        len: 1,
    };
    let size = geometry.block_size.bytes().into();
    let flags = raw.i_flags.get();
    state.directories.push(Ino::ROOT, size, flags, 0, &[run]);
    state.directories.sort();
    Ok(())
}
