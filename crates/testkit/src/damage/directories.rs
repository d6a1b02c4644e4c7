//! Damage to directories as a whole: their dot entries, their blocks, their place in the tree.

use uext4_ondisk::dir_entry::DIR_TAIL_LEN;
use uext4_ondisk::inode::{FileType, InodeFlags};
use uext4_ondisk::{Ino, Lblk};

use super::target::{get16, put16, put32};
use super::{Kind, Known, Mapped, Target};

/// Changes the first block of a directory, where its dot entries are.
fn dots(t: &mut Target<'_>, change: impl FnOnce(&mut [u8])) -> Option<()> {
    let known = t.directory()?;
    first(t, known, change)
}

fn first(t: &mut Target<'_>, known: &Known, change: impl FnOnce(&mut [u8])) -> Option<()> {
    let mapped = *known.blocks.first()?;
    (mapped.lblk == Lblk(0)).then_some(())?;
    t.dir_block(known, mapped, change)
}

/// A directory without an index, which is what most are.
fn plain<'a>(t: &mut Target<'a>) -> Option<&'a Known> {
    let first = t.geometry().first_ino;
    t.inode_where(|k| {
        let is_plain = k.is(FileType::Directory) && !k.has(InodeFlags::INDEX);
        k.ino.0 > first && is_plain && !k.blocks.is_empty()
    })
}

fn last(known: &Known) -> Option<Mapped> {
    known.blocks.last().copied()
}

/// The directories in this one.
fn children(t: &Target<'_>, known: &Known) -> Vec<Ino> {
    let records = known.blocks.iter();
    let is_inner = |mapped: &&Mapped| !known.index_nodes.contains(&mapped.lblk);
    let records = records
        .filter(is_inner)
        .flat_map(|&mapped| t.records_of(mapped));
    let inodes = records.filter(|record| record.name != b"." && record.name != b"..");
    let is_directory = |ino: &Ino| {
        t.clean
            .known(*ino)
            .is_some_and(|k| k.is(FileType::Directory))
    };
    inodes
        .map(|record| record.ino)
        .filter(is_directory)
        .collect()
}

/// A directory, and one of the directories in it.
fn with_child<'a>(t: &mut Target<'a>) -> Option<(&'a Known, Ino)> {
    let clean = t.clean;
    let first = t.geometry().first_ino;
    let pairs: Vec<_> = clean
        .inodes
        .iter()
        .filter(|k| k.ino.0 > first && k.is(FileType::Directory) && !k.blocks.is_empty())
        .flat_map(|k| children(t, k).into_iter().map(move |child| (k, child)))
        .collect();
    t.one_of(&pairs)
}

