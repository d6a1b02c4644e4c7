//! The structures of an image: where they are, which fields they have, and how they are changed so
//! that their checksums follow or stay.

use std::fmt;
use std::ops::Range;

use uext4_ondisk::group_desc::desc_checksum;
use uext4_ondisk::inode::{I_BLOCK_LEN, InodeFlags};
use uext4_ondisk::journal::JournalSuperblock;
use uext4_ondisk::mmp::MmpBlock;
use uext4_ondisk::num::index;
use uext4_ondisk::quota::QUOTA_BLOCK_LEN;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{GroupNr, Ino, Lblk, Pblk, orphan};
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, IntoBytes};

use super::fields::I_BLOCK;
use super::log::{self, DataBlock};
use super::quota::{self, Quota};
use crate::damage::{Bitmap, Known, Mapped, Node, Survey, Target};

/// A structure of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The primary superblock.
    Superblock,
    /// The copy in a group.
    Backup(GroupNr),
    /// The descriptor of a group.
    Descriptor(GroupNr),
    /// A bitmap of a group.
    Bitmap(GroupNr, Bitmap),
    /// An inode, all of it.
    Inode(Ino),
    /// A node of an inode's extent tree, or an indirect block.
    Node(Ino, Node),
    /// A block with names of a directory.
    Names(Ino, Mapped),
    /// A node of a directory's index.
    Index(Ino, Mapped),
    /// The block of attributes of an inode.
    Attributes(Ino),
    /// Block 0 of the journal.
    JournalSuperblock,
    /// A block of the log that is to be replayed: descriptor, revoke or commit.
    Log(Mapped),
    /// A block with content of the log that is to be replayed.
    LogData(DataBlock),
    /// A block of the area of fast commits.
    FastCommit(Mapped),
    /// A block of the orphan file.
    Orphans(Mapped),
    /// 1,024 bytes of a quota file.
    Quota(Quota),
    /// The block for multiple mount protection.
    Mmp(Pblk),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Superblock => write!(f, "superblock"),
            Self::Backup(group) => write!(f, "superblock of group {group}"),
            Self::Descriptor(group) => write!(f, "descriptor of group {group}"),
            Self::Bitmap(group, Bitmap::Blocks) => write!(f, "block bitmap of group {group}"),
            Self::Bitmap(group, Bitmap::Inodes) => write!(f, "inode bitmap of group {group}"),
            Self::Inode(ino) => write!(f, "inode {ino}"),
            Self::Node(ino, Node { block: None, .. }) => write!(f, "extent root of inode {ino}"),
            Self::Node(ino, node) => {
                let block = node.block.map_or(0, |block| block.0);
                write!(f, "node of inode {ino}, block {block}")
            }
            Self::Names(ino, at) => write!(f, "directory {ino}, block {}", at.lblk),
            Self::Index(ino, at) => write!(f, "index of directory {ino}, block {}", at.lblk),
            Self::Attributes(ino) => write!(f, "attribute block of inode {ino}"),
            Self::JournalSuperblock => write!(f, "journal superblock"),
            Self::Log(at) => write!(f, "journal block {}", at.lblk),
            Self::LogData(data) => write!(f, "journal data block for block {}", data.home),
            Self::FastCommit(at) => write!(f, "fast commit block {}", at.lblk),
            Self::Orphans(at) => write!(f, "orphan file, block {}", at.lblk),
            Self::Quota(quota) => write!(f, "quota file {}, block {}", quota.ino, quota.number),
            Self::Mmp(_) => write!(f, "MMP block"),
        }
    }
}

impl Place {
    /// Its bytes in the image.
    pub fn range(&self, image: &Survey) -> Range<usize> {
        let len = image.geometry.block_size.len();
        let block = |block: Pblk| {
            let at = image.place(block);
            at..at + len
        };
        match *self {
            Self::Superblock => SUPERBLOCK_OFFSET as usize..SUPERBLOCK_OFFSET as usize + 1024,
            Self::Backup(group) => {
                let at = image.place(image.geometry.group_start(group));
                at..at + 1024
            }
            Self::Descriptor(group) => image.desc_place(group),
            Self::Bitmap(group, Bitmap::Blocks) => block(image.groups[index(group.0)].block_bitmap),
            Self::Bitmap(group, Bitmap::Inodes) => block(image.groups[index(group.0)].inode_bitmap),
            Self::Inode(ino) => image.inode_place(ino),
            Self::Node(ino, Node { block: None, .. }) => {
                let at = image.inode_place(ino).start + I_BLOCK;
                at..at + I_BLOCK_LEN
            }
            Self::Node(
                _,
                Node {
                    block: Some(at), ..
                },
            )
            | Self::Mmp(at) => block(at),
            Self::Names(_, at) | Self::Index(_, at) => block(at.pblk),
            Self::Log(at) | Self::FastCommit(at) | Self::Orphans(at) => block(at.pblk),
            Self::Attributes(ino) => block(known(image, ino).xattr_block().unwrap_or(Pblk(0))),
            Self::JournalSuperblock => {
                let at = image.place(known(image, Ino::JOURNAL).blocks[0].pblk);
                at..at + 1024
            }
            Self::LogData(data) => block(data.at),
            Self::Quota(quota) => quota.at..quota.at + QUOTA_BLOCK_LEN,
        }
    }

