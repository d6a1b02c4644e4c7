//! One inode under examination: its fields as they are by now, and the order of its checks.

use uext4_ondisk::features::{Incompat, RoCompat};
use uext4_ondisk::inode::{
    FULL_EXTRA_ISIZE, FileType, GOOD_OLD_INODE_SIZE, InodeFlags, RawInode, inode_checksum,
    stored_checksum,
};
use uext4_ondisk::quota::QuotaKind;
use uext4_ondisk::xattr::EXT4_XATTR_MAGIC;
use uext4_ondisk::{Damage, Ino};

use super::worker::Worker;
use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::inode_map::Kind;
use crate::problem::InodeProblem;
use crate::report::Cause;
use crate::volume::generation;

/// An inode in use.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'i> {
    pub ino: Ino,
    /// The fields, with the remedies so far.
    pub raw: RawInode,
    /// All bytes of the inode as they were.
    pub bytes: &'i [u8],
    /// Whether a remedy took the inode out of use.
    pub is_cleared: bool,
}

impl Subject<'_> {
    pub fn flags(&self) -> InodeFlags {
        InodeFlags::from_bits_retain(self.raw.i_flags.get())
    }

    pub fn has(&self, flags: InodeFlags) -> bool {
        self.flags().contains(flags)
    }

    pub fn file_type(&self) -> Option<FileType> {
        FileType::from_mode(self.raw.i_mode.get())
    }

    pub fn size(&self) -> u64 {
        u64::from(self.raw.i_size_high.get()) << 32 | u64::from(self.raw.i_size_lo.get())
    }

    pub fn finding(&self, problem: InodeProblem) -> Finding {
        Finding::new(problem, Place::inode(self.ino))
    }
}

impl Worker<'_, '_> {
    /// Reports a finding and applies its remedy.
    pub fn mend(
        &self,
        subject: &mut Subject<'_>,
        finding: Finding,
        change: impl Fn(&mut RawInode),
    ) -> Result<Cause> {
        let cause = self.state.report(finding);
        change(&mut subject.raw);
        let volume = &self.state.volume;
        volume.update_raw_inode(subject.ino, cause, change)?;
        Ok(cause)
    }

    /// Reports a finding that leaves nothing of the inode.
    pub fn clear(&self, subject: &mut Subject<'_>, finding: Finding) -> Result<()> {
        let cause = self.state.report(finding);
        subject.is_cleared = true;
        // The generation stays, so that old handles do not fit what comes in its place.
        let generation = subject.raw.i_generation;
        let now = self.common.system.now;
        self.state.volume.update_inode(subject.ino, cause, |bytes| {
            bytes.fill(0);
            let raw = RawInode {
                i_generation: generation,
                i_dtime: now.into(),
                ..RawInode::zeroed()
            };
            raw.store(bytes);
        })
    }

    /// Examines one inode of a table.
    pub fn inode(&mut self, ino: Ino, bytes: &[u8]) -> Result<()> {
        if is_zero(bytes) {
            return Ok(());
        }
        let Some(raw) = self.parse(ino, bytes)? else {
            return Ok(());
        };
        let mut subject = Subject {
            ino,
            raw,
            bytes,
            is_cleared: false,
        };
        if self.common.system.is_hurd {
            subject.raw.i_file_acl_high = 0.into();
            subject.raw.i_blocks_high = 0.into();
        }
        self.lost_type(&mut subject)?;
        self.checksum(&mut subject)?;
        if subject.is_cleared {
            return Ok(());
        }
        if !self.is_in_use(ino, &subject.raw) {
            return self.unused(&mut subject);
        }
        self.fields(&mut subject)?;
        if subject.is_cleared {
            return Ok(());
        }
        self.blocks(&mut subject)?;
        if !subject.is_cleared {
            self.note(&subject);
        }
        Ok(())
    }

    /// The known fields. An inode whose extra fields cannot be is read again without them.
    fn parse(&self, ino: Ino, bytes: &[u8]) -> Result<Option<RawInode>> {
        let found = match RawInode::parse(bytes, ino) {
            Ok(raw) if !has_lost_extra(&raw, bytes) => return Ok(Some(raw)),
            Ok(raw) => raw.i_extra_isize.get(),
            Err(Damage::InodeExtraSize { extra_isize, .. }) => extra_isize,
            Err(_) => return Ok(None),
        };
        let mut copy = bytes.to_vec();
        let at = GOOD_OLD_INODE_SIZE..GOOD_OLD_INODE_SIZE + 2;
        let right = FULL_EXTRA_ISIZE.min(u16::try_from(bytes.len() - at.start).unwrap_or(0));
        let store = |bytes: &mut [u8]| {
            let field = zerocopy::little_endian::U16::new(right).to_bytes();
            bytes[at.clone()].copy_from_slice(&field);
        };
        store(&mut copy);
        let raw = RawInode::parse(&copy, ino).ok();
        if raw.is_none_or(|raw| self.may_stay_unused(ino, &raw, bytes)) {
            return Ok(None);
        }
        let finding = Finding::new(InodeProblem::ExtraSize, Place::inode(ino));
        let cause = self.state.report(finding.found(found).right(right));
        self.state.volume.update_inode(ino, cause, store)?;
        Ok(raw)
    }

    /// Whether nothing matters of an inode: it is not in use, and what says so can be believed.
    fn may_stay_unused(&self, ino: Ino, raw: &RawInode, bytes: &[u8]) -> bool {
        let is_right = self.state.geometry().csum_seed.is_none_or(|seed| {
            stored_checksum(bytes) == inode_checksum(bytes, seed, ino, generation(bytes))
        });
        is_right && !self.is_in_use(ino, raw) && self.is_deleted(raw)
    }

