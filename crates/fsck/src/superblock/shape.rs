//! The fields of the superblock that make the shape of a file system, and those of them that can
//! be computed from the others.

use uext4_ondisk::features::{Compat, FEATURES, FeatureBit, Features, Incompat, RoCompat, Support};
use uext4_ondisk::inode::GOOD_OLD_INODE_SIZE;
use uext4_ondisk::num::len16;
use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SuperBlock};
use uext4_ondisk::{BlockSize, Damage, Ino};
use zerocopy::FromBytes;

use crate::problem::SuperblockProblem;

/// Largest revision there is.
const REVISION_MAX: u32 = 1;

/// `s_encoding` of Unicode 12.1 in UTF-8, the only encoding there is.
pub const ENCODING_UTF8: u16 = 1;

/// A field that `Geometry` does not look at, and that cannot be as it is.
pub fn wrong_field(superblock: &SuperBlock) -> Option<Damage> {
    let bad = |field, value: u32, why| {
        let value = value.into();
        Some(Damage::SuperblockField { field, value, why })
    };
    let bigalloc = superblock.features().ro_compat.contains(RoCompat::BIGALLOC);
    let clusters = superblock.s_clusters_per_group.get();
    if !bigalloc && clusters != superblock.s_blocks_per_group.get() {
        let why = "not s_blocks_per_group, without bigalloc";
        return bad("s_clusters_per_group", clusters, why);
    }
    let log = superblock.s_log_cluster_size.get();
    if !bigalloc && log != superblock.s_log_block_size.get() {
        let why = "not s_log_block_size, without bigalloc";
        return bad("s_log_cluster_size", log, why);
    }
    let inodes = superblock.s_inodes_per_group.get();
    if !inodes.is_multiple_of(8) && inodes_by_count(superblock).is_some() {
        let why = "not a multiple of 8, as s_inodes_count is";
        return bad("s_inodes_per_group", inodes, why);
    }
    let revision = superblock.s_rev_level.get();
    if revision > REVISION_MAX {
        return bad("s_rev_level", revision, "0 and 1 are known");
    }
    if revision < REVISION_MAX && superblock.features() != Features::default() {
        return bad("s_rev_level", revision, "features came with revision 1");
    }
    let casefold = superblock.features().incompat.contains(Incompat::CASEFOLD);
    let encoding = superblock.s_encoding.get();
    if casefold && encoding != ENCODING_UTF8 {
        return bad("s_encoding", encoding.into(), "1 is the only one known");
    }
    None
}

/// The inodes of a group, as the number of all inodes says it, if it can be: bitmaps end with a
/// whole byte.
pub fn inodes_by_count(superblock: &SuperBlock) -> Option<u32> {
    let groups = groups(superblock)?;
    let all = superblock.s_inodes_count.get();
    let inodes = all.checked_div(groups)?;
    let can_be = inodes != 0 && inodes.is_multiple_of(8) && all.is_multiple_of(groups);
    can_be.then_some(inodes)
}

/// Stores the right value of a field that `Geometry` or [`wrong_field`] refused. `None` if it does
/// not follow from the others; else what the finding says.
pub fn mend_field(
    superblock: &mut SuperBlock,
    field: &'static str,
) -> Option<(SuperblockProblem, u64)> {
    let mut problem = SuperblockProblem::Field;
    let block_log = superblock.s_log_block_size.get();
    let block_bits = 8u64.checked_shl(block_log.checked_add(BlockSize::MIN.log2())?)?;
    let bigalloc = superblock.features().ro_compat.contains(RoCompat::BIGALLOC);
    let right = match field {
        "s_inodes_count" => {
            problem = SuperblockProblem::Inodes;
            let inodes = groups(superblock)?.checked_mul(superblock.s_inodes_per_group.get())?;
            superblock.s_inodes_count = inodes.into();
            inodes.into()
        }
        "s_inodes_per_group" => {
            let inodes = inodes_by_count(superblock)?;
            superblock.s_inodes_per_group = inodes.into();
            inodes.into()
        }
        "s_first_data_block" => {
            let first = u32::from(block_log == 0 && !bigalloc);
            superblock.s_first_data_block = first.into();
            first.into()
        }
        "s_clusters_per_group" if !bigalloc => mend_clusters(superblock, block_bits),
        "s_log_cluster_size" if !bigalloc => {
            superblock.s_log_cluster_size = block_log.into();
            block_log.into()
        }
        "s_blocks_per_group" => {
            // The clusters of a group are known with `bigalloc`; else it has as many blocks as a
            // bitmap has bits.
            let blocks = if bigalloc {
                let bits = superblock.s_log_cluster_size.get().checked_sub(block_log)?;
                u64::from(superblock.s_clusters_per_group.get()).checked_shl(bits)?
            } else {
                block_bits
            };
            superblock.s_blocks_per_group = u32::try_from(blocks).ok()?.into();
            blocks
        }
        "s_rev_level" => {
            problem = SuperblockProblem::Revision;
            mend_revision(superblock);
            REVISION_MAX.into()
        }
        "s_first_ino" => {
            superblock.s_first_ino = Ino::GOOD_OLD_FIRST.0.into();
            Ino::GOOD_OLD_FIRST.0.into()
        }
        "s_inode_size" => {
            let extra = superblock.s_want_extra_isize.get() > 0;
            let size = if extra {
                256
            } else {
                len16(GOOD_OLD_INODE_SIZE)
            };
            superblock.s_inode_size = size.into();
            size.into()
        }
        _ => return mend_feature(superblock, field),
    };
    Some((problem, right))
}

