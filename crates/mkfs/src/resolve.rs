//! From wishes to numbers: block size, blocks, features, inode size.

use uext4_ondisk::BlockSize;
use uext4_ondisk::features::{Compat, Features, Incompat, RoCompat};
use uext4_ondisk::inode::GOOD_OLD_INODE_SIZE;

use crate::Error;
use crate::feature_list::SETTABLE;
use crate::options::{BlockSizeWish, Options};
use crate::profile::{self, PAGE_SIZE, UsageType};

/// What the superblock is made from.
#[derive(Clone, Debug)]
pub(crate) struct Parameters {
    pub block_size: BlockSize,
    pub cluster_bits: u8,
    pub blocks: u64,
    pub features: Features,
    pub inode_size: u16,
    /// Inodes wished for, before they are rounded to fill their tables.
    pub inodes: u64,
    /// Blocks of a group at most.
    pub blocks_per_group: u32,
    pub log_groups_per_flex: u8,
}

/// Default of `-G`.
const GROUPS_PER_FLEX: u32 = 16;
/// Bytes per inode where the ratio comes to none.
const FALLBACK_RATIO: u32 = 4096;
/// Default of `-C`, in blocks.
const CLUSTER_RATIO: u64 = 16;

impl Parameters {
    /// Resolves `options` for a device of `device_len` bytes.
    ///
    /// # Errors
    /// All of [`Error`] but those of the device.
    pub fn new(options: &Options, device_len: u64) -> Result<Self, Error> {
        check_ranges(options)?;
        let said = match options.block_size {
            Some(BlockSizeWish::Exactly(size)) => Some(size),
            _ => None,
        };
        let bytes = fs_bytes(options, said, device_len)?;
        let types = match options.usage.as_slice() {
            [] => vec![UsageType::by_size(bytes)],
            said => said.to_vec(),
        };
        let default_size = profile::block_size(&types);
        let block_size = match options.block_size {
            Some(BlockSizeWish::Exactly(size)) => size,
            Some(BlockSizeWish::AtLeast(size)) => default_size.max(size),
            None => default_size,
        };
        let blocks = bytes >> block_size.log2();
        let inode_size = match options.is_revision_0 {
            // As mke2fs, whatever -I says.
            true => GOOD_OLD_INODE_SIZE as u16,
            false => options.inode_size.unwrap_or(profile::inode_size(&types)),
        };
        check_inode_size(inode_size, block_size)?;
        let features = features(options, blocks, block_size, inode_size)?;
        let cluster_bits = cluster_bits(options, features, block_size)?;
        let cluster_len = u64::from(block_size.bytes()) << cluster_bits;
        let default_ratio = profile::inode_ratio(&types).max(cluster_len);
        let ratio = options.inode_ratio.unwrap_or(default_ratio);
        Ok(Self {
            block_size,
            cluster_bits,
            blocks,
            features,
            inode_size,
            inodes: inodes(options, ratio, blocks, block_size, inode_size)?,
            blocks_per_group: blocks_per_group(options, block_size, cluster_bits)?,
            log_groups_per_flex: log_groups_per_flex(options, features)?,
        })
    }
}

/// What each flag may say whatever the others say.
fn check_ranges(options: &Options) -> Result<(), Error> {
    let extended = &options.extended;
    let wrong = |flag, value: String, why| Err(Error::Option { flag, value, why });
    if !(0.0..=50.0).contains(&options.reserved_percent) {
        return wrong(
            "-m",
            options.reserved_percent.to_string(),
            "not from 0 to 50",
        );
    }
    if extended.stride > u16::MAX.into() {
        return wrong("-E stride", extended.stride.to_string(), "more than 65535");
    }
    if extended.num_backup_sb > 2 {
        return wrong(
            "-E num_backup_sb",
            extended.num_backup_sb.to_string(),
            "more than 2",
        );
    }
    Ok(())
}

