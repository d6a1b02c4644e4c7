//! Hidden quota files: who owns what of the empty file system.
//!
//! A file is a radix tree over the bytes of the id, most significant first, in blocks of 1 KiB:
//!
//! ```text
//! 0 header │ 1 root │ 2, 3, 4 tree of id 0 │ 5 leaf with all entries │ 6 … tree of other ids
//! ```
//! Blocks of the file are taken in the order in which the tree is written: the root comes after the
//! path of the first id.

use std::collections::BTreeMap;

use uext4_ondisk::Ino;
use uext4_ondisk::inode::{InodeFlags, S_IFREG};
use uext4_ondisk::quota::{
    QUOTA_BLOCK_LEN, QUOTA_TREE_DEPTH, QUOTA_TREE_ROOT, QUOTA_VERSION_R1, QuotaHeader, QuotaKind,
    QuotaLeafHeader, RawQuotaEntry,
};
use zerocopy::little_endian::U32;
use zerocopy::{FromZeros, IntoBytes};

use crate::Error;
use crate::extended::QuotaTypes;
use crate::file_map::FileMap;
use crate::file_map::extents::extents_of;
use crate::file_map::indirect::blocks_of;
use crate::options::Options;
use crate::plan::{InodeSpec, Plan};

/// Seconds of grace beyond a soft limit: a week.
const GRACE: u32 = 7 * 24 * 60 * 60;
/// The leaf with the entries.
const LEAF: usize = 5;

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

/// Inodes and bytes of each id.
fn use_by_id(plan: &Plan, kind: QuotaKind) -> BTreeMap<u32, (u64, u64)> {
    let mut used = BTreeMap::new();
    for usage in &plan.usage {
        let id = match kind {
            QuotaKind::User => usage.owner.0,
            QuotaKind::Group => usage.owner.1,
            QuotaKind::Project => 0,
        };
        let (inodes, bytes) = used.entry(id).or_insert((0, 0));
        *inodes += 1;
        *bytes += usage.bytes;
    }
    used
}

/// The file's bytes.
fn contents(kind: QuotaKind, used: &BTreeMap<u32, (u64, u64)>) -> Vec<u8> {
    let mut tree: Vec<Vec<U32>> = vec![vec![U32::ZERO; QUOTA_BLOCK_LEN / 4]; LEAF + 1];
    for &id in used.keys() {
        add_path(&mut tree, id);
    }
    let blocks = tree.len();
    let mut bytes: Vec<u8> = tree.concat().as_bytes().to_vec();
    let header = QuotaHeader {
        dqh_magic: kind.magic().into(),
        dqh_version: QUOTA_VERSION_R1.into(),
        dqi_bgrace: GRACE.into(),
        dqi_igrace: GRACE.into(),
        dqi_flags: 0.into(),
        dqi_blocks: (blocks as u32).into(),
        dqi_free_blk: 0.into(),
        dqi_free_entry: (LEAF as u32).into(),
    };
    put(&mut bytes, 0, header.as_bytes());
    let mut leaf = QuotaLeafHeader::new_zeroed();
    leaf.dqdh_entries = (used.len() as u16).into();
    let mut at = LEAF * QUOTA_BLOCK_LEN;
    at = put(&mut bytes, at, leaf.as_bytes());
    for (&id, &(inodes, space)) in used {
        let mut entry = RawQuotaEntry::new_zeroed();
        entry.dqb_id = id.into();
        entry.dqb_curinodes = inodes.into();
        entry.dqb_curspace = space.into();
        at = put(&mut bytes, at, entry.as_bytes());
    }
    bytes
}

fn put(bytes: &mut [u8], at: usize, what: &[u8]) -> usize {
    let end = at + what.len();
    bytes[at..end].copy_from_slice(what);
    end
}

/// Leads from the root to the leaf, through new blocks where there are none yet: the first path
/// takes those before the leaf.
fn add_path(tree: &mut Vec<Vec<U32>>, id: u32) {
    let root = QUOTA_TREE_ROOT as usize;
    let first = tree[root].iter().all(|slot| slot.get() == 0);
    let mut block = root;
    for level in 1..=QUOTA_TREE_DEPTH {
        let slot = (id >> (8 * (QUOTA_TREE_DEPTH - level)) & 0xFF) as usize;
        let next = if level == QUOTA_TREE_DEPTH {
            LEAF
        } else if tree[block][slot].get() != 0 {
            tree[block][slot].get() as usize
        } else if first {
            block + 1
        } else {
            tree.push(vec![U32::ZERO; QUOTA_BLOCK_LEN / 4]);
            tree.len() - 1
        };
        tree[block][slot] = (next as u32).into();
        block = next;
    }
}

fn create_file(plan: &mut Plan, ino: Ino, kind: QuotaKind) -> Result<(), Error> {
    let bytes = contents(kind, &use_by_id(plan, kind));
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
        let mut data = data.to_vec();
        data.resize(plan.block_len(), 0);
        plan.put(block, data);
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