pub(super) const KINDS: &[Kind] = &[
    Kind::new("directory-dot-inode", "", |t| {
        dots(t, |bytes| put32(bytes, 0, 2))
    }),
    Kind::new("directory-dot-inode-zero", "", |t| {
        dots(t, |bytes| put32(bytes, 0, 0))
    }),
    Kind::new("directory-dot-name", "", |t| {
        dots(t, |bytes| bytes[8] = b'x')
    }),
    Kind::new("directory-dot-name-length", "", |t| {
        dots(t, |bytes| bytes[6] = 3)
    }),
    Kind::new("directory-dot-name-without-its-zero", "", |t| {
        dots(t, |bytes| bytes[9] = b'x')
    })
    .unseen("e2fsck looks at the zero behind the name only if the record is the usual one"),
    Kind::new("directory-dot-record-long", "", |t| {
        dots(t, |bytes| {
            let len = get16(bytes, 4) + get16(bytes, 16);
            put16(bytes, 4, len);
        })
    }),
    Kind::new("directory-dot-record-longer-than-usual", "", |t| {
        let known = plain(t)?;
        first(t, known, |bytes| put16(bytes, 4, 20))
    }),
    Kind::new("directory-dot-type", "filetype", |t| {
        dots(t, |bytes| bytes[7] = 1)
    }),
    Kind::new("directory-dotdot-inode", "", |t| {
        let known = t.directory()?;
        let other = t.with_blocks()?.ino.0;
        first(t, known, |bytes| put32(bytes, 12, other))
    }),
    Kind::new("directory-dotdot-another-directory", "", |t| {
        let (known, child) = with_child(t)?;
        first(t, known, |bytes| put32(bytes, 12, child.0))
    }),
    Kind::new("directory-dotdot-outside", "", |t| {
        dots(t, |bytes| put32(bytes, 12, 0x7FFF_FFFF))
    }),
    Kind::new("directory-dotdot-zero", "", |t| {
        dots(t, |bytes| put32(bytes, 12, 0))
    }),
    Kind::new("directory-dotdot-name", "", |t| {
        dots(t, |bytes| bytes[20] = b'x')
    }),
    Kind::new("directory-dotdot-name-length", "", |t| {
        dots(t, |bytes| bytes[18] = 1)
    }),
    Kind::new("directory-dotdot-type", "filetype", |t| {
        dots(t, |bytes| bytes[19] = 1)
    }),
    Kind::new("directory-dots-swapped", "", |t| {
        let known = plain(t)?;
        first(t, known, |bytes| {
            bytes[18] = 1;
            bytes[21] = 0;
            bytes[6] = 2;
            bytes[9] = b'.';
        })
    }),
    Kind::new("directory-block-zeroed", "", |t| {
        let known = plain(t)?;
        let mapped = last(known)?;
        t.dir_block(known, mapped, |bytes| bytes.fill(0))
    }),
    Kind::new("directory-block-random-bytes", "", |t| {
        let known = t.directory()?;
        let mapped = t.one_of(&known.blocks)?;
        let mut random = t.random.clone();
        t.dir_block(known, mapped, |bytes| {
            bytes.fill_with(|| random.next_u64() as u8)
        })
    }),
    Kind::new("directory-block-of-the-root-zeroed", "", |t| {
        let known = t.clean.known(Ino::ROOT)?;
        let mapped = *known.blocks.first()?;
        t.dir_block(known, mapped, |bytes| bytes.fill(0))
    }),
    Kind::new("directory-block-one-sector-zeroed", "", |t| {
        let known = t.directory()?;
        let mapped = t.one_of(&known.blocks)?;
        t.dir_block(known, mapped, |bytes| bytes[512..1024].fill(0))
    }),
    Kind::new("directory-tail-checksum", "metadata_csum", |t| {
        let known = plain(t)?;
        let mapped = last(known)?;
        t.dir_block(known, mapped, |_| ())?;
        *t.block(mapped.pblk).last_mut()? ^= 0x55;
        Some(())
    }),
    Kind::new("directory-tail-missing", "metadata_csum", |t| {
        let known = plain(t)?;
        let mapped = last(known)?;
        let record = t.records_of(mapped).pop()?;
        t.dir_block(known, mapped, |bytes| {
            let at = bytes.len() - DIR_TAIL_LEN;
            bytes[at..].fill(0);
            let len = bytes.len() - record.at;
            put16(bytes, record.at + 4, len as u16);
        })
    }),
    Kind::new("directory-tail-type", "metadata_csum", |t| {
        let known = plain(t)?;
        let mapped = last(known)?;
        t.dir_block(known, mapped, |bytes| {
            let at = bytes.len() - 5;
            bytes[at] = 0;
        })
    }),
    Kind::new("directory-hole", "extent", |t| {
        let first = t.geometry().first_ino;
        let known = t.inode_where(|k| {
            let is_meant = k.is(FileType::Directory) && k.has(InodeFlags::EXTENTS);
            k.ino.0 > first && is_meant && k.blocks.len() > 1 && k.nodes.len() == 1
        })?;
        let node = known.nodes[0];
        t.node(known, node, |bytes| {
            let len = get16(bytes, 12 + 4);
            put16(bytes, 12 + 4, len - 1);
        })
    }),
    Kind::new("directory-hole-in-numbers", "^extent", |t| {
        let first = t.geometry().first_ino;
        let is_meant = |k: &Known| k.is(FileType::Directory) && k.blocks.len() > 2;
        let known = t.inode_where(|k| k.ino.0 > first && is_meant(k))?;
        t.inode(known.ino, |raw| put32(&mut raw.i_block, 4, 0))
    }),
    Kind::new("directory-without-blocks", "^inline_data", |t| {
        let known = t.directory()?;
        let is_extents = known.has(InodeFlags::EXTENTS);
        t.inode(known.ino, |raw| match is_extents {
            true => put16(&mut raw.i_block, 2, 0),
            false => raw.i_block.fill(0),
        })
    }),
    Kind::new("directory-contains-itself", "", |t| {
        let known = t.directory()?;
        let mut leaf = t.records(known)?;
        let record = leaf.records.pop()?;
        let itself = known.ino.0;
        t.dir_block(known, leaf.mapped, |bytes| put32(bytes, record.at, itself))
    }),
    Kind::new("directory-contains-the-root", "", |t| {
        let known = t.directory()?;
        let mut leaf = t.records(known)?;
        let record = leaf.records.pop()?;
        (record.name != b"..").then_some(())?;
        t.dir_block(known, leaf.mapped, |bytes| put32(bytes, record.at, 2))
    }),
    Kind::new("directory-loop", "", |t| {
        let (known, child) = with_child(t)?;
        t.hurt.inodes.insert(child);
        let child = t.clean.known(child)?;
        // Whatever named the parent does no longer; the child does instead.
        super::entries::forget(t, known.ino)?;
        let mut leaf = t.records(child)?;
        let record = leaf.records.pop()?;
        (record.name != b".." && record.name != b".").then_some(())?;
        let parent = known.ino.0;
        t.dir_block(child, leaf.mapped, |bytes| put32(bytes, record.at, parent))
    }),
    Kind::new("directory-without-a-name", "", |t| {
        let known = t.directory()?;
        super::entries::forget(t, known.ino)
    }),
    Kind::new("directory-in-two-places", "", |t| {
        let (_, child) = with_child(t)?;
        let known = t.directory()?;
        let mut leaf = t.records(known)?;
        let record = leaf.records.pop()?;
        (record.name != b".." && record.name != b"." && record.ino != child).then_some(())?;
        t.hurt.inodes.insert(child);
        t.dir_block(known, leaf.mapped, |bytes| put32(bytes, record.at, child.0))
    }),
];
