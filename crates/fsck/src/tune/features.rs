//! Features that are set and cleared, with the fields and inodes that belong to them.
//!
//! Here is what the passes cannot know: what is wanted, and what is refused. Everything else that
//! follows they find by themselves.

use uext4_ondisk::features::{Compat, FeatureBit, Incompat, RoCompat};
use uext4_ondisk::group_desc::{DESC_SIZE_32, DESC_SIZE_64};
use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::num::{len16, lo16};
use uext4_ondisk::quota::QuotaKind;
use uext4_ondisk::superblock::{CHECKSUM_TYPE_CRC32C, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Ino, Pblk};
use zerocopy::IntoBytes;
use zerocopy::little_endian::U32;

mod journal;

use super::change::{refused, set_hash_seed, set_uuid};
use super::{Amount, Change};
use crate::error::Result;
use crate::fixed_places::{MetadataOwner, for_each_metadata};
use crate::make::{default_orphan_blocks, set_feature};
use crate::options::Make;
use crate::used_inodes::for_each_inode;
use crate::volume::Volume;
use journal::Wished;

/// `s_encoding`: UTF-8 of Unicode 12.1.
const ENCODING_UTF8_12_1: u16 = 1;
/// Smallest inode with room for the number of a project.
const PROJECT_INODE_SIZE: u16 = 256;
/// `s_encoding_flags`: names that are no text in the encoding are refused.
const ENCODING_STRICT: u16 = 1;
/// Most copies of all blocks of descriptors that are written, where each group has one.
const COPIES_MAX: u64 = 1 << 18;
/// Most groups that have copies with `sparse_super`: 1, and the powers of 3, 5 and 7 in 32 bits.
const SPARSE_MAX: u64 = 45;
/// Fewest and most blocks of an orphan file: the kernel mounts no more.
const ORPHAN_BLOCKS: std::ops::RangeInclusive<u64> = 1..=512;

/// What the file system is to become.
pub struct Target {
    /// The superblock that is wanted.
    pub superblock: SuperBlock,
    /// What the passes are to make.
    pub make: Make,
    /// Inodes that are no longer used.
    pub cleared: Vec<Ino>,
    /// Whether the indexes of all directories are built anew.
    pub rebuilds_directories: bool,
    /// Blocks for fast commits at the end of the journal that is there.
    pub fast_commit_area: Option<u32>,
    /// Whether the next fsck examines everything.
    pub forces_check: bool,
    wished: Wished,
    before: SuperBlock,
    geometry: Geometry,
}

impl Target {
    /// As it is.
    pub fn new(volume: &Volume) -> Self {
        let before = volume.superblock();
        Self {
            superblock: before,
            make: Make::default(),
            cleared: Vec::new(),
            rebuilds_directories: false,
            fast_commit_area: None,
            forces_check: false,
            wished: Wished::default(),
            before,
            geometry: volume.geometry().clone(),
        }
    }

    /// Whether anything is to be another than it is.
    pub fn is_change(&self) -> bool {
        self.make != Make::default()
            || self.fast_commit_area.is_some()
            || self.superblock.as_bytes() != self.before.as_bytes()
    }

    /// Applies one change.
    ///
    /// # Errors
    /// [`crate::Error::Refused`] if it cannot be made.
    pub fn apply(&mut self, change: &Change) -> Result<()> {
        self.forces_check |= matches!(change, Change::ForceFsck);
        if change.apply_alone(&mut self.superblock)? {
            return Ok(());
        }
        match change {
            Change::Uuid(uuid) => set_uuid(&mut self.superblock, *uuid).map(drop),
            Change::HashSeed(seed) => {
                set_hash_seed(&mut self.superblock, seed);
                self.rebuilds_directories = true;
                Ok(())
            }
            Change::JournalSize(bytes) => {
                self.wished.log = Some(*bytes);
                self.new_journal()
            }
            Change::JournalPlace(place) => {
                self.wished.place = Some(*place);
                self.new_journal()
            }
            Change::FastCommitSize(bytes) => {
                self.wished.fast_commits = Some(*bytes);
                match self.before.features().compat.contains(Compat::HAS_JOURNAL) {
                    true => Ok(()),
                    false => self.new_journal(),
                }
            }
            Change::ForgetJournalDevice => {
                self.wished.forgets_device = true;
                Ok(())
            }
            Change::Encoding { is_strict } => self.encoding(*is_strict),
            Change::OrphanFileSize(size) => {
                let blocks = match *size {
                    Amount::Blocks(blocks) => blocks,
                    Amount::Bytes(bytes) => self.geometry.block_size.blocks_for(bytes),
                };
                if !ORPHAN_BLOCKS.contains(&blocks) {
                    return refused(format!(
                        "an orphan file of {blocks} blocks cannot be: it has 1 to 512"
                    ));
                }
                self.make.orphan_file_blocks = u32::try_from(blocks).ok();
                Ok(())
            }
            Change::Quota { kind, is_on } => self.quota(*kind, *is_on),
            Change::InodeSize(bytes) => self.inode_size(*bytes),
            Change::Feature { feature, is_on } if self.is_so(feature.bit, *is_on) => Ok(()),
            Change::Feature { feature, is_on } => match feature.bit {
                FeatureBit::Compat(bit) => self.compat(bit, *is_on),
                FeatureBit::Incompat(bit) => self.incompat(bit, *is_on),
                FeatureBit::RoCompat(bit) => self.ro_compat(bit, *is_on),
            },
            _ => Ok(()),
        }
    }

