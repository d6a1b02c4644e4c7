//! Damage to extended attributes: blocks of them, those within inodes, and inodes that hold values.

use uext4_ondisk::Ino;
use uext4_ondisk::inode::InodeFlags;
use uext4_ondisk::xattr::XATTR_BLOCK_HEADER_LEN;

use super::target::{get16, get32, put16, put32};
use super::{Kind, Known, Target};

const HEAD: usize = XATTR_BLOCK_HEADER_LEN;

/// Changes a block of attributes.
fn block(t: &mut Target<'_>, change: impl FnOnce(&mut [u8])) -> Option<()> {
    let known = t.inode_where(|k| k.xattr_block().is_some())?;
    t.xattr_block(known, change)
}

/// Whether an inode has attributes within it.
fn has_body(t: &Target<'_>, known: &Known) -> bool {
    body_start(t, known).is_some()
}

/// Where the first entry of the attributes within an inode is.
fn body_start(t: &Target<'_>, known: &Known) -> Option<usize> {
    let bytes = &t.clean.bytes[t.clean.inode_place(known.ino)];
    let at = 128 + usize::from(get16(bytes.get(..130)?, 128));
    let magic = bytes.get(at..at + 8)?;
    let is_ours = known.ino.0 >= t.geometry().first_ino;
    (is_ours && get32(magic, 0) == 0xEA02_0000 && get32(magic, 4) != 0).then_some(at + 4)
}

/// Changes the attributes within an inode, from their first entry on.
fn body(t: &mut Target<'_>, change: impl FnOnce(&mut [u8])) -> Option<()> {
    let inodes = t.clean.inodes.iter().filter(|known| has_body(t, known));
    let inodes: Vec<_> = inodes.collect();
    let known = t.one_of(&inodes)?;
    let at = body_start(t, known)?;
    t.inode_bytes(known.ino, |bytes| change(&mut bytes[at..]))
}

/// Changes an inode that holds a value.
fn holder(t: &mut Target<'_>, change: fn(&mut uext4_ondisk::inode::RawInode)) -> Option<()> {
    let known = t.inode_where(|k| k.has(InodeFlags::EA_INODE))?;
    // An inode that has the value may lose it.
    let users = t
        .clean
        .inodes
        .iter()
        .filter(|k| k.xattr_block().is_some() || has_body(t, k));
    let users: Vec<_> = users.map(|k| k.ino).collect();
    t.hurt.inodes.extend(users);
    t.inode(known.ino, change)
}

/// Changes the entry of an attribute whose value is in an inode: in a block or within an inode.
fn held(t: &mut Target<'_>, change: fn(&mut [u8])) -> Option<()> {
    let is_held = |bytes: &[u8]| get32(bytes, 4) != 0;
    let in_block = t.clean.inodes.iter().filter(|k| {
        let block = k.xattr_block().map(|block| t.clean.block(block));
        block.is_some_and(|bytes| is_held(&bytes[HEAD..]))
    });
    let in_block: Vec<_> = in_block.collect();
    if let Some(known) = t.one_of(&in_block) {
        return t.xattr_block(known, |bytes| change(&mut bytes[HEAD..]));
    }
    let in_body = t.clean.inodes.iter().filter(|k| {
        let bytes = &t.clean.bytes[t.clean.inode_place(k.ino)];
        body_start(t, k).is_some_and(|at| is_held(&bytes[at..]))
    });
    let in_body: Vec<_> = in_body.collect();
    let known = t.one_of(&in_body)?;
    let at = body_start(t, known)?;
    t.inode_bytes(known.ino, |bytes| change(&mut bytes[at..]))
}