    /// The number that refers to it where it is referred to: its inode, its logical block in a
    /// directory or the journal, else its block.
    pub fn own_number(&self, image: &Survey) -> u64 {
        match self {
            Self::Inode(ino) | Self::Names(ino, _) => ino.0.into(),
            Self::Index(_, at) | Self::Log(at) => at.lblk.0.into(),
            Self::Quota(quota) => quota.number.into(),
            Self::Superblock | Self::Backup(_) => 2,
            _ => self.range(image).start as u64 >> image.geometry.block_size.log2(),
        }
    }

    /// Whether one may stand in the other's place.
    pub fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }

    /// Changes its bytes. `None` if there is no such structure.
    pub fn change(&self, t: &mut Target<'_>, change: &mut dyn FnMut(&mut [u8])) -> Option<()> {
        let image = t.clean;
        match *self {
            Self::Superblock => t.superblock(|sb| change(sb.as_mut_bytes())),
            Self::Bitmap(group, which) => t.bitmap(group, which, change),
            Self::Inode(ino) => t.inode_bytes(ino, change),
            // The rest of the inode may be such by now that its fields cannot be parsed.
            Self::Node(ino, Node { block: None, .. }) => {
                t.inode_bytes(ino, |bytes| change(&mut bytes[I_BLOCK..][..I_BLOCK_LEN]))
            }
            Self::Node(ino, node) => t.node(image.known(ino)?, node, change),
            Self::Names(ino, at) | Self::Index(ino, at) => {
                t.dir_block(image.known(ino)?, at, change)
            }
            Self::Attributes(ino) => t.xattr_block(image.known(ino)?, change),
            Self::LogData(data) => data.change(t, change),
            _ => {
                let range = self.range(image);
                change(&mut t.bytes[range.clone()]);
                if t.has_right_sums() {
                    // Not every structure has one in every file system.
                    _ = self.update_sum(t, range);
                }
                Some(())
            }
        }
    }

    /// Makes the checksum in its bytes right, where it has one.
    fn update_sum(&self, t: &mut Target<'_>, range: Range<usize>) -> Option<()> {
        let image = t.clean;
        let seed = image.geometry.csum_seed;
        let bytes = &mut t.bytes[range];
        match *self {
            Self::Backup(_) => SuperBlock::mut_from_prefix(bytes).ok()?.0.update_checksum(),
            Self::Descriptor(group) => {
                let sum = desc_checksum(bytes, group, image.geometry.desc_checksum);
                bytes[0x1E..0x20].copy_from_slice(U16::new(sum).as_bytes());
            }
            Self::JournalSuperblock => {
                let (journal, _) = JournalSuperblock::mut_from_prefix(bytes).ok()?;
                if journal.checksum_version() > 1 {
                    journal.s_checksum = journal.checksum().into();
                }
            }
            Self::Log(_) => log::update_sum(bytes, &log::superblock(image)?),
            Self::Orphans(at) => {
                let file = image.known(Ino(image.superblock.s_orphan_file_inum.get()))?;
                let seed = seed?.inode(file.ino, file.raw.i_generation.get());
                let (_, tail) = orphan::OrphanBlockTail::ref_from_suffix(bytes).ok()?;
                if tail.ob_magic.get() == orphan::EXT4_ORPHAN_BLOCK_MAGIC {
                    orphan::update_tail(bytes, at.pblk, Some(seed));
                }
            }
            Self::Mmp(_) => {
                let (mmp, _) = MmpBlock::mut_from_prefix(bytes).ok()?;
                mmp.mmp_checksum = mmp.checksum(seed?).into();
            }
            _ => {}
        }
        Some(())
    }
}

fn known(image: &Survey, ino: Ino) -> &Known {
    // OK to unwrap: places are made of what the survey knows.
    image.known(ino).unwrap()
}

/// All structures of an image, by kind.
#[derive(Clone, Debug)]
pub struct Atlas {
    /// How often a kind is chosen, relative to the others, and its structures.
    kinds: Vec<Kind>,
}