    /// Whether a feature is as it is to be. `quota` stands for users and groups: that a project
    /// quota of the same list has set it is not all that is wanted.
    fn is_so(&self, bit: FeatureBit, is_on: bool) -> bool {
        let features = match (bit, is_on) {
            (FeatureBit::RoCompat(RoCompat::QUOTA), true) => self.before.features(),
            _ => self.features(),
        };
        bit.is_in(features) == is_on
    }

    fn features(&self) -> uext4_ondisk::features::Features {
        self.superblock.features()
    }

    fn set(&mut self, bit: FeatureBit, is_on: bool) -> Result<()> {
        set_feature(&mut self.superblock, bit, is_on);
        Ok(())
    }

    fn compat(&mut self, bit: Compat, is_on: bool) -> Result<()> {
        match (bit, is_on) {
            (Compat::HAS_JOURNAL, true) => {
                self.superblock.s_journal_inum = Ino::JOURNAL.0.into();
                self.superblock.s_journal_dev = 0.into();
                self.superblock.s_journal_uuid = [0; 16];
            }
            (Compat::HAS_JOURNAL, false) => return self.no_journal(),
            (Compat::DIR_INDEX, _) => self.rebuilds_directories = true,
            (Compat::RESIZE_INODE, false) => {
                self.superblock.s_reserved_gdt_blocks = 0.into();
                self.cleared.push(Ino::RESIZE);
            }
            (Compat::ORPHAN_FILE, true) => {
                if !self.features().compat.contains(Compat::HAS_JOURNAL) {
                    return refused("orphan_file needs a journal: set has_journal, too");
                }
                let blocks = default_orphan_blocks(self.geometry.blocks_count);
                self.make.orphan_file_blocks.get_or_insert(blocks);
                // The feature is set when the file is there.
                return Ok(());
            }
            (Compat::ORPHAN_FILE, false) => {
                self.cleared
                    .push(Ino(self.superblock.s_orphan_file_inum.get()));
                self.superblock.s_orphan_file_inum = 0.into();
            }
            (Compat::STABLE_INODES | Compat::FAST_COMMIT, _) => {}
            _ => return cannot(FeatureBit::Compat(bit), is_on),
        }
        self.set(FeatureBit::Compat(bit), is_on)
    }

    fn incompat(&mut self, bit: Incompat, is_on: bool) -> Result<()> {
        let has_sums = self.features().metadata_csum();
        match (bit, is_on) {
            (Incompat::BIT64, _) => return self.descriptor_size(is_on),
            (Incompat::CSUM_SEED, true) if !has_sums => {
                return refused("metadata_csum_seed needs metadata_csum: set it, too");
            }
            (Incompat::CSUM_SEED, true) => {
                self.superblock.store_seed();
            }
            (Incompat::CSUM_SEED, false) => self.superblock.s_checksum_seed = 0.into(),
            (Incompat::MMP, true) => {
                self.make.is_with_mmp = true;
                // The feature is set when the block is there.
                return Ok(());
            }
            (Incompat::MMP, false) => {
                self.superblock.s_mmp_block = 0.into();
                self.superblock.s_mmp_interval = 0.into();
            }
            (Incompat::CASEFOLD, true) => return self.encoding(false),
            (Incompat::CASEFOLD, false) => {
                self.superblock.s_encoding = 0.into();
                self.superblock.s_encoding_flags = 0.into();
            }
            (Incompat::FILETYPE | Incompat::FLEX_BG, _) => {}
            (
                Incompat::EXTENTS | Incompat::EA_INODE | Incompat::LARGEDIR | Incompat::ENCRYPT,
                true,
            ) => {}
            _ => return cannot(FeatureBit::Incompat(bit), is_on),
        }
        self.set(FeatureBit::Incompat(bit), is_on)
    }

