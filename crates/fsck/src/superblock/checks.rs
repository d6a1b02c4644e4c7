//! The superblock's fields and features that can be judged without anything else, once its shape
//! is known to be right.

use uext4_ondisk::features::{Compat, Features, Incompat, RoCompat};
use uext4_ondisk::inode::{FULL_EXTRA_ISIZE, GOOD_OLD_INODE_SIZE};
use uext4_ondisk::num::len16;
use uext4_ondisk::superblock::{
    FLAGS_SIGNED_HASH, FLAGS_UNSIGNED_HASH, STATE_ERROR, STATE_VALID, SuperBlock,
};
use uext4_ondisk::{Geometry, Ino};
use uuid::Uuid;
use zerocopy::little_endian::U32;

use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::options::Options;
use crate::overlay::Overlay;
use crate::problem::SuperblockProblem;
use crate::report::Findings;

/// `s_creator_os` of Linux.
const OS_LINUX: u32 = 0;
/// `s_creator_os` of the Hurd.
const OS_HURD: u32 = 1;

/// A superblock, and where what changes in it goes.
pub struct Mender<'a> {
    /// As it is by now.
    pub superblock: SuperBlock,
    overlay: &'a Overlay,
    findings: &'a Findings<'a>,
}

impl<'a> Mender<'a> {
    /// Of this superblock.
    pub fn new(superblock: SuperBlock, overlay: &'a Overlay, findings: &'a Findings<'a>) -> Self {
        Self {
            superblock,
            overlay,
            findings,
        }
    }

    /// Reports a finding and applies its remedy.
    ///
    /// # Errors
    /// Of the device and of the overlay.
    pub fn mend(&mut self, finding: Finding, change: impl FnOnce(&mut SuperBlock)) -> Result<()> {
        let cause = self.findings.report(finding);
        change(&mut self.superblock);
        self.superblock.update_checksum();
        super::put(self.overlay, cause, &self.superblock)
    }

    fn features(
        &mut self,
        problem: SuperblockProblem,
        change: impl FnOnce(&mut Features),
    ) -> Result<()> {
        self.mend(Finding::new(problem, Place::whole()), |superblock| {
            let mut features = superblock.features();
            change(&mut features);
            superblock.set_features(features);
        })
    }
}

/// The last hash version of names: SipHash.
const HASH_VERSION_MAX: u8 = 5;
/// The one that mke2fs writes.
const HALF_MD4: u8 = 1;

/// The largest `s_log_groups_per_flex`: the number of groups has 32 bits.
const LOG_GROUPS_PER_FLEX_MAX: u8 = 31;

/// Checks everything, and mends it in the overlay.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(mender: &mut Mender<'_>, geometry: &Geometry, options: &Options) -> Result<()> {
    features(mender)?;
    unused_fields(mender)?;
    counts(mender, geometry)?;
    extra_sizes(mender, geometry)?;
    quota_inodes(mender, geometry)?;
    times(mender, options.now)?;
    marks(mender)
}