#[derive(Clone, Debug)]
struct Kind {
    weight: u64,
    places: Vec<Place>,
}

impl Atlas {
    /// Finds all structures of an image.
    pub fn new(image: &Survey) -> Self {
        let groups = || (0..image.geometry.groups_count.get()).map(GroupNr);
        let backups = groups().filter(|&group| group.0 > 0 && image.geometry.has_super(group));
        let bitmaps = |which| groups().map(move |group| Place::Bitmap(group, which));
        let inodes = || image.inodes.iter();
        let used =
            |known: &&Known| known.ino.0 >= image.geometry.first_ino || known.ino == Ino::ROOT;
        let reserved = inodes().filter(|known| !used(known));
        let mut kinds = vec![
            kind(8, [Place::Superblock]),
            kind(1, backups.map(Place::Backup)),
            kind(6, groups().map(Place::Descriptor)),
            kind(3, bitmaps(Bitmap::Blocks)),
            kind(3, bitmaps(Bitmap::Inodes)),
            kind(
                20,
                inodes().filter(used).map(|known| Place::Inode(known.ino)),
            ),
            kind(3, reserved.map(|known| Place::Inode(known.ino))),
            kind(14, inodes().flat_map(nodes)),
            kind(6, attribute_blocks(image)),
            kind(
                12,
                directory_blocks(image).filter(|place| matches!(place, Place::Names(..))),
            ),
            kind(
                8,
                directory_blocks(image).filter(|place| matches!(place, Place::Index(..))),
            ),
            kind(5, quota::blocks(image).into_iter().map(Place::Quota)),
            kind(5, orphans(image)),
        ];
        if let Some(log) = log::walk(image) {
            kinds.push(kind(3, [Place::JournalSuperblock]));
            kinds.push(kind(10, log.heads.into_iter().map(Place::Log)));
            kinds.push(kind(6, log.data.into_iter().map(Place::LogData)));
            kinds.push(kind(6, log.fast.into_iter().map(Place::FastCommit)));
        }
        if image.superblock.s_mmp_block.get() != 0 {
            kinds.push(kind(
                3,
                [Place::Mmp(Pblk(image.superblock.s_mmp_block.get()))],
            ));
        }
        kinds.retain(|kind| !kind.places.is_empty());
        Self { kinds }
    }

    /// One of the structures.
    pub fn any(&self, t: &mut Target<'_>) -> Place {
        let all: u64 = self.kinds.iter().map(|kind| kind.weight).sum();
        let mut left = t.random.below(all);
        for kind in &self.kinds {
            match left.checked_sub(kind.weight) {
                Some(rest) => left = rest,
                None => return kind.places[t.random.index(kind.places.len())],
            }
        }
        Place::Superblock
    }

    /// Another of the structures that are like this one; the same if there is no other.
    pub fn like(&self, place: Place, t: &mut Target<'_>) -> Place {
        let all = self.kinds.iter().flat_map(|kind| &kind.places);
        let alike: Vec<_> = all.filter(|p| p.is_like(&place) && **p != place).collect();
        alike
            .get(t.random.index(alike.len()))
            .map_or(place, |place| **place)
    }
}

fn kind(weight: u64, places: impl IntoIterator<Item = Place>) -> Kind {
    Kind {
        weight,
        places: places.into_iter().collect(),
    }
}

/// The nodes of what maps an inode; not the block numbers in an inode, which are fields of it.
fn nodes(known: &Known) -> impl Iterator<Item = Place> + '_ {
    let nodes = known.nodes.iter();
    nodes.map(|node| Place::Node(known.ino, *node))
}

fn attribute_blocks(image: &Survey) -> Vec<Place> {
    let owners = image
        .inodes
        .iter()
        .filter(|known| known.xattr_block().is_some());
    owners.map(|known| Place::Attributes(known.ino)).collect()
}

fn directory_blocks(image: &Survey) -> impl Iterator<Item = Place> + '_ {
    let directories = image.inodes.iter();
    let directories =
        directories.filter(|known| known.is(uext4_ondisk::inode::FileType::Directory));
    directories.flat_map(|known| {
        known.blocks.iter().map(|&at| {
            let is_inner = known.has(InodeFlags::INDEX)
                && (at.lblk == Lblk(0) || known.index_nodes.contains(&at.lblk));
            match is_inner {
                true => Place::Index(known.ino, at),
                false => Place::Names(known.ino, at),
            }
        })
    })
}

fn orphans(image: &Survey) -> Vec<Place> {
    let file = image.known(Ino(image.superblock.s_orphan_file_inum.get()));
    let blocks = file.into_iter().flat_map(|known| &known.blocks);
    blocks.map(|&at| Place::Orphans(at)).collect()
}