pub(super) const KINDS: &[Kind] = &[
    Kind::new("attributes-magic", "", |t| {
        block(t, |bytes| put32(bytes, 0, 0xEA01_0000))
    }),
    Kind::new("attributes-zeroed", "", |t| block(t, |bytes| bytes.fill(0))),
    Kind::new("attributes-random-bytes", "", |t| {
        let mut random = t.random.clone();
        block(t, |bytes| bytes.fill_with(|| random.next_u64() as u8))
    }),
    Kind::new("attributes-random-entries", "", |t| {
        let mut random = t.random.clone();
        block(t, |bytes| {
            bytes[HEAD..].fill_with(|| random.next_u64() as u8)
        })
    }),
    Kind::new("attributes-references-too-many", "", |t| {
        block(t, |bytes| {
            let count = get32(bytes, 4);
            put32(bytes, 4, count + 3);
        })
    }),
    Kind::new("attributes-references-none", "", |t| {
        block(t, |bytes| put32(bytes, 4, 0))
    }),
    Kind::new("attributes-references-huge", "", |t| {
        block(t, |bytes| put32(bytes, 4, 0x7000_0000))
    }),
    Kind::new("attributes-blocks", "", |t| {
        block(t, |bytes| put32(bytes, 8, 2))
    }),
    Kind::new("attributes-hash", "", |t| {
        block(t, |bytes| put32(bytes, 12, 0x1234_5678))
    })
    .unseen("a hint for sharing, which e2fsck does not look at"),
    Kind::new("attributes-checksum", "metadata_csum", |t| {
        let known = t.inode_where(|k| k.xattr_block().is_some())?;
        t.xattr_block(known, |_| ())?;
        let place = known.xattr_block()?;
        t.block(place)[16] ^= 0x55;
        Some(())
    }),
    Kind::new("attributes-name-length", "", |t| {
        block(t, |bytes| bytes[HEAD] = 255)
    }),
    Kind::new("attributes-name-length-shorter", "", |t| {
        block(t, |bytes| bytes[HEAD] -= 1)
    }),
    Kind::new("attributes-name-index", "", |t| {
        block(t, |bytes| bytes[HEAD + 1] = 77)
    })
    .unseen("e2fsck leaves kinds of names that it does not know"),
    Kind::new("attributes-name-index-zero", "", |t| {
        block(t, |bytes| bytes[HEAD + 1] = 0)
    }),
    Kind::new("attributes-value-outside", "", |t| {
        block(t, |bytes| {
            let last = bytes.len() - 4;
            put16(bytes, HEAD + 2, last as u16);
        })
    }),
    Kind::new("attributes-value-in-the-head", "", |t| {
        block(t, |bytes| put16(bytes, HEAD + 2, 8))
    }),
    Kind::new("attributes-value-size", "", |t| {
        block(t, |bytes| put32(bytes, HEAD + 8, 0x00FF_FFFF))
    }),
    Kind::new("attributes-value-size-shorter", "", |t| {
        block(t, |bytes| {
            let size = get32(bytes, HEAD + 8);
            put32(bytes, HEAD + 8, size - 5);
        })
    }),
    Kind::new("attributes-value-changed", "", |t| {
        block(t, |bytes| {
            let at = usize::from(get16(bytes, HEAD + 2));
            bytes[at] ^= 0x40;
        })
    }),
    Kind::new("attributes-entry-hash", "", |t| {
        block(t, |bytes| put32(bytes, HEAD + 12, 0x7654_3210))
    }),
    Kind::new(
        "attributes-value-in-an-inode-without-the-feature",
        "^ea_inode",
        |t| block(t, |bytes| put32(bytes, HEAD + 4, 12)),
    ),
    Kind::new("attributes-end-missing", "", |t| {
        block(t, |bytes| {
            let mut at = HEAD;
            while get32(bytes, at) != 0 {
                at += (16 + usize::from(bytes[at])).next_multiple_of(4);
            }
            put32(bytes, at, 0x0101_0101);
        })
    })
    .unseen("e2fsck takes what follows for an attribute whose name has zeroes"),
    Kind::new("attributes-lost-reference", "", |t| {
        let known = t.inode_where(|k| k.xattr_block().is_some())?;
        t.inode(known.ino, |raw| {
            raw.i_file_acl_lo = 0.into();
            raw.i_file_acl_high = 0.into();
        })
    }),
    Kind::new("inner-attributes-magic", "", |t| {
        let inodes = t.clean.inodes.iter().filter(|known| has_body(t, known));
        let inodes: Vec<_> = inodes.collect();
        let known = t.one_of(&inodes)?;
        let at = body_start(t, known)?;
        t.inode_bytes(known.ino, |bytes| put32(bytes, at - 4, 0xEA03_0000))
    })
    .unseen("without their magic number there are no attributes"),
    Kind::new("inner-attributes-name-length", "", |t| {
        body(t, |bytes| bytes[0] = 200)
    }),
    Kind::new("inner-attributes-value-outside", "", |t| {
        body(t, |bytes| put16(bytes, 2, 0x0FFC))
    }),
    Kind::new("inner-attributes-value-in-the-entries", "", |t| {
        body(t, |bytes| put16(bytes, 2, 4))
    })
    .unseen("a value without bytes may have any place in the inode"),
    Kind::new("inner-attributes-value-size", "", |t| {
        body(t, |bytes| put32(bytes, 8, 0x0001_0000))
    }),
    Kind::new("inner-attributes-entry-hash", "", |t| {
        body(t, |bytes| put32(bytes, 12, 0x7654_3210))
    }),
    Kind::new("inner-attributes-random-bytes", "", |t| {
        let mut random = t.random.clone();
        body(t, |bytes| bytes.fill_with(|| random.next_u64() as u8))
    }),
    Kind::new("inner-attributes-value-in-an-inode", "^ea_inode", |t| {
        body(t, |bytes| put32(bytes, 4, 13))
    }),
    Kind::new("attribute-inode-number-zero", "ea_inode", |t| {
        held(t, |bytes| put32(bytes, 4, 0))
    }),
    Kind::new("attribute-inode-number-outside", "ea_inode", |t| {
        held(t, |bytes| put32(bytes, 4, 0x7FFF_FFFF))
    }),
    Kind::new("attribute-inode-number-of-a-directory", "ea_inode", |t| {
        held(t, |bytes| put32(bytes, 4, 2))
    }),
    Kind::new("attribute-inode-number-unused", "ea_inode", |t| {
        held(t, |bytes| {
            let ino = get32(bytes, 4);
            put32(bytes, 4, ino + 1);
        })
    }),
    Kind::new("attribute-inode-size-in-the-entry", "ea_inode", |t| {
        held(t, |bytes| {
            let size = get32(bytes, 8);
            put32(bytes, 8, size + 100);
        })
    }),
    Kind::new("attribute-inode-hash-in-the-entry", "ea_inode", |t| {
        held(t, |bytes| put32(bytes, 12, 0x1111_2222))
    }),
    Kind::new("attribute-inode-references", "ea_inode", |t| {
        holder(t, |raw| raw.i_version = (raw.i_version.get() + 5).into())
    }),
    Kind::new("attribute-inode-references-none", "ea_inode", |t| {
        holder(t, |raw| raw.i_version = 0.into())
    }),
    Kind::new("attribute-inode-hash", "ea_inode", |t| {
        holder(t, |raw| raw.i_atime = 0x5555_6666.into())
    }),
    Kind::new("attribute-inode-flag-missing", "ea_inode", |t| {
        holder(t, |raw| {
            raw.i_flags = (raw.i_flags.get() & !InodeFlags::EA_INODE.bits()).into();
        })
    }),
    Kind::new("attribute-inode-links", "ea_inode", |t| {
        holder(t, |raw| raw.i_links_count = 4.into())
    }),
    Kind::new("attribute-inode-size", "ea_inode", |t| {
        holder(t, |raw| raw.i_size_lo = (raw.i_size_lo.get() / 2).into())
    }),
    Kind::new("attribute-inode-zeroed", "ea_inode", |t| {
        holder(t, |raw| *raw = uext4_ondisk::inode::RawInode::zeroed())
    }),
    Kind::new("attribute-inode-becomes-directory", "ea_inode", |t| {
        holder(t, |raw| raw.i_mode = 0o040_755.into())
    }),
    Kind::new("attribute-inode-in-a-reserved-inode", "ea_inode", |t| {
        let is_held = |k: &&Known| {
            let bytes = &t.clean.bytes[t.clean.inode_place(k.ino)];
            body_start(t, k).is_some_and(|at| get32(&bytes[at..], 4) != 0)
        };
        let from = t
            .clean
            .inode_place(t.clean.inodes.iter().find(is_held)?.ino);
        let bytes = t.clean.bytes[from][128..].to_vec();
        t.inode_bytes(Ino(5), |old| old[128..].copy_from_slice(&bytes))
    })
    .unseen("e2fsck does not look at attributes within reserved inodes"),
    Kind::new("attribute-inode-content", "ea_inode", |t| {
        let known = t.inode_where(|k| k.has(InodeFlags::EA_INODE))?;
        holder(t, |_| ())?;
        let place = known.blocks.first()?.pblk;
        t.block(place)[7] ^= 0x20;
        Some(())
    })
    .unseen("e2fsck compares the hash that is stored, not the one of the bytes"),
];