    fn checksum(&self, subject: &mut Subject<'_>) -> Result<()> {
        let Some(seed) = self.state.geometry().csum_seed else {
            return Ok(());
        };
        let (ino, bytes) = (subject.ino, subject.bytes);
        let stored = stored_checksum(bytes);
        let right = inode_checksum(bytes, seed, ino, generation(bytes));
        if stored == right {
            return Ok(());
        }
        let finding = |problem| subject.finding(problem).found(stored).right(right);
        let proves = !self.state.options.make.is_resummed;
        if proves && self.is_garbage(subject) {
            let finding = finding(InodeProblem::Garbage);
            return self.clear(subject, finding);
        }
        let cause = self.state.report(finding(InodeProblem::Checksum));
        // Storing computes it.
        self.state.volume.update_inode(ino, cause, |_| ())
    }

    fn is_in_use(&self, ino: Ino, raw: &RawInode) -> bool {
        // Reserved inodes are in use whether or not they have links.
        let reserved = ino.0 < self.state.geometry().first_ino;
        raw.i_links_count.get() != 0 || reserved
    }

    /// Whether an inode that is not in use was deleted, or never used.
    fn is_deleted(&self, raw: &RawInode) -> bool {
        let deleted = raw.i_dtime.get();
        !self.is_orphan_link(deleted) && (raw.i_mode.get() == 0 || deleted != 0)
    }

    fn unused(&self, subject: &mut Subject<'_>) -> Result<()> {
        if self.is_deleted(&subject.raw) {
            return Ok(());
        }
        let now = self.common.system.now;
        let finding = subject.finding(InodeProblem::NoDeletionTime);
        self.mend(subject, finding, |raw| raw.i_dtime = now.into())?;
        Ok(())
    }

    /// Whether a deletion time must be the number of the next orphan: no inode was deleted so
    /// soon after 1970, if the file system's own times are later.
    pub fn is_orphan_link(&self, deleted: u32) -> bool {
        deleted != 0 && deleted < self.common.system.times_from
    }

    /// Notes an inode in use for the next passes.
    fn note(&mut self, subject: &Subject<'_>) {
        let Subject { ino, raw, .. } = subject;
        let reserved = ino.0 < self.state.geometry().first_ino && *ino != Ino::ROOT;
        let kind = match subject.file_type() {
            _ if reserved || self.common.system.is_named(*ino) => Kind::Reserved,
            Some(file_type) => Kind::File(file_type),
            None => return,
        };
        let features = self.state.geometry().features.incompat;
        let is_ea_inode =
            features.contains(Incompat::EA_INODE) && subject.has(InodeFlags::EA_INODE);
        let links = raw.i_links_count.get();
        self.state.inodes.set(*ino, kind, is_ea_inode, links);
        if kind == Kind::File(FileType::Directory) {
            let flags = raw.i_flags.get();
            let generation = raw.i_generation.get();
            let size = subject.size();
            self.found
                .directories
                .push(*ino, size, flags, generation, &self.runs);
        }
    }

    /// Adds what an inode uses to the usage of its owners: the bytes of its blocks, and the
    /// inodes that hold values of its attributes. Those count for their attributes' inode alone.
    pub fn count_usage(&mut self, subject: &Subject<'_>, bytes: u64, values: u32) {
        let features = self.state.geometry().features.ro_compat;
        let reserved = subject.ino.0 < self.state.geometry().first_ino;
        let is_counted = subject.ino == Ino::ROOT || !reserved;
        let is_system = self.common.system.is_named(subject.ino);
        let is_value = subject.has(InodeFlags::EA_INODE);
        if !features.contains(RoCompat::QUOTA) || !is_counted || is_system || is_value {
            return;
        }
        let raw = &subject.raw;
        let uid = u32::from(raw.i_uid_high.get()) << 16 | u32::from(raw.i_uid.get());
        let gid = u32::from(raw.i_gid_high.get()) << 16 | u32::from(raw.i_gid.get());
        let usage = &mut self.found.usage;
        let mut add = |kind, owner| {
            usage.add(kind, owner, bytes);
            if values > 0 {
                usage.add_inodes(kind, owner, values.into());
            }
        };
        add(QuotaKind::User, uid);
        add(QuotaKind::Group, gid);
        if features.contains(RoCompat::PROJECT) {
            add(QuotaKind::Project, raw.i_projid.get());
        }
    }
}

/// Whether an inode says that it has no extra fields, and has attributes where they lie behind
/// those fields: the kernel would not see them, nor contents that are among them.
fn has_lost_extra(raw: &RawInode, bytes: &[u8]) -> bool {
    let magic = |at: usize| {
        let bytes = bytes.get(at..).and_then(|bytes| bytes.first_chunk::<4>());
        bytes.is_some_and(|magic| u32::from_le_bytes(*magic) == EXT4_XATTR_MAGIC)
    };
    let behind = GOOD_OLD_INODE_SIZE + usize::from(FULL_EXTRA_ISIZE);
    raw.i_extra_isize.get() == 0
        && raw.i_links_count.get() != 0
        && magic(behind)
        && !magic(GOOD_OLD_INODE_SIZE)
}

fn is_zero(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<16>();
    words.iter().all(|word| *word == [0; 16]) && rest.iter().all(|byte| *byte == 0)
}