fn features(mender: &mut Mender<'_>) -> Result<()> {
    let features = mender.superblock.features();
    let has_compat = |bit| features.compat.contains(bit);
    let has_incompat = |bit| features.incompat.contains(bit);
    let has_ro = |bit| features.ro_compat.contains(bit);
    if has_compat(Compat::RESIZE_INODE) && has_incompat(Incompat::META_BG) {
        mender.features(SuperblockProblem::MetaGroupsAndResize, |features| {
            features.compat.remove(Compat::RESIZE_INODE);
        })?;
    }
    let reserved = mender.superblock.s_reserved_gdt_blocks.get();
    let resize = mender.superblock.features().compat;
    if reserved != 0 && !resize.contains(Compat::RESIZE_INODE) {
        let finding = Finding::new(SuperblockProblem::ReservedDescriptors, Place::whole());
        mender.mend(finding.found(reserved), |superblock| {
            superblock.s_reserved_gdt_blocks = 0.into();
        })?;
    }
    let version = mender.superblock.s_def_hash_version;
    if version > HASH_VERSION_MAX {
        // The kernel refuses to mount with it.
        let finding = Finding::new(SuperblockProblem::HashVersion, Place::whole());
        mender.mend(finding.found(version), |superblock| {
            superblock.s_def_hash_version = HALF_MD4;
        })?;
    }
    if has_ro(RoCompat::METADATA_CSUM) && has_ro(RoCompat::GDT_CSUM) {
        mender.features(SuperblockProblem::GdtAndMetadataChecksums, |features| {
            features.ro_compat.remove(RoCompat::GDT_CSUM);
        })?;
    }
    if has_incompat(Incompat::CSUM_SEED) && !has_ro(RoCompat::METADATA_CSUM) {
        mender.features(SuperblockProblem::SeedWithoutChecksums, |features| {
            features.incompat.remove(Incompat::CSUM_SEED);
        })?;
    }
    if has_incompat(Incompat::BIT64) && !has_incompat(Incompat::EXTENTS) {
        mender.features(SuperblockProblem::WideWithoutExtents, |features| {
            features.incompat.insert(Incompat::EXTENTS);
        })?;
    }
    if has_ro(RoCompat::BIGALLOC) && !has_incompat(Incompat::EXTENTS) && has_single_blocks(mender) {
        // The kernel refuses to mount it; with clusters of one block nothing else says so.
        mender.features(SuperblockProblem::ClustersWithoutExtents, |features| {
            features.ro_compat.remove(RoCompat::BIGALLOC);
        })?;
    }
    let hurd = mender.superblock.s_creator_os.get() == OS_HURD;
    if hurd && has_incompat(Incompat::BIT64) {
        // The kernel refuses to mount it.
        let finding = Finding::new(SuperblockProblem::HurdWide, Place::whole());
        mender.mend(finding, |superblock| {
            superblock.s_creator_os = OS_LINUX.into();
        })?;
    } else if hurd && has_incompat(Incompat::FILETYPE) {
        mender.features(SuperblockProblem::Hurd, |features| {
            features.incompat.remove(Incompat::FILETYPE);
        })?;
    }
    Ok(())
}

/// Whether clusters are as large as blocks.
fn has_single_blocks(mender: &Mender<'_>) -> bool {
    let superblock = &mender.superblock;
    superblock.s_log_cluster_size == superblock.s_log_block_size
}

/// Fields that count only with a feature which is not set. The kernel does not look at them then;
/// libext2fs refuses a file system in which they cannot be.
fn unused_fields(mender: &mut Mender<'_>) -> Result<()> {
    let incompat = mender.superblock.features().incompat;
    let size = mender.superblock.s_desc_size.get();
    if !incompat.contains(Incompat::BIT64) && size != 0 && !size.is_power_of_two() {
        let finding = Finding::new(SuperblockProblem::DescriptorSize, Place::whole());
        mender.mend(finding.found(size), |superblock| {
            superblock.s_desc_size = 0.into();
        })?;
    }
    let log = mender.superblock.s_log_groups_per_flex;
    if !incompat.contains(Incompat::FLEX_BG) && log > LOG_GROUPS_PER_FLEX_MAX {
        let finding = Finding::new(SuperblockProblem::FlexGroups, Place::whole());
        mender.mend(finding.found(log), |superblock| {
            superblock.s_log_groups_per_flex = 0;
        })?;
    }
    Ok(())
}

fn counts(mender: &mut Mender<'_>, geometry: &Geometry) -> Result<()> {
    let reserved = mender.superblock.reserved_blocks_count();
    if reserved > geometry.blocks_count / 2 {
        let right = geometry.blocks_count / 20;
        let finding = Finding::new(SuperblockProblem::ReservedBlocks, Place::whole());
        mender.mend(finding.found(reserved).right(right), |superblock| {
            superblock.s_r_blocks_count_lo = uext4_ondisk::num::lo32(right).into();
            superblock.s_r_blocks_count_hi = uext4_ondisk::num::hi32(right).into();
        })?;
    }
    let superblock = &mender.superblock;
    let depends = superblock.features().metadata_csum()
        || superblock.features().ro_compat.contains(RoCompat::GDT_CSUM);
    if superblock.s_uuid == [0; 16] && !depends {
        let finding = Finding::new(SuperblockProblem::NoUuid, Place::whole());
        mender.mend(finding, |superblock| {
            superblock.s_uuid = Uuid::new_v4().into_bytes()
        })?;
    }
    Ok(())
}

