//! The root directory, lost+found, and the inodes that are used without being files.

use uext4_ondisk::Ino;
use uext4_ondisk::dir_entry::{DIR_TAIL_LEN, put, rec_len_for, update_tail};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{FileType, InodeFlags, NDIR_BLOCKS, RawInode, S_IFDIR};

use crate::Error;
use crate::block_map::{FileMap, extent_tree, indirect_file};
use crate::options::Options;
use crate::plan::{GENERATION, InodeSpec, Plan, Usage};

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
    let mut blocks = LOST_FOUND_LEN
        .div_ceil(block_len)
        .clamp(2, NDIR_BLOCKS as u64);
    let names: [(Ino, &[u8]); 3] = [(LOST_FOUND, b"."), (root, b".."), (Ino(0), b"")];
    if !plan.features().incompat.contains(Incompat::INLINE_DATA) {
        return directory(plan, LOST_FOUND, &names[..2], blocks, (0o700, 2), (0, 0));
    }
    // It begins within its inode. The first extension only moves it out, and leaves traces: the
    // room that was free there is a record of its own, the set of attributes an empty one.
    blocks -= 1;
    directory(plan, LOST_FOUND, &names, blocks, (0o700, 2), (0, 0))?;
    plan.put_attribute_magic(LOST_FOUND);
    Ok(())
}

/// Inode 1 owns nothing, but carries the times of its creation.
fn bad_blocks_inode(plan: &mut Plan) {
    let mut raw = RawInode::zeroed();
    let time = plan.time.into();
    (raw.i_atime, raw.i_ctime, raw.i_mtime) = (time, time, time);
    plan.put_raw_inode(Ino::BAD_BLOCKS, &raw);
}

/// A directory of `blocks` blocks whose first holds `entries`, all of them directories; inode 0
/// makes an unused record.
fn directory(
    plan: &mut Plan,
    ino: Ino,
    entries: &[(Ino, &[u8])],
    blocks: u64,
    (permissions, links): (u16, u16),
    owner: (u32, u32),
) -> Result<(), Error> {
    let map = if plan.extents() {
        let runs = plan.take_blocks(0, blocks, "directory")?;
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
        blocks: map.blocks(plan),
        flags,
        i_block: map.i_block,
    };
    plan.put_inode(ino, &spec);
    plan.count_directory(ino);
    plan.usage.push(Usage {
        owner,
        bytes: spec.blocks * plan.block_len() as u64,
    });
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
    let directory = filetype.then_some(FileType::Directory);
    let tail = if plan.geometry.csum_seed.is_some() {
        DIR_TAIL_LEN
    } else {
        0
    };
    let end = bytes.len() - tail;
    let mut at = 0;
    for (i, &(ino, name)) in entries.iter().enumerate() {
        let rec_len = if i + 1 == entries.len() {
            end - at
        } else {
            rec_len_for(name.len())
        };
        let file_type = directory.filter(|_| ino != Ino(0));
        put(&mut bytes, at, rec_len, ino, name, file_type);
        at += rec_len;
    }
    if entries.is_empty() {
        put(&mut bytes, 0, end, Ino(0), b"", None);
    }
    if let Some(seed) = plan.geometry.csum_seed {
        update_tail(&mut bytes, seed.inode(ino, GENERATION));
    }
    bytes
}
