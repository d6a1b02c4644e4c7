//! Damage to the entries of directories.

use uext4_ondisk::Ino;
use uext4_ondisk::inode::FileType;

use super::target::{get16, put16, put32};
use super::{Kind, Leaf, Record, Target};

/// Changes an entry with a name of its own, in a directory that is not the root.
fn entry(t: &mut Target<'_>, change: impl FnOnce(&mut [u8], &Record)) -> Option<()> {
    let known = t.directory()?;
    let Leaf { mapped, records } = t.records(known)?;
    let is_own = |record: &Record| record.name != b"." && record.name != b"..";
    let records: Vec<_> = records.into_iter().filter(is_own).collect();
    let record = t.one_of(&records)?;
    t.dir_block(known, mapped, |bytes| {
        change(&mut bytes[record.at..], &record)
    })
}

/// Takes the entry that names an inode away, wherever it is.
pub(super) fn forget(t: &mut Target<'_>, ino: Ino) -> Option<()> {
    let clean = t.clean;
    for known in clean.inodes.iter().filter(|k| k.is(FileType::Directory)) {
        for &mapped in &known.blocks {
            let is_inner = known.index_nodes.contains(&mapped.lblk);
            let records = match is_inner {
                true => Vec::new(),
                false => t.records_of(mapped),
            };
            let is_it = |r: &&Record| r.ino == ino && r.name != b"." && r.name != b"..";
            if let Some(record) = records.iter().find(is_it) {
                return t.dir_block(known, mapped, |bytes| put32(bytes, record.at, 0));
            }
        }
    }
    None
}

/// Lets an entry name another inode.
fn name(t: &mut Target<'_>, ino: u32) -> Option<()> {
    entry(t, |bytes, _| put32(bytes, 0, ino))
}

/// An inode behind the reserved ones whose bit is clear.
fn unused(t: &Target<'_>) -> Option<u32> {
    let geometry = t.geometry();
    let mut all = (geometry.first_ino..=geometry.inodes_count).rev();
    all.find(|&ino| !t.clean.is_inode_used(Ino(ino)))
}

/// Two entries of a directory's block.
struct Alike {
    ino: Ino,
    leaf: Leaf,
    first: Record,
    second: Record,
}

/// Two entries of one block whose names are equally long.
fn alike(t: &mut Target<'_>) -> Option<Alike> {
    let known = t.directory()?;
    let leaf = t.records(known)?;
    let mut records = leaf
        .records
        .iter()
        .skip_while(|r| r.name == b"." || r.name == b"..");
    let first = records.next()?.clone();
    let second = records.find(|r| r.name.len() == first.name.len())?.clone();
    Some(Alike {
        ino: known.ino,
        leaf,
        first,
        second,
    })
}

const NOT_MINDED: &str = "a name may have these bytes";