    fn encoding(&mut self, is_strict: bool) -> Result<()> {
        let has = |superblock: &SuperBlock| {
            let features = superblock.features();
            features.incompat.contains(Incompat::CASEFOLD)
        };
        if has(&self.before) && has(&self.superblock) {
            return refused(
                "the file system has an encoding, which names may depend on: only where -O \
                 ^casefold can clear it, another can be set",
            );
        }
        self.superblock.s_encoding = ENCODING_UTF8_12_1.into();
        let flags = if is_strict { ENCODING_STRICT } else { 0 };
        self.superblock.s_encoding_flags = flags.into();
        self.set(FeatureBit::Incompat(Incompat::CASEFOLD), true)
    }

    /// Descriptors of 64 bytes, or of 32. Those that are reserved for growing are used up first.
    fn descriptor_size(&mut self, is_on: bool) -> Result<()> {
        let features = self.features();
        if is_on && !features.incompat.contains(Incompat::EXTENTS) {
            return refused("64bit needs extents for its block numbers: set extent, too");
        }
        let (blocks, clusters) = (self.geometry.blocks_count, self.geometry.clusters_per_group);
        if !is_on && (blocks > u32::MAX.into() || clusters.get() > u16::MAX.into()) {
            return refused(format!(
                "64bit cannot be cleared: the file system has {blocks} blocks, and {clusters} \
                 clusters in a group; without it 4294967295 and 65535 are the most"
            ));
        }
        if is_on {
            // These words counted for nothing.
            self.superblock.s_blocks_count_hi = 0.into();
            self.superblock.s_r_blocks_count_hi = 0.into();
            self.superblock.s_free_blocks_count_hi = 0.into();
        }
        self.superblock.s_desc_size = if is_on { len16(DESC_SIZE_64) } else { 0 }.into();
        self.set(FeatureBit::Incompat(Incompat::BIT64), is_on)?;
        if features.incompat.contains(Incompat::META_BG) {
            // Smaller ones may all lie before the first that lies in its meta group.
            let size = if is_on { DESC_SIZE_64 } else { DESC_SIZE_32 };
            let per_block = self.geometry.block_size.bytes() / u32::from(len16(size));
            let after = self.geometry.groups_count.get().div_ceil(per_block.max(1));
            let first = self.superblock.s_first_meta_bg.get().min(after);
            self.superblock.s_first_meta_bg = first.into();
        }
        if features.compat.contains(Compat::RESIZE_INODE) {
            let after = self.geometry()?.gdt_blocks();
            let reserved = u32::from(self.superblock.s_reserved_gdt_blocks.get());
            let reserved = (reserved + self.geometry.gdt_blocks()).saturating_sub(after);
            let reserved = reserved.min(self.geometry.block_size.bytes() / 4);
            self.superblock.s_reserved_gdt_blocks = lo16(reserved).into();
        }
        // The kernel counts it when it is zero.
        self.superblock.s_overhead_clusters = 0.into();
        Ok(())
    }

    fn inode_size(&mut self, bytes: u64) -> Result<()> {
        let now = u64::from(self.geometry.inode_size);
        let most = u64::from(self.geometry.block_size.bytes());
        if bytes == now {
            return Ok(());
        }
        if bytes < now {
            return refused(format!(
                "the size of inodes cannot become {bytes}: they have {now} bytes, which may all be \
                 in use; `uext4 build --base IMAGE -I {bytes} -o NEW` makes an image of the same \
                 files"
            ));
        }
        if !bytes.is_power_of_two() || bytes > most {
            return refused(format!(
                "the size of inodes cannot become {bytes}: it is a power of two, and the {most} \
                 bytes of a block are the most"
            ));
        }
        if self.superblock.s_rev_level.get() == 0 {
            return refused("the format of revision 0 has inodes of 128 bytes alone");
        }
        // OK: at most a block, of 65536 bytes.
        self.superblock.s_inode_size = u16::try_from(bytes).unwrap_or(u16::MAX).into();
        self.superblock.s_overhead_clusters = 0.into();
        self.geometry().map(drop)
    }

    /// The shape that is wanted.
    ///
    /// # Errors
    /// [`crate::Error::Refused`] if none can be like that.
    pub fn geometry(&self) -> Result<Geometry> {
        Geometry::new(&self.superblock)
            .or_else(|damage| refused(format!("the file system cannot have this shape: {damage}")))
    }