/// Bytes of the file system before they are cut to whole blocks.
fn fs_bytes(options: &Options, said: Option<BlockSize>, device_len: u64) -> Result<u64, Error> {
    match options.size {
        Some(need) if need > device_len => Err(Error::DeviceTooSmall {
            need,
            have: device_len,
        }),
        Some(bytes) => Ok(bytes),
        // A device is used in whole pages, unless a block is larger.
        None => {
            let unit = said.unwrap_or(PAGE_SIZE).max(PAGE_SIZE);
            Ok(device_len & !(u64::from(unit.bytes()) - 1))
        }
    }
}

fn check_inode_size(inode_size: u16, block_size: BlockSize) -> Result<(), Error> {
    let ok = inode_size.is_power_of_two()
        && usize::from(inode_size) >= GOOD_OLD_INODE_SIZE
        && u32::from(inode_size) <= block_size.bytes();
    if ok {
        Ok(())
    } else {
        Err(Error::Option {
            flag: "-I",
            value: inode_size.to_string(),
            why: "not a power of two from 128 to the block size",
        })
    }
}

/// The feature words: defaults and edits, what they imply, and what excludes what.
fn features(
    options: &Options,
    blocks: u64,
    block_size: BlockSize,
    inode_size: u16,
) -> Result<Features, Error> {
    let mut features = options.wished_features();
    if let Some(other) = features.known().find(|f| !f.bit.is_in(SETTABLE)) {
        return Err(Error::Feature {
            feature: other.name,
            why: "cannot be made",
        });
    }
    if features.metadata_csum() {
        features.ro_compat.remove(RoCompat::GDT_CSUM);
    }
    if options.is_revision_0 && features != Features::default() {
        return Err(Error::Option {
            flag: "-r",
            value: "0".to_owned(),
            why: "the first revision of the format has no features, and no journal",
        });
    }
    let types = options.extended.quota_types;
    if types.is_some_and(|types| types.project) {
        features.ro_compat |= RoCompat::PROJECT;
    }
    if blocks > u64::from(u32::MAX) {
        if !features.incompat.contains(Incompat::BIT64) {
            return Err(Error::TooLarge {
                blocks,
                block_size: block_size.bytes(),
                why: "they need the 64bit feature, or larger blocks",
            });
        }
        // Its indirect blocks cannot name a block past 2³².
        features.compat.remove(Compat::RESIZE_INODE);
    }
    check_features(features, inode_size)?;
    Ok(features)
}

fn check_features(features: Features, inode_size: u16) -> Result<(), Error> {
    let Features {
        compat,
        incompat,
        ro_compat,
    } = features;
    let small_inodes = usize::from(inode_size) == GOOD_OLD_INODE_SIZE;
    let rules: [(&'static str, bool, &'static str); 8] = [
        (
            "meta_bg",
            incompat.contains(Incompat::META_BG) && compat.contains(Compat::RESIZE_INODE),
            "excludes resize_inode",
        ),
        (
            "resize_inode",
            compat.contains(Compat::RESIZE_INODE) && !ro_compat.contains(RoCompat::SPARSE_SUPER),
            "needs sparse_super",
        ),
        (
            "64bit",
            incompat.contains(Incompat::BIT64) && !incompat.contains(Incompat::EXTENTS),
            "needs extent",
        ),
        (
            "bigalloc",
            ro_compat.contains(RoCompat::BIGALLOC) && !incompat.contains(Incompat::EXTENTS),
            "needs extent",
        ),
        (
            "metadata_csum_seed",
            incompat.contains(Incompat::CSUM_SEED) && !features.metadata_csum(),
            "needs metadata_csum",
        ),
        (
            "inline_data",
            incompat.contains(Incompat::INLINE_DATA) && small_inodes,
            "needs inodes of more than 128 bytes",
        ),
        (
            "project",
            ro_compat.contains(RoCompat::PROJECT) && small_inodes,
            "needs inodes of more than 128 bytes",
        ),
        (
            "orphan_file",
            compat.contains(Compat::ORPHAN_FILE) && !compat.contains(Compat::HAS_JOURNAL),
            "needs has_journal",
        ),
    ];
    match rules.into_iter().find(|&(_, broken, _)| broken) {
        Some((feature, _, why)) => Err(Error::Feature { feature, why }),
        None => Ok(()),
    }
}