fn extra_sizes(mender: &mut Mender<'_>, geometry: &Geometry) -> Result<()> {
    let room = geometry
        .inode_size
        .saturating_sub(len16(GOOD_OLD_INODE_SIZE));
    if room == 0 {
        return Ok(());
    }
    let right = FULL_EXTRA_ISIZE.min(room);
    let is_wrong = |size: u16| size != 0 && (size < 4 || size > room || !size.is_multiple_of(4));
    let required = mender.superblock.s_min_extra_isize.get();
    if is_wrong(required) {
        let finding = Finding::new(SuperblockProblem::RequiredExtra, Place::whole());
        mender.mend(finding.found(required).right(right), |superblock| {
            superblock.s_min_extra_isize = right.into();
        })?;
    }
    let wanted = mender.superblock.s_want_extra_isize.get();
    if is_wrong(wanted) {
        let finding = Finding::new(SuperblockProblem::WantedExtra, Place::whole());
        mender.mend(finding.found(wanted).right(right), |superblock| {
            superblock.s_want_extra_isize = right.into();
        })?;
    }
    Ok(())
}

type QuotaField = fn(&mut SuperBlock) -> &mut U32;

fn quota_inodes(mender: &mut Mender<'_>, geometry: &Geometry) -> Result<()> {
    let fields: [(&[u8], u32, QuotaField); 3] = [
        (b"s_usr_quota_inum", Ino::USER_QUOTA.0, |s| {
            &mut s.s_usr_quota_inum
        }),
        (b"s_grp_quota_inum", Ino::GROUP_QUOTA.0, |s| {
            &mut s.s_grp_quota_inum
        }),
        (b"s_prj_quota_inum", 0, |s| &mut s.s_prj_quota_inum),
    ];
    for (name, reserved, field) in fields {
        let ino = field(&mut mender.superblock).get();
        let is_file = ino >= geometry.first_ino && ino <= geometry.inodes_count;
        if ino == 0 || ino == reserved || is_file {
            continue;
        }
        let finding = Finding::new(SuperblockProblem::QuotaInode, Place::whole().name(name));
        mender.mend(finding.found(ino), |superblock| {
            *field(superblock) = U32::ZERO
        })?;
    }
    Ok(())
}

fn times(mender: &mut Mender<'_>, now: u32) -> Result<()> {
    // A clock may be off by a day, as a battery that is replaced.
    let late = |seconds: u32, high: u8| high == 0 && seconds > now.saturating_add(86_400);
    if now == 0 {
        return Ok(());
    }
    let (mount, high) = (
        mender.superblock.s_mtime.get(),
        mender.superblock.s_mtime_hi,
    );
    if late(mount, high) {
        let finding = Finding::new(SuperblockProblem::MountedInFuture, Place::whole());
        mender.mend(finding.found(mount).right(now), |superblock| {
            superblock.s_mtime = now.into();
        })?;
    }
    let (write, high) = (
        mender.superblock.s_wtime.get(),
        mender.superblock.s_wtime_hi,
    );
    if late(write, high) {
        let finding = Finding::new(SuperblockProblem::WrittenInFuture, Place::whole());
        mender.mend(finding.found(write).right(now), |superblock| {
            superblock.s_wtime = now.into();
        })?;
    }
    Ok(())
}

/// Marks that earlier errors left, and the sign of hashes.
fn marks(mender: &mut Mender<'_>) -> Result<()> {
    let state = mender.superblock.s_state.get();
    if state & STATE_ERROR != 0 {
        let finding = Finding::new(SuperblockProblem::MarkedWithErrors, Place::whole());
        mender.mend(finding.found(state), |superblock| {
            superblock.s_state = (state & !STATE_ERROR | STATE_VALID).into();
            superblock.s_error_count = 0.into();
        })?;
    }
    let signs = FLAGS_SIGNED_HASH | FLAGS_UNSIGNED_HASH;
    let indexed = mender
        .superblock
        .features()
        .compat
        .contains(Compat::DIR_INDEX);
    if indexed && mender.superblock.s_flags.get() & signs == 0 {
        let finding = Finding::new(SuperblockProblem::HashSign, Place::whole());
        mender.mend(finding, |superblock| {
            superblock.s_flags = (superblock.s_flags.get() | FLAGS_SIGNED_HASH).into();
        })?;
    }
    Ok(())
}
