//! Hidden quota files: who owns what of the empty file system.
//!
//! Blocks of the file are taken in the order in which its tree is written (see
//! [`uext4_ondisk::pack::quota`]): the root comes after the path of the first id.

use std::collections::BTreeMap;

use uext4_ondisk::Ino;
use uext4_ondisk::inode::{InodeFlags, S_IFREG};
use uext4_ondisk::pack::quota::{QuotaUsage, pack_quota};
use uext4_ondisk::quota::{QUOTA_BLOCK_LEN, QuotaKind};

use crate::Error;
use crate::extended::QuotaTypes;
use crate::file_map::FileMap;
use crate::file_map::extents::extents_of;
use crate::file_map::indirect::blocks_of;
use crate::options::Options;
use crate::plan::{InodeSpec, Plan};

/// Makes the files that `-E quotatype` names, else those of users and groups, and of projects where
/// the file system has them.
pub(crate) fn create(plan: &mut Plan, options: &Options) -> Result<(), Error> {
    use uext4_ondisk::features::RoCompat;
    let project = plan.features().ro_compat.contains(RoCompat::PROJECT);
    let types = options.extended.quota_types.unwrap_or(QuotaTypes {
        user: true,
        group: true,
        project,
    });
    if types.user {
        create_file(plan, Ino::USER_QUOTA, QuotaKind::User)?;
        plan.superblock.s_usr_quota_inum = Ino::USER_QUOTA.0.into();
    }
    if types.group {
        create_file(plan, Ino::GROUP_QUOTA, QuotaKind::Group)?;
        plan.superblock.s_grp_quota_inum = Ino::GROUP_QUOTA.0.into();
    }
    if types.project {
        let ino = plan.next_inode();
        create_file(plan, ino, QuotaKind::Project)?;
        plan.superblock.s_prj_quota_inum = ino.0.into();
    }
    Ok(())
}

/// What each id has.
fn use_by_id(plan: &Plan, kind: QuotaKind) -> BTreeMap<u32, QuotaUsage> {
    let mut used: BTreeMap<u32, QuotaUsage> = BTreeMap::new();
    for usage in &plan.usage {
        let id = match kind {
            QuotaKind::User => usage.owner.0,
            QuotaKind::Group => usage.owner.1,
            QuotaKind::Project => 0,
        };
        let used = used.entry(id).or_default();
        used.inodes += 1;
        used.bytes += usage.bytes;
    }
    used
}

fn create_file(plan: &mut Plan, ino: Ino, kind: QuotaKind) -> Result<(), Error> {
    let bytes = pack_quota(kind, &use_by_id(plan, kind));
    // OK to default: the few owners of an empty file system have a few blocks.
    let bytes = bytes.unwrap_or_default();
    let per_block = plan.block_len() / QUOTA_BLOCK_LEN;
    let count = bytes.len().div_ceil(plan.block_len());
    let written = [0, 2, 3, 4, 5, 1]
        .into_iter()
        .chain(6..bytes.len() / QUOTA_BLOCK_LEN);
    let mut blocks = vec![0; count];
    let mut goal = plan.goal_of(ino);
    for index in written.map(|at| at / per_block) {
        if blocks[index] == 0 {
            blocks[index] = plan.take_in_file(&blocks, index, goal)?;
            goal = blocks[index] + 1;
        }
    }
    let map = if plan.extents() {
        // With one quota block to a block, 1 is written after 2 to 5 have become an extent.
        let apart = if per_block == 1 { 2 } else { count };
        extents_of(plan, ino, &blocks, apart)?
    } else {
        blocks_of(plan, &blocks)?
    };
    for (&block, data) in blocks.iter().zip(bytes.chunks(plan.block_len())) {
        plan.put(block, data.to_vec());
    }
    let spec = InodeSpec {
        mode: S_IFREG | 0o600,
        owner: (0, 0),
        size: bytes.len() as u64,
        links: 1,
        blocks: map.blocks(plan),
        flags: FileMap::flags(plan) | InodeFlags::IMMUTABLE,
        i_block: map.i_block,
    };
    plan.put_inode(ino, &spec);
    Ok(())
}