fn cluster_bits(options: &Options, features: Features, block_size: BlockSize) -> Result<u8, Error> {
    let bytes = u64::from(block_size.bytes());
    let size = match (
        options.cluster_size,
        features.ro_compat.contains(RoCompat::BIGALLOC),
    ) {
        (None, false) => return Ok(0),
        (None, true) => bytes * CLUSTER_RATIO,
        (Some(_), false) => {
            return Err(Error::Feature {
                feature: "bigalloc",
                why: "needed for a cluster size",
            });
        }
        (Some(size), true) => size,
    };
    let ratio = size / bytes;
    let ok = size.is_power_of_two() && ratio >= 1 && size < 1 << 29;
    if ok {
        Ok(ratio.trailing_zeros() as u8)
    } else {
        Err(Error::Option {
            flag: "-C",
            value: size.to_string(),
            why: "not a power of two from the block size to 256 MiB",
        })
    }
}

fn inodes(
    options: &Options,
    ratio: u64,
    blocks: u64,
    block_size: BlockSize,
    inode_size: u16,
) -> Result<u64, Error> {
    // With so many blocks their number is the limit, not an error.
    let wide = blocks > u64::from(u32::MAX);
    let bytes = u128::from(blocks) << block_size.log2();
    if options.inode_ratio.is_some() && !(1024..=4_194_304 * 16).contains(&ratio) {
        return Err(Error::Option {
            flag: "-i",
            value: ratio.to_string(),
            why: "not from 1,024 to 67,108,864",
        });
    }
    // OK to divide: a profile's ratio is not zero, and one that was said was checked.
    let by_ratio = u64::try_from(bytes / u128::from(ratio)).unwrap_or(u64::MAX);
    let by_ratio = if wide {
        by_ratio.min(u32::MAX.into())
    } else {
        by_ratio
    };
    let inodes = match options.inodes.unwrap_or(by_ratio) {
        0 => u64::try_from(bytes / u128::from(FALLBACK_RATIO.max(block_size.bytes())))
            .unwrap_or(u64::MAX),
        n => n,
    };
    let too_many =
        inodes > u64::from(u32::MAX) || u128::from(inodes) * u128::from(inode_size) >= bytes;
    if too_many && bytes > 0 {
        return Err(Error::TooManyInodes {
            inodes,
            inode_size,
            blocks,
        });
    }
    Ok(inodes)
}

fn blocks_per_group(
    options: &Options,
    block_size: BlockSize,
    cluster_bits: u8,
) -> Result<u32, Error> {
    // The descriptor counts free clusters in 16 bits on small descriptors.
    let max = (8 * block_size.bytes()).min((1 << 16) - 8);
    let clusters = options.blocks_per_group.unwrap_or(max);
    if clusters < 256 || clusters > max || !clusters.is_multiple_of(8) {
        return Err(Error::Option {
            flag: "-g",
            value: clusters.to_string(),
            why: "not a multiple of 8 from 256 to what a bitmap block can hold",
        });
    }
    clusters
        .checked_mul(1 << cluster_bits)
        .ok_or_else(|| Error::Option {
            flag: "-C",
            value: format!("2^{cluster_bits} blocks"),
            why: "a group would have more than 2^32 blocks",
        })
}

fn log_groups_per_flex(options: &Options, features: Features) -> Result<u8, Error> {
    let wrong = |value: u32, why| Error::Option {
        flag: "-G",
        value: value.to_string(),
        why,
    };
    let flex = features.incompat.contains(Incompat::FLEX_BG);
    match options.groups_per_flex {
        Some(n) if !flex => Err(wrong(n, "needs the flex_bg feature")),
        Some(n) if !n.is_power_of_two() => Err(wrong(n, "not a power of two")),
        Some(n) => Ok(n.trailing_zeros() as u8),
        None if flex => Ok(GROUPS_PER_FLEX.trailing_zeros() as u8),
        None => Ok(0),
    }
}