    fn ro_compat(&mut self, bit: RoCompat, is_on: bool) -> Result<()> {
        match (bit, is_on) {
            (RoCompat::METADATA_CSUM, true) => {
                self.superblock.s_checksum_type = CHECKSUM_TYPE_CRC32C;
                self.set(FeatureBit::RoCompat(RoCompat::GDT_CSUM), false)?;
            }
            (RoCompat::METADATA_CSUM, false) => {
                self.superblock.s_checksum_type = 0;
                self.superblock.s_checksum = 0.into();
                self.superblock.s_checksum_seed = 0.into();
                self.set(FeatureBit::Incompat(Incompat::CSUM_SEED), false)?;
                // As tune2fs: descriptors that say what was never initialised stay true.
                self.set(FeatureBit::RoCompat(RoCompat::GDT_CSUM), true)?;
            }
            // Descriptors are summed already.
            (RoCompat::GDT_CSUM, true) if self.features().metadata_csum() => return Ok(()),
            (RoCompat::QUOTA, true) => {
                self.quota(QuotaKind::User, true)?;
                self.quota(QuotaKind::Group, true)?;
            }
            (RoCompat::QUOTA, false) => {
                for kind in [QuotaKind::User, QuotaKind::Group, QuotaKind::Project] {
                    self.quota(kind, false)?;
                }
            }
            (RoCompat::PROJECT, _) => return self.quota(QuotaKind::Project, is_on),
            (
                RoCompat::GDT_CSUM
                | RoCompat::LARGE_FILE
                | RoCompat::HUGE_FILE
                | RoCompat::DIR_NLINK
                | RoCompat::EXTRA_ISIZE
                | RoCompat::READONLY,
                _,
            ) => {}
            (RoCompat::SPARSE_SUPER | RoCompat::VERITY, true) => {}
            _ => return cannot(FeatureBit::RoCompat(bit), is_on),
        }
        self.set(FeatureBit::RoCompat(bit), is_on)
    }

    fn quota(&mut self, kind: QuotaKind, is_on: bool) -> Result<()> {
        if is_on && kind == QuotaKind::Project {
            self.must_have_room_for_projects()?;
        }
        let number = number_of(&mut self.superblock, kind);
        match (is_on, number.get()) {
            (true, 0) => match kind {
                QuotaKind::User => *number = Ino::USER_QUOTA.0.into(),
                QuotaKind::Group => *number = Ino::GROUP_QUOTA.0.into(),
                QuotaKind::Project => self.make.is_with_project_quota = true,
            },
            (false, ino) if ino != 0 => {
                *number = 0.into();
                self.cleared.push(Ino(ino));
            }
            _ => {}
        }
        if is_on {
            self.set(FeatureBit::RoCompat(RoCompat::QUOTA), true)?;
        }
        if kind == QuotaKind::Project {
            self.set(FeatureBit::RoCompat(RoCompat::PROJECT), is_on)?;
        }
        let kinds = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];
        let superblock = &mut self.superblock;
        let is_any = kinds
            .iter()
            .any(|&kind| number_of(superblock, kind).get() != 0);
        if !is_any && !self.make.is_with_project_quota {
            self.set(FeatureBit::RoCompat(RoCompat::QUOTA), false)?;
        }
        Ok(())
    }

    fn must_have_room_for_projects(&self) -> Result<()> {
        match self.geometry.inode_size {
            PROJECT_INODE_SIZE.. => Ok(()),
            size => refused(format!(
                "inodes of {size} bytes have no room for the number of a project: `uext4 build` a \
                 new image from this one with inodes of 256 bytes"
            )),
        }
    }

    /// What all changes together need: refused if what is there stands against it.
    ///
    /// # Errors
    /// [`crate::Error::Refused`]; of the device.
    pub fn settle(&mut self, volume: &Volume) -> Result<()> {
        let (before, after) = (self.before.features(), self.features());
        let is_cleared =
            |bit: Incompat| before.incompat.contains(bit) && !after.incompat.contains(bit);
        let had_orphan_file = before.compat.contains(Compat::ORPHAN_FILE);
        if had_orphan_file && self.make.orphan_file_blocks.is_some() {
            return refused(
                "the file system has an orphan file: remove it by -O ^orphan_file, then make \
                 another",
            );
        }
        if is_cleared(Incompat::FLEX_BG) && !lies_in_its_groups(volume) {
            return refused(
                "flex_bg cannot be cleared: bitmaps or inode tables lie outside their groups",
            );
        }
        self.settle_journal()?;
        self.copies_can_be_written()?;
        if self.loses_encoding() && any_inode(volume, InodeFlags::CASEFOLD)? {
            return refused(
                "casefold cannot be cleared: directories use it; `chattr -F` clears their flag",
            );
        }
        self.make.is_resummed = self.before.csum_seed() != self.superblock.csum_seed();
        let is_other_seed = self.before.seed() != self.superblock.seed();
        let has_values = before.incompat.contains(Incompat::EA_INODE);
        if is_other_seed && has_values && any_inode(volume, InodeFlags::EA_INODE)? {
            return refused(
                "values of attributes in inodes of their own have hashes that depend on the UUID: \
                 set metadata_csum_seed first, which makes them independent of it",
            );
        }
        Ok(())
    }

    /// Whether names are no longer compared as they were.
    fn loses_encoding(&self) -> bool {
        let encoding = |superblock: &SuperBlock| {
            let features = superblock.features();
            let words = (superblock.s_encoding, superblock.s_encoding_flags);
            (features.incompat.contains(Incompat::CASEFOLD), words)
        };
        let before = encoding(&self.before);
        before.0 && before != encoding(&self.superblock)
    }

    /// Without `sparse_super`, descriptors of another size are the square of the groups.
    fn copies_can_be_written(&self) -> Result<()> {
        let geometry = self.geometry()?;
        let groups = geometry.backup_groups().count() as u64;
        let copies = groups.saturating_mul(geometry.gdt_blocks().into());
        let is_other = geometry.desc_size != self.geometry.desc_size;
        if is_other && groups > SPARSE_MAX && copies > COPIES_MAX {
            return refused(format!(
                "64bit changes all {copies} copies of blocks of descriptors, {COPIES_MAX} are the \
                 most: set sparse_super, too"
            ));
        }
        Ok(())
    }
}