/// Stores the clusters and the blocks of a group, equal without `bigalloc`. Of the two the usual
/// one is right.
fn mend_clusters(superblock: &mut SuperBlock, block_bits: u64) -> u64 {
    let clusters = superblock.s_clusters_per_group.get();
    let blocks = match u64::from(clusters) == block_bits {
        true => clusters,
        false => superblock.s_blocks_per_group.get(),
    };
    superblock.s_blocks_per_group = blocks.into();
    superblock.s_clusters_per_group = blocks.into();
    blocks.into()
}

/// Stores the revision. The fields that came with it count again, if they can be.
fn mend_revision(superblock: &mut SuperBlock) {
    superblock.s_rev_level = REVISION_MAX.into();
    let size = superblock.s_inode_size.get();
    if !size.is_power_of_two() || size < len16(GOOD_OLD_INODE_SIZE) {
        superblock.s_inode_size = len16(GOOD_OLD_INODE_SIZE).into();
    }
    if superblock.s_first_ino.get() < Ino::GOOD_OLD_FIRST.0 {
        superblock.s_first_ino = Ino::GOOD_OLD_FIRST.0.into();
    }
}

/// The same for fields that only count with a feature; where the right value cannot be known, the
/// feature is cleared.
fn mend_feature(
    superblock: &mut SuperBlock,
    field: &'static str,
) -> Option<(SuperblockProblem, u64)> {
    let mut features = superblock.features();
    match field {
        "s_first_meta_bg" => {
            features.incompat.remove(Incompat::META_BG);
            superblock.set_features(features);
            superblock.s_first_meta_bg = 0.into();
            let right = gdt_blocks(superblock)?;
            Some((SuperblockProblem::FirstMetaGroup, right.into()))
        }
        "s_reserved_gdt_blocks" => {
            features.compat.remove(Compat::RESIZE_INODE);
            superblock.set_features(features);
            superblock.s_reserved_gdt_blocks = 0.into();
            Some((SuperblockProblem::Field, 0))
        }
        "s_desc_size" => {
            superblock.s_desc_size = 64.into();
            Some((SuperblockProblem::Field, 64))
        }
        "s_encoding" => {
            superblock.s_encoding = ENCODING_UTF8.into();
            Some((SuperblockProblem::Field, ENCODING_UTF8.into()))
        }
        "s_log_groups_per_flex" => {
            superblock.s_log_groups_per_flex = 4;
            Some((SuperblockProblem::Field, 4))
        }
        _ => None,
    }
}

fn groups(superblock: &SuperBlock) -> Option<u32> {
    let first = superblock.s_first_data_block.get().into();
    let blocks = superblock.blocks_count().checked_sub(first)?;
    let per_group = u64::from(superblock.s_blocks_per_group.get());
    if per_group == 0 {
        return None;
    }
    u32::try_from(blocks.div_ceil(per_group)).ok()
}

fn gdt_blocks(superblock: &SuperBlock) -> Option<u32> {
    let wide = superblock.features().incompat.contains(Incompat::BIT64);
    let size = if wide {
        superblock.s_desc_size.get().into()
    } else {
        32u32
    };
    let block = 1024u32.checked_shl(superblock.s_log_block_size.get())?;
    Some(groups(superblock)?.div_ceil(block.checked_div(size)?.max(1)))
}

/// The names of the features that must be refused: unknown ones, and those that came with
/// structures that no pass knows.
pub fn unknown_features(features: Features) -> Vec<String> {
    let refused = features
        .known()
        .filter(|f| {
            f.check == Support::Refused && f.bit != FeatureBit::Compat(Compat::IMAGIC_INODES)
        })
        .map(|f| f.name.to_owned());
    let mut names: Vec<String> = refused.collect();
    let words = [
        ('C', features.compat.bits()),
        ('I', features.incompat.bits()),
        ('R', features.ro_compat.bits()),
    ];
    for (letter, bits) in words {
        let of_word = |bit: FeatureBit| match (letter, bit) {
            ('C', FeatureBit::Compat(bit)) => bit.bits(),
            ('I', FeatureBit::Incompat(bit)) => bit.bits(),
            ('R', FeatureBit::RoCompat(bit)) => bit.bits(),
            _ => 0,
        };
        let known = FEATURES.iter().fold(0, |mask, f| mask | of_word(f.bit));
        let unknown = (0..32).filter(|bit| bits & !known & (1 << bit) != 0);
        names.extend(unknown.map(|bit| format!("FEATURE_{letter}{bit}")));
    }
    names
}

/// The primary superblock from a backup. What changes with every mount comes from the old primary
/// one, if it is of the same file system; later checks judge it.
pub fn restored(backup: &SuperBlock, primary: &[u8]) -> SuperBlock {
    let mut new = *backup;
    new.s_block_group_nr = 0.into();
    if let Ok((old, _)) = SuperBlock::read_from_prefix(primary)
        && old.s_magic.get() == EXT4_SUPER_MAGIC
        && old.s_uuid == backup.s_uuid
    {
        new.s_free_blocks_count_lo = old.s_free_blocks_count_lo;
        new.s_free_blocks_count_hi = old.s_free_blocks_count_hi;
        new.s_free_inodes_count = old.s_free_inodes_count;
        new.s_mtime = old.s_mtime;
        new.s_wtime = old.s_wtime;
        new.s_mnt_count = old.s_mnt_count;
        new.s_lastcheck = old.s_lastcheck;
        new.s_last_orphan = old.s_last_orphan;
        new.s_last_mounted = old.s_last_mounted;
        new.s_kbytes_written = old.s_kbytes_written;
        let (mut features, old) = (new.features(), old.features());
        let grown = RoCompat::LARGE_FILE | RoCompat::ORPHAN_PRESENT;
        features.ro_compat |= old.ro_compat & grown;
        features.incompat |= old.incompat & Incompat::RECOVER;
        new.set_features(features);
    }
    new.update_checksum();
    new
}