pub(super) const KINDS: &[Kind] = &[
    Kind::new("entry-inode-outside", "", |t| name(t, 0x7FFF_0000)),
    Kind::new("entry-inode-just-outside", "", |t| {
        let outside = t.geometry().inodes_count + 1;
        name(t, outside)
    }),
    Kind::new("entry-inode-unused", "", |t| {
        let ino = unused(t)?;
        name(t, ino)
    }),
    Kind::new("entry-inode-bad-blocks", "", |t| name(t, 1)),
    Kind::new("entry-inode-resize", "", |t| name(t, 7)),
    Kind::new("entry-inode-journal", "", |t| name(t, 8)),
    Kind::new("entry-inode-of-another-file", "", |t| {
        let other = t.with_blocks()?.ino;
        t.hurt.inodes.insert(other);
        name(t, other.0)
    }),
    Kind::new("entry-inode-of-a-holder-of-attributes", "ea_inode", |t| {
        let holder = uext4_ondisk::inode::InodeFlags::EA_INODE;
        let ino = t.inode_where(|k| k.has(holder))?.ino.0;
        name(t, ino)
    }),
    Kind::new("entry-removed", "", |t| {
        entry(t, |bytes, _| put32(bytes, 0, 0))
    }),
    Kind::new("entry-record-length-zero", "", |t| {
        entry(t, |bytes, _| put16(bytes, 4, 0))
    }),
    Kind::new("entry-record-length-small", "", |t| {
        entry(t, |bytes, _| put16(bytes, 4, 8))
    }),
    Kind::new("entry-record-length-odd", "", |t| {
        entry(t, |bytes, record| put16(bytes, 4, record.len as u16 + 1))
    }),
    Kind::new("entry-record-length-past-the-end", "", |t| {
        entry(t, |bytes, record| put16(bytes, 4, record.len as u16 + 4096))
    }),
    Kind::new("entry-record-length-max", "", |t| {
        entry(t, |bytes, _| put16(bytes, 4, 0xFFFC))
    }),
    Kind::new("entry-record-swallows-the-next", "", |t| {
        let known = t.directory()?;
        let Leaf { mapped, records } = t.records(known)?;
        let pair = t.one_of(&records.windows(2).collect::<Vec<_>>())?;
        (pair[0].name != b"." && pair[0].name != b"..").then_some(())?;
        let len = pair[1].at + pair[1].len - pair[0].at;
        t.dir_block(known, mapped, |bytes| {
            put16(bytes, pair[0].at + 4, len as u16)
        })
    }),
    Kind::new("entry-name-length-zero", "", |t| {
        entry(t, |bytes, _| bytes[6] = 0)
    }),
    Kind::new("entry-name-length-past-the-record", "", |t| {
        entry(t, |bytes, record| {
            bytes[6] = (record.len - 7).min(255) as u8
        })
    }),
    Kind::new("entry-name-length-max", "", |t| {
        entry(t, |bytes, _| bytes[6] = 255)
    }),
    Kind::new("entry-name-with-a-slash", "", |t| {
        entry(t, |bytes, _| bytes[8] = b'/')
    }),
    Kind::new("entry-name-with-a-zero", "", |t| {
        entry(t, |bytes, _| bytes[8] = 0)
    }),
    Kind::new("entry-name-with-control-bytes", "", |t| {
        let known = t.directory()?;
        (!known.has(uext4_ondisk::inode::InodeFlags::INDEX)).then_some(())?;
        let Leaf {
            mapped,
            mut records,
        } = t.records(known)?;
        let record = records.pop()?;
        (record.name != b"..").then_some(())?;
        t.dir_block(known, mapped, |bytes| bytes[record.at + 8] = 0xFF)
    })
    .unseen(NOT_MINDED),
    Kind::new("entry-named-dot", "", |t| {
        entry(t, |bytes, _| {
            bytes[6] = 1;
            bytes[8] = b'.';
        })
    }),
    Kind::new("entry-named-dotdot", "", |t| {
        entry(t, |bytes, _| {
            bytes[6] = 2;
            bytes[8..10].copy_from_slice(b"..");
        })
    }),
    Kind::new("entry-duplicate", "", |t| {
        let Alike {
            ino,
            leaf,
            first,
            second,
        } = alike(t)?;
        let known = t.clean.known(ino)?;
        t.dir_block(known, leaf.mapped, |bytes| {
            let at = first.at + 8..first.at + 8 + first.name.len();
            bytes.copy_within(at, second.at + 8);
        })
    }),
    Kind::new("entry-duplicate-of-the-same-inode", "", |t| {
        let Alike {
            ino,
            leaf,
            first,
            second,
        } = alike(t)?;
        let known = t.clean.known(ino)?;
        t.hurt.inodes.extend([first.ino, second.ino]);
        t.dir_block(known, leaf.mapped, |bytes| {
            let at = first.at + 8..first.at + 8 + first.name.len();
            bytes.copy_within(at, second.at + 8);
            bytes.copy_within(first.at..first.at + 4, second.at);
        })
    }),
    Kind::new("entry-type-wrong", "filetype", |t| {
        entry(t, |bytes, _| bytes[7] = if bytes[7] == 4 { 3 } else { 4 })
    }),
    Kind::new("entry-type-unknown", "filetype", |t| {
        entry(t, |bytes, _| bytes[7] = 77)
    }),
    Kind::new("entry-type-none", "filetype", |t| {
        entry(t, |bytes, _| bytes[7] = 0)
    })
    .unseen("with inline data e2fsck does not compare this type"),
    Kind::new("entry-type-without-the-feature", "^filetype", |t| {
        entry(t, |bytes, _| bytes[7] = 1)
    }),
    Kind::new("entry-hard-link-to-a-directory", "", |t| {
        let other = t.directory()?.ino;
        t.hurt.inodes.insert(other);
        name(t, other.0)
    }),
    Kind::new("entry-lost-and-found-removed", "", |t| {
        let root = t.clean.known(Ino::ROOT)?;
        let mapped = *root.blocks.first()?;
        let records = t.records_of(mapped);
        let record = records.iter().find(|record| record.name == b"lost+found")?;
        t.hurt.inodes.insert(record.ino);
        t.dir_block(root, mapped, |bytes| put32(bytes, record.at, 0))
    }),
    Kind::new("entry-all-removed", "", |t| {
        let known = t.directory()?;
        let Leaf { mapped, records } = t.records(known)?;
        t.dir_block(known, mapped, |bytes| {
            for record in records.iter().filter(|r| r.name != b"." && r.name != b"..") {
                put32(bytes, record.at, 0);
            }
        })
    }),
    Kind::new("entry-record-shorter", "", |t| {
        let known = t.directory()?;
        let Leaf { mapped, records } = t.records(known)?;
        let record = records.last()?.clone();
        t.dir_block(known, mapped, |bytes| {
            let len = get16(bytes, record.at + 4);
            put16(bytes, record.at + 4, len - 4);
        })
    }),
];
