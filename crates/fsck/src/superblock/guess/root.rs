//! The root directory, known by its shape.

use uext4_blockdev::BlockDevice;
use uext4_ondisk::dir_entry::decode_rec_len;
use uext4_ondisk::extent::ExtentNode;
use uext4_ondisk::indirect::number_at;
use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};
use uext4_ondisk::num::lo16;
use uext4_ondisk::{BlockSize, Ino, Pblk};

use crate::superblock::fit::read_block;

/// Sizes of inodes with which inode 2 lies in the first unit of its table.
const INODE_SIZES: [u16; 3] = [128, 256, 512];
/// The largest root directory that is believed.
const SIZE_MAX: u32 = 1 << 30;

/// An inode table that begins with the root directory.
#[derive(Clone, Debug)]
pub struct Root {
    pub block_size: BlockSize,
    pub inode_size: u16,
    /// First block of the table.
    pub table: Pblk,
    /// The first block of the directory.
    pub names: Vec<u8>,
}

impl Root {
    /// The bytes of an inode near the start of the table.
    pub fn inode(&self, device: &dyn BlockDevice, ino: Ino) -> Option<Vec<u8>> {
        let at = self.block_size.byte_offset(self.table)?;
        let skip = u64::from(ino.0.checked_sub(1)?) * u64::from(self.inode_size);
        let mut bytes = vec![0; usize::from(self.inode_size)];
        let read = device.read_at(at.checked_add(skip)?, &mut bytes);
        read.is_ok().then_some(bytes)
    }

    /// Whether directory entries have file types.
    pub fn has_file_types(&self) -> bool {
        self.names.get(7) == Some(&2)
    }
}

/// The root directory whose inode is in a unit of the device, if that is the first one of a table.
/// `tries` is how many inodes may still be followed.
pub fn in_unit(
    device: &dyn BlockDevice,
    unit: &[u8],
    offset: u64,
    tries: &mut u32,
) -> Option<Root> {
    for inode_size in INODE_SIZES {
        let at = usize::from(inode_size);
        let Some(inode) = unit.get(at..at * 2).and_then(directory) else {
            continue;
        };
        for log2 in BlockSize::MIN.log2()..=BlockSize::MAX.log2() {
            let block_size = BlockSize::from_log2(log2)?;
            if !offset.is_multiple_of(block_size.bytes().into()) || *tries == 0 {
                break;
            }
            *tries -= 1;
            let names = first_block(device, block_size, &inode)
                .and_then(|block| read_block(device, block_size, block))
                .filter(|names| is_root(names));
            if let Some(names) = names {
                return Some(Root {
                    block_size,
                    inode_size,
                    table: Pblk(offset >> log2),
                    names,
                });
            }
        }
    }
    None
}

/// An inode that may be the root directory's.
fn directory(bytes: &[u8]) -> Option<RawInode> {
    let inode = RawInode::parse(bytes, Ino::ROOT).ok()?;
    let size = inode.i_size_lo.get();
    let is_right = FileType::from_mode(inode.i_mode.get()) == Some(FileType::Directory)
        && inode.i_links_count.get() != 0
        && inode.i_dtime.get() == 0
        && (1024..=SIZE_MAX).contains(&size)
        && size.is_multiple_of(1024);
    is_right.then_some(inode)
}

/// The first block of a file.
pub fn first_block(
    device: &dyn BlockDevice,
    block_size: BlockSize,
    inode: &RawInode,
) -> Option<Pblk> {
    let flags = InodeFlags::from_bits_retain(inode.i_flags.get());
    let block = match flags.contains(InodeFlags::EXTENTS) {
        false => Pblk(number_at(&inode.i_block, 0).into()),
        true => {
            let mut bytes = inode.i_block.to_vec();
            let mut at = None;
            let mut depth = None;
            loop {
                match ExtentNode::parse(&bytes, at, depth).ok()? {
                    ExtentNode::Leaf(extents) => {
                        let first = extents.first()?.get();
                        break (first.lblk.0 == 0).then_some(first.pblk)?;
                    }
                    ExtentNode::Index {
                        depth: own,
                        entries,
                    } => {
                        let child = entries.first()?.leaf();
                        depth = Some(own.checked_sub(1)?);
                        at = Some(child);
                        bytes = read_block(device, block_size, child)?;
                    }
                }
            }
        }
    };
    (block.0 != 0).then_some(block)
}

/// Whether a block is the first one of a root directory: it names itself twice, and its records
/// fill it.
fn is_root(names: &[u8]) -> bool {
    let word = |at: usize| {
        let bytes = names.get(at..at + 4).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
    };
    let record = |at: usize| decode_rec_len(lo16(word(at + 4)), names.len());
    let starts = |at: usize, name: &[u8]| {
        word(at) == Ino::ROOT.0
            && names.get(at + 6) == Some(&(name.len() as u8))
            && matches!(names.get(at + 7), Some(0 | 2))
            && names.get(at + 8..at + 8 + name.len()) == Some(name)
    };
    if !starts(0, b".") || record(0) != 12 || !starts(12, b"..") {
        return false;
    }
    let mut at = 12;
    while at < names.len() {
        let len = record(at);
        if len < 8 || !len.is_multiple_of(4) {
            return false;
        }
        at += len;
    }
    at == names.len()
}

#[cfg(test)]
mod tests {
    use uext4_ondisk::dir_entry::encode_rec_len;

    use super::*;

    #[test]
    fn the_records_of_a_root_directory_fill_its_block() {
        for len in [1024, 65536] {
            let mut names = vec![0; len];
            names[..10].copy_from_slice(b"\x02\0\0\0\x0C\0\x01\x02.\0");
            names[12..22].copy_from_slice(b"\x02\0\0\0\0\0\x02\x02..");
            names[16..18].copy_from_slice(&encode_rec_len(len - 12, len).to_le_bytes());
            assert!(is_root(&names), "{len}");
            names[16..18].copy_from_slice(&500_u16.to_le_bytes());
            assert!(!is_root(&names), "{len}");
        }
    }
}
