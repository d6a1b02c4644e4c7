//! The root directory, lost+found, and the inodes that are used without being files.

use uext4_ondisk::Ino;
use uext4_ondisk::dir_entry::{
    DIR_ENTRY_HEADER_LEN, DIR_TAIL_LEN, DirEntryHeader, encode_rec_len, file_type_code,
    rec_len_for, update_tail,
};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{FileType, InodeFlags, NDIR_BLOCKS, RawInode, S_IFDIR};
use zerocopy::IntoBytes;

use crate::Error;
use crate::block_map::{FileMap, extent_tree, indirect_file};
use crate::options::Options;
use crate::plan::{GENERATION, InodeSpec, Plan};
use crate::space::Run;

/// lost+found: the first inode free for files.
pub(crate) const LOST_FOUND: Ino = Ino::GOOD_OLD_FIRST;
/// Bytes lost+found is given ahead, so that a repair need not allocate.
const LOST_FOUND_LEN: u64 = 16 * 1024;

/// Makes `/` and `/lost+found`, and marks the reserved inodes used.
///
/// # Errors
/// [`Error::NoSpace`].
pub(crate) fn create(plan: &mut Plan, options: &Options) -> Result<(), Error> {
    for ino in 1..Ino::GOOD_OLD_FIRST.0 {
        plan.put_raw_inode(Ino(ino), &RawInode::zeroed());
    }
    bad_blocks_inode(plan);
    let root = Ino::ROOT;
    let names: [(Ino, &[u8]); 3] = [(root, b"."), (root, b".."), (LOST_FOUND, b"lost+found")];
    directory(
        plan,
        root,
        &names,
        1,
        (0o755, 3),
        options.extended.root_owner,
    )?;
    let block_len = plan.block_len() as u64;
    let blocks = LOST_FOUND_LEN
        .div_ceil(block_len)
        .clamp(2, NDIR_BLOCKS as u64);
    let names: [(Ino, &[u8]); 2] = [(LOST_FOUND, b"."), (root, b"..")];
    directory(plan, LOST_FOUND, &names, blocks, (0o700, 2), (0, 0))
}

/// Inode 1 owns nothing, but carries the times of its creation.
fn bad_blocks_inode(plan: &mut Plan) {
    let mut raw = RawInode::zeroed();
    let time = plan.time.into();
    (raw.i_atime, raw.i_ctime, raw.i_mtime) = (time, time, time);
    plan.put_raw_inode(Ino::BAD_BLOCKS, &raw);
}

/// A directory of `blocks` blocks whose first holds `entries`, all of them directories.
fn directory(
    plan: &mut Plan,
    ino: Ino,
    entries: &[(Ino, &[u8])],
    blocks: u64,
    (permissions, links): (u16, u16),
    owner: (u32, u32),
) -> Result<(), Error> {
    let map = if plan.extents() {
        let mut runs: Vec<Run> = Vec::new();
        let mut goal = 0;
        for _ in 0..blocks {
            let block = plan.take_block(goal, "directory")?;
            goal = block + 1;
            match runs.last_mut() {
                Some(last) if last.end() == block => last.len += 1,
                _ => runs.push(Run {
                    start: block,
                    len: 1,
                }),
            }
        }
        extent_tree(plan, ino, runs)?
    } else {
        indirect_file(plan, blocks, 0, "directory")?
    };
    put_blocks(plan, ino, &map, entries);
    let flags = if plan.extents() {
        InodeFlags::EXTENTS
    } else {
        InodeFlags::empty()
    };
    let spec = InodeSpec {
        mode: S_IFDIR | permissions,
        owner,
        size: blocks * plan.block_len() as u64,
        links,
        blocks: map.blocks(),
        flags,
        i_block: map.i_block,
    };
    plan.put_inode(ino, &spec);
    plan.count_directory(ino);
    Ok(())
}

fn put_blocks(plan: &mut Plan, ino: Ino, map: &FileMap, entries: &[(Ino, &[u8])]) {
    let mut entries = entries;
    for run in map.runs.clone() {
        for block in run.start..run.end() {
            let bytes = directory_block(plan, ino, entries);
            plan.put(block, bytes);
            entries = &[];
        }
    }
}

/// A block that holds the entries, the last reaching to the end.
fn directory_block(plan: &Plan, ino: Ino, entries: &[(Ino, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; plan.block_len()];
    let filetype = plan.features().incompat.contains(Incompat::FILETYPE);
    let directory = if filetype {
        file_type_code(FileType::Directory)
    } else {
        0
    };
    let tail = if plan.geometry.csum_seed.is_some() {
        DIR_TAIL_LEN
    } else {
        0
    };
    let end = bytes.len() - tail;
    let mut record = |at: usize, rec_len: usize, ino: Ino, name: &[u8], file_type: u8| {
        let header = DirEntryHeader {
            inode: ino.0.into(),
            rec_len: encode_rec_len(rec_len, plan.block_len()).into(),
            name_len: name.len() as u8,
            file_type,
        };
        let body = at + DIR_ENTRY_HEADER_LEN;
        bytes[at..body].copy_from_slice(header.as_bytes());
        bytes[body..body + name.len()].copy_from_slice(name);
    };
    let mut at = 0;
    for (i, &(ino, name)) in entries.iter().enumerate() {
        let rec_len = if i + 1 == entries.len() {
            end - at
        } else {
            rec_len_for(name.len())
        };
        record(at, rec_len, ino, name, directory);
        at += rec_len;
    }
    if entries.is_empty() {
        record(0, end, Ino(0), b"", 0);
    }
    if let Some(seed) = plan.geometry.csum_seed {
        update_tail(&mut bytes, seed.inode(ino, GENERATION));
    }
    bytes
}
