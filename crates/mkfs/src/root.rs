//! The root directory, lost+found, and the inodes that are used without being files.

use uext4_ondisk::Ino;
use uext4_ondisk::dir_block::{DirFormat, NewEntry};
use uext4_ondisk::dir_entry::update_tail;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::inode::{FileType, NDIR_BLOCKS, RawInode, S_IFDIR};

use crate::Error;
use crate::file_map::FileMap;
use crate::options::Options;
use crate::plan::{GENERATION, InodeSpec, Plan, Usage};

/// lost+found: the first inode free for files.
pub(crate) const LOST_FOUND: Ino = Ino::GOOD_OLD_FIRST;
/// Bytes lost+found is given ahead, so that a repair need not allocate.
const LOST_FOUND_LEN: u64 = 16 * 1024;

/// Makes `/` and `/lost+found`, and marks the reserved inodes used.
pub(crate) fn create(plan: &mut Plan, options: &Options) -> Result<(), Error> {
    for ino in 1..Ino::GOOD_OLD_FIRST.0 {
        plan.put_raw_inode(Ino(ino), &RawInode::zeroed());
    }
    bad_blocks_inode(plan);
    let root = Ino::ROOT;
    let spec = DirectorySpec {
        ino: root,
        entries: &[(root, b"."), (root, b".."), (LOST_FOUND, b"lost+found")],
        blocks: 1,
        permissions: 0o755,
        links: 3,
        owner: options.extended.root_owner,
        goal: plan.goal_of(root),
    };
    directory(plan, &spec)?;
    let block_len = plan.block_len() as u64;
    let blocks = LOST_FOUND_LEN
        .div_ceil(block_len)
        .clamp(2, NDIR_BLOCKS as u64);
    let spec = DirectorySpec {
        ino: LOST_FOUND,
        entries: &[(LOST_FOUND, b"."), (root, b"..")],
        blocks,
        permissions: 0o700,
        links: 2,
        owner: (0, 0),
        goal: plan.goal_of(LOST_FOUND),
    };
    if !plan.features().incompat.contains(Incompat::INLINE_DATA) {
        return directory(plan, &spec);
    }
    // It begins within its inode. The first extension only moves it out, and leaves traces: the
    // room that was free there is a record of its own, the set of attributes an empty one.
    let spec = DirectorySpec {
        entries: &[(LOST_FOUND, b"."), (root, b".."), (Ino(0), b"")],
        blocks: blocks - 1,
        goal: 0,
        ..spec
    };
    directory(plan, &spec)?;
    plan.put_attribute_magic(LOST_FOUND)
}

/// A directory to be made.
#[derive(Clone, Copy, Debug)]
struct DirectorySpec<'a> {
    ino: Ino,
    /// What its first block holds, all of them directories; inode 0 makes an unused record.
    entries: &'a [(Ino, &'a [u8])],
    blocks: u64,
    permissions: u16,
    links: u16,
    owner: (u32, u32),
    /// Where its blocks are looked for.
    goal: u64,
}

/// Inode 1 owns nothing, but carries the times of its creation.
fn bad_blocks_inode(plan: &mut Plan) {
    let mut raw = RawInode::zeroed();
    let time = plan.time.into();
    (raw.i_atime, raw.i_ctime, raw.i_mtime) = (time, time, time);
    plan.put_raw_inode(Ino::BAD_BLOCKS, &raw);
}

fn directory(plan: &mut Plan, spec: &DirectorySpec<'_>) -> Result<(), Error> {
    let map = FileMap::take(plan, spec.ino, spec.goal, spec.blocks, "directory")?;
    let mut entries = spec.entries;
    for block in map.each_block() {
        let bytes = directory_block(plan, spec.ino, entries);
        plan.put(block, bytes);
        entries = &[];
    }
    let inode = InodeSpec {
        mode: S_IFDIR | spec.permissions,
        owner: spec.owner,
        size: spec.blocks * plan.block_len() as u64,
        links: spec.links,
        blocks: map.blocks(plan),
        flags: FileMap::flags(plan),
        i_block: map.i_block,
    };
    plan.put_inode(spec.ino, &inode);
    plan.count_directory(spec.ino);
    plan.usage.push(Usage {
        owner: inode.owner,
        bytes: inode.blocks * plan.block_len() as u64,
    });
    Ok(())
}

/// A block that holds the entries, the last reaching to the end.
fn directory_block(plan: &Plan, ino: Ino, entries: &[(Ino, &[u8])]) -> Vec<u8> {
    let format = DirFormat::new(&plan.geometry);
    let directory = format.file_type(FileType::Directory);
    let records = entries.iter().map(|&(ino, name)| NewEntry {
        name,
        ino,
        file_type: directory.filter(|_| ino != Ino(0)),
    });
    let mut bytes = vec![0; plan.block_len()];
    format.fill(&mut bytes, records);
    if let Some(seed) = plan.geometry.csum_seed {
        update_tail(&mut bytes, seed.inode(ino, GENERATION));
    }
    bytes
}