/// Whether the file system that came of it has the features that were wanted.
///
/// # Errors
/// [`crate::Error::Refused`] if what is there needs a feature that was cleared.
pub fn verify(target: &Target, found: &SuperBlock) -> Result<()> {
    let mut right = target.features();
    let make = &target.make;
    if make.is_with_mmp {
        right.incompat.insert(Incompat::MMP);
    }
    if make.orphan_file_blocks.is_some() {
        right.compat.insert(Compat::ORPHAN_FILE);
    }
    let found = found.features();
    let differs = uext4_ondisk::features::FEATURES
        .iter()
        .find(|feature| feature.bit.is_in(found) != feature.bit.is_in(right));
    match differs {
        None => Ok(()),
        Some(feature) if feature.bit.is_in(found) => {
            refused(format!("{} cannot be cleared: files need it", feature.name))
        }
        Some(feature) => refused(format!(
            "{} cannot be set: there is no room for what it needs",
            feature.name
        )),
    }
}

fn number_of(superblock: &mut SuperBlock, kind: QuotaKind) -> &mut U32 {
    match kind {
        QuotaKind::User => &mut superblock.s_usr_quota_inum,
        QuotaKind::Group => &mut superblock.s_grp_quota_inum,
        QuotaKind::Project => &mut superblock.s_prj_quota_inum,
    }
}

fn cannot<T>(bit: FeatureBit, is_on: bool) -> Result<T> {
    let rows = uext4_ondisk::features::FEATURES;
    let name = rows
        .iter()
        .find(|row| row.bit == bit)
        .map_or("?", |row| row.name);
    let verb = if is_on { "set" } else { "cleared" };
    refused(format!(
        "{name} cannot be {verb} in a file system that is there: `uext4 build` makes a new image \
         from its files"
    ))
}

/// Whether all bitmaps and tables lie in the groups that they belong to.
fn lies_in_its_groups(volume: &Volume) -> bool {
    let geometry = volume.geometry();
    let mut lies = true;
    for_each_metadata(geometry, &volume.groups(), |owner, start: Pblk, len| {
        let is_head = matches!(owner, MetadataOwner::Head(_));
        lies &= is_head || geometry.is_in_group(owner.group(), start, len);
    });
    lies
}

fn any_inode(volume: &Volume, flag: InodeFlags) -> Result<bool> {
    let mut found = false;
    for group in (0..volume.geometry().groups_count.get()).map(GroupNr) {
        for_each_inode(volume, group, |used| {
            found |= used.raw.i_flags.get() & flag.bits() != 0;
            Ok(!found)
        })?;
        if found {
            break;
        }
    }
    Ok(found)
}
