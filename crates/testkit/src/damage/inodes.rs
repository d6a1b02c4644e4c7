//! Damage to the fields of inodes: regular files, directories, symbolic links, devices.

use uext4_ondisk::inode::{CHECKSUM_LO_OFFSET, FileType, InodeFlags, RawInode};

use super::{Kind, Known, Target};

use FileType::{CharDevice, Directory, Fifo, Regular, Symlink};

/// Changes the fields of an inode of this type.
fn of(t: &mut Target<'_>, file_type: FileType, change: fn(&mut RawInode)) -> Option<()> {
    let known = t.file(file_type)?;
    t.inode(known.ino, change)
}

/// Changes the fields of a regular file that has blocks.
fn of_blocks(t: &mut Target<'_>, change: fn(&mut RawInode)) -> Option<()> {
    let known = t.with_blocks()?;
    t.inode(known.ino, change)
}

/// Changes the fields of one of the inodes that this is true for.
fn of_those(
    t: &mut Target<'_>,
    is_meant: fn(&Known) -> bool,
    change: fn(&mut RawInode),
) -> Option<()> {
    let first = t.geometry().first_ino;
    let known = t.inode_where(|known| known.ino.0 > first && is_meant(known))?;
    t.inode(known.ino, change)
}

fn is_fast_link(known: &Known) -> bool {
    known.is(Symlink) && known.blocks.is_empty() && !known.has(InodeFlags::INLINE_DATA)
}

fn is_long_link(known: &Known) -> bool {
    known.is(Symlink) && !known.blocks.is_empty()
}

fn add(raw: &mut RawInode, flags: InodeFlags) {
    raw.i_flags = (raw.i_flags.get() | flags.bits()).into();
}

fn set_type(raw: &mut RawInode, bits: u16) {
    raw.i_mode = (raw.i_mode.get() & 0xFFF | bits).into();
}

const HINT: &str = "a value that any file may have";

pub(super) const KINDS: &[Kind] = &[
    Kind::new("inode-zeroed", "", |t| {
        let known = t.with_blocks()?;
        t.inode_bytes(known.ino, |bytes| bytes.fill(0))
    }),
    Kind::new("inode-random-bytes", "", |t| {
        let known = t.with_blocks()?;
        let mut random = t.random.clone();
        let fill = |bytes: &mut [u8]| bytes.fill_with(|| random.next_u64() as u8);
        t.inode_bytes(known.ino, fill)
    }),
    Kind::new("inode-directory-random-bytes", "", |t| {
        let known = t.file(Directory)?;
        let mut random = t.random.clone();
        let fill = |bytes: &mut [u8]| bytes.fill_with(|| random.next_u64() as u8);
        t.inode_bytes(known.ino, fill)
    }),
    Kind::new("inode-checksum", "metadata_csum", |t| {
        let known = t.with_blocks()?;
        t.inode_bytes(known.ino, |_| ())?;
        let place = t.clean.inode_place(known.ino);
        t.bytes[place.start + CHECKSUM_LO_OFFSET] ^= 0x55;
        Some(())
    }),
    Kind::new("inode-directory-checksum", "metadata_csum", |t| {
        let known = t.file(Directory)?;
        t.inode_bytes(known.ino, |_| ())?;
        let place = t.clean.inode_place(known.ino);
        t.bytes[place.start + CHECKSUM_LO_OFFSET] ^= 0x55;
        Some(())
    }),
    Kind::new("inode-generation", "metadata_csum", |t| {
        of_blocks(t, |raw| {
            raw.i_generation = (raw.i_generation.get() + 1).into()
        })
    })
    .unseen("only the sums of blocks that the file has not depend on it"),
    Kind::new("inode-type-none", "", |t| {
        of_blocks(t, |raw| set_type(raw, 0))
    }),
    Kind::new("inode-type-unknown", "", |t| {
        of_blocks(t, |raw| set_type(raw, 0xF000))
    }),
    Kind::new("inode-mode-zero", "", |t| {
        of_blocks(t, |raw| raw.i_mode = 0.into())
    }),
    Kind::new("inode-file-becomes-directory", "", |t| {
        of_blocks(t, |raw| set_type(raw, 0x4000))
    }),
    Kind::new("inode-file-becomes-device", "", |t| {
        of_blocks(t, |raw| set_type(raw, 0x6000))
    }),
    Kind::new("inode-file-becomes-link", "", |t| {
        of_blocks(t, |raw| set_type(raw, 0xA000))
    }),
    Kind::new("inode-directory-becomes-file", "", |t| {
        of(t, Directory, |raw| set_type(raw, 0x8000))
    }),
    Kind::new("inode-directory-mode-zero", "", |t| {
        of(t, Directory, |raw| raw.i_mode = 0.into())
    }),
    Kind::new("inode-directory-zeroed", "", |t| {
        let known = t.file(Directory)?;
        t.inode_bytes(known.ino, |bytes| bytes.fill(0))
    }),
    Kind::new("inode-links-too-many", "", |t| {
        of(t, Regular, |raw| {
            raw.i_links_count = (raw.i_links_count.get() + 3).into()
        })
    }),
    Kind::new("inode-links-too-few", "", |t| {
        of_those(
            t,
            |known| known.is(Regular) && known.raw.i_links_count.get() > 1,
            |raw| raw.i_links_count = 1.into(),
        )
    }),
    Kind::new("inode-links-zero", "", |t| {
        of(t, Regular, |raw| raw.i_links_count = 0.into())
    }),
    Kind::new("inode-links-zero-and-deleted", "", |t| {
        of(t, Regular, |raw| {
            raw.i_links_count = 0.into();
            raw.i_dtime = 0x6000_0000.into();
        })
    }),
    Kind::new("inode-directory-links", "", |t| {
        of(t, Directory, |raw| {
            raw.i_links_count = (raw.i_links_count.get() + 1).into()
        })
    }),
    Kind::new("inode-deletion-time", "", |t| {
        of(t, Regular, |raw| raw.i_dtime = 0x6000_0000.into())
    }),
    Kind::new("inode-size-too-small", "", |t| {
        of_those(
            t,
            |known| known.is(Regular) && known.blocks.last().is_some_and(|last| last.lblk.0 > 4),
            |raw| raw.i_size_lo = 10.into(),
        )
    }),
    Kind::new("inode-size-huge", "", |t| {
        of_blocks(t, |raw| raw.i_size_high = 0x7FFF_FFFF.into())
    }),
    Kind::new("inode-size-negative", "", |t| {
        of_blocks(t, |raw| raw.i_size_high = 0xFFFF_FFFF.into())
    }),
    Kind::new("inode-size-large-file", "", |t| {
        of_blocks(t, |raw| raw.i_size_lo = 0x9000_0000.into())
    })
    .unseen("a sparse file of this size may be"),
    Kind::new("inode-directory-size-zero", "", |t| {
        let known = t.directory()?;
        t.inode(known.ino, |raw| raw.i_size_lo = 0.into())
    }),
    Kind::new("inode-directory-size-odd", "", |t| {
        let known = t.directory()?;
        t.inode(known.ino, |raw| {
            raw.i_size_lo = (raw.i_size_lo.get() + 17).into()
        })
    }),
    Kind::new("inode-directory-size-too-large", "", |t| {
        let known = t.directory()?;
        let more = t.geometry().block_size.bytes() * 3;
        t.inode(known.ino, |raw| {
            raw.i_size_lo = (raw.i_size_lo.get() + more).into()
        })
    }),
    Kind::new("inode-directory-size-huge", "", |t| {
        of(t, Directory, |raw| raw.i_size_high = 0x10.into())
    }),
    Kind::new("inode-blocks-too-many", "", |t| {
        of_blocks(t, |raw| {
            raw.i_blocks_lo = (raw.i_blocks_lo.get() + 8).into()
        })
    }),
    Kind::new("inode-blocks-zero", "", |t| {
        of_blocks(t, |raw| raw.i_blocks_lo = 0.into())
    }),
    Kind::new("inode-blocks-high", "", |t| {
        of_blocks(t, |raw| raw.i_blocks_high = 1.into())
    }),
    Kind::new("inode-directory-blocks", "", |t| {
        let known = t.directory()?;
        t.inode(known.ino, |raw| {
            raw.i_blocks_lo = (raw.i_blocks_lo.get() + 2).into()
        })
    }),
    Kind::new("inode-blocks-in-file-system-blocks", "huge_file", |t| {
        of_blocks(t, |raw| add(raw, InodeFlags::HUGE_FILE))
    }),
    Kind::new(
        "inode-blocks-in-file-system-blocks-without-the-feature",
        "^huge_file",
        |t| of_blocks(t, |raw| add(raw, InodeFlags::HUGE_FILE)),
    )
    .unseen("e2fsck reads past the flag without the feature"),
    Kind::new("inode-without-extents-flag", "extent", |t| {
        of_blocks(t, |raw| {
            raw.i_flags = (raw.i_flags.get() & !InodeFlags::EXTENTS.bits()).into();
        })
    }),
    Kind::new("inode-directory-without-extents-flag", "extent", |t| {
        let known = t.directory()?;
        t.inode(known.ino, |raw| {
            raw.i_flags = (raw.i_flags.get() & !InodeFlags::EXTENTS.bits()).into();
        })
    }),
    Kind::new("inode-with-extents-flag", "extent", |t| {
        of_those(
            t,
            |known| !known.blocks.is_empty() && !known.has(InodeFlags::EXTENTS),
            |raw| add(raw, InodeFlags::EXTENTS),
        )
    }),
    Kind::new("inode-extents-without-the-feature", "^extent", |t| {
        of_blocks(t, |raw| add(raw, InodeFlags::EXTENTS))
    }),
    Kind::new("inode-file-with-index-flag", "", |t| {
        of_blocks(t, |raw| add(raw, InodeFlags::INDEX))
    })
    .unseen(HINT),
    Kind::new("inode-directory-with-index-flag", "", |t| {
        let is_meant = |k: &Known| k.is(Directory) && !k.has(InodeFlags::INDEX);
        let first = t.geometry().first_ino;
        let known = t.inode_where(|k| k.ino.0 > first && is_meant(k) && !k.blocks.is_empty())?;
        t.inode(known.ino, |raw| add(raw, InodeFlags::INDEX))
    }),
    Kind::new("inode-index-flag-without-the-feature", "^dir_index", |t| {
        let known = t.directory()?;
        t.inode(known.ino, |raw| add(raw, InodeFlags::INDEX))
    }),
    Kind::new("inode-directory-without-index-flag", "dir_index", |t| {
        let known = t.indexed()?;
        t.inode(known.ino, |raw| {
            raw.i_flags = (raw.i_flags.get() & !InodeFlags::INDEX.bits()).into();
        })
    })
    .unseen("without checksums the blocks of an index read as empty blocks of names"),
    Kind::new("inode-inline-flag", "inline_data", |t| {
        of_blocks(t, |raw| add(raw, InodeFlags::INLINE_DATA))
    }),
    Kind::new(
        "inode-inline-flag-without-the-feature",
        "^inline_data",
        |t| of_blocks(t, |raw| add(raw, InodeFlags::INLINE_DATA)),
    ),
    Kind::new(
        "inode-directory-inline-flag-without-the-feature",
        "^inline_data",
        |t| of(t, Directory, |raw| add(raw, InodeFlags::INLINE_DATA)),
    ),
    Kind::new("inode-encrypt-flag-without-the-feature", "^encrypt", |t| {
        of_blocks(t, |raw| add(raw, InodeFlags::ENCRYPT))
    }),
    Kind::new("inode-encrypt-flag-without-a-context", "encrypt", |t| {
        of(t, Directory, |raw| add(raw, InodeFlags::ENCRYPT))
    }),
    Kind::new(
        "inode-casefold-flag-without-the-feature",
        "^casefold",
        |t| of(t, Directory, |raw| add(raw, InodeFlags::CASEFOLD)),
    ),
    Kind::new("inode-casefold-flag-of-a-file", "casefold", |t| {
        of_blocks(t, |raw| add(raw, InodeFlags::CASEFOLD))
    }),
    Kind::new("inode-verity-flag-without-the-feature", "^verity", |t| {
        of_blocks(t, |raw| add(raw, InodeFlags::VERITY))
    })
    .unseen("e2fsck does not ask for the feature"),
    Kind::new("inode-ea-flag-without-the-feature", "^ea_inode", |t| {
        of_blocks(t, |raw| add(raw, InodeFlags::EA_INODE))
    })
    .unseen("e2fsck does not mind the flag of an inode with a name"),
    Kind::new("inode-ea-flag", "ea_inode", |t| {
        of_blocks(t, |raw| add(raw, InodeFlags::EA_INODE))
    })
    .unseen("e2fsck does not ask whether an inode with the flag has names"),
    Kind::new("inode-imagic-flag", "", |t| {
        of_blocks(t, |raw| add(raw, InodeFlags::IMAGIC))
    }),
    Kind::new("inode-compressed-flag", "", |t| {
        of_blocks(t, |raw| add(raw, InodeFlags::COMPRBLK))
    })
    .unseen("of compression, which never came to be, a flag alone says nothing"),
    Kind::new("inode-all-flags", "", |t| {
        of_blocks(t, |raw| raw.i_flags = u32::MAX.into())
    }),
    Kind::new("inode-link-immutable", "", |t| {
        of(t, Symlink, |raw| {
            add(raw, InodeFlags::IMMUTABLE | InodeFlags::APPEND)
        })
    })
    .unseen("e2fsck minds these flags of devices only"),
    Kind::new("inode-device-immutable", "", |t| {
        of(t, CharDevice, |raw| add(raw, InodeFlags::IMMUTABLE))
    }),
    Kind::new("inode-device-size", "", |t| {
        of(t, CharDevice, |raw| raw.i_size_lo = 5.into())
    }),
    Kind::new("inode-device-with-extents-flag", "extent", |t| {
        of(t, CharDevice, |raw| add(raw, InodeFlags::EXTENTS))
    }),
    Kind::new("inode-device-with-blocks", "", |t| {
        of(t, CharDevice, |raw| raw.i_blocks_lo = 2.into())
    }),
    Kind::new("inode-device-block-numbers", "", |t| {
        of(t, CharDevice, |raw| raw.i_block[12..40].fill(7))
    })
    .unseen("nothing reads what is behind a device's number"),
    Kind::new("inode-fifo-size", "", |t| {
        of(t, Fifo, |raw| raw.i_size_lo = 5.into())
    }),
    Kind::new("inode-fifo-with-index-flag", "", |t| {
        of(t, Fifo, |raw| add(raw, InodeFlags::INDEX))
    })
    .unseen(HINT),
    Kind::new("inode-fifo-numbers", "", |t| {
        of(t, Fifo, |raw| raw.i_block.fill(9))
    })
    .unseen("a pipe without extents may have any numbers: nothing reads them"),
    Kind::new("inode-link-size-zero", "", |t| {
        of(t, Symlink, |raw| raw.i_size_lo = 0.into())
    }),
    Kind::new("inode-link-size", "", |t| {
        of_those(t, is_fast_link, |raw| {
            raw.i_size_lo = (raw.i_size_lo.get() + 5).into()
        })
    }),
    Kind::new("inode-link-cut-by-a-zero", "", |t| {
        of_those(t, is_fast_link, |raw| raw.i_block[1] = 0)
    }),
    Kind::new("inode-link-with-extents-flag", "extent", |t| {
        of_those(t, is_fast_link, |raw| add(raw, InodeFlags::EXTENTS))
    }),
    Kind::new("inode-long-link-size", "", |t| {
        of_those(t, is_long_link, |raw| {
            raw.i_size_lo = (raw.i_size_lo.get() + 9).into()
        })
    }),
    Kind::new("inode-long-link-huge", "", |t| {
        of_those(t, is_long_link, |raw| raw.i_size_lo = 0x7000_0000.into())
    }),
    Kind::new("inode-long-link-cut-by-a-zero", "", |t| {
        let first = t.geometry().first_ino;
        let known = t.inode_where(|k| k.ino.0 > first && is_long_link(k))?;
        t.hurt.inodes.insert(known.ino);
        t.block(known.blocks[0].pblk)[3] = 0;
        Some(())
    }),
    Kind::new("inode-long-link-that-ends-early", "", |t| {
        let first = t.geometry().first_ino;
        let known = t.inode_where(|k| k.ino.0 > first && is_long_link(k))?;
        t.hurt.inodes.insert(known.ino);
        t.block(known.blocks[0].pblk)[3..].fill(0);
        Some(())
    }),
    Kind::new("inode-long-link-zeroed", "", |t| {
        let first = t.geometry().first_ino;
        let known = t.inode_where(|k| k.ino.0 > first && is_long_link(k))?;
        t.hurt.inodes.insert(known.ino);
        t.block(known.blocks[0].pblk).fill(0);
        Some(())
    }),
    Kind::new("inode-extra-size-odd", "", |t| {
        let known = t.with_blocks()?;
        (t.geometry().inode_size > 128).then_some(())?;
        t.inode_bytes(known.ino, |bytes| bytes[128] = 27)
    }),
    Kind::new("inode-extra-size-huge", "", |t| {
        let known = t.with_blocks()?;
        (t.geometry().inode_size > 128).then_some(())?;
        t.inode_bytes(known.ino, |bytes| bytes[129] = 0x7F)
    }),
    Kind::new("inode-extra-size-two", "", |t| {
        let known = t.with_blocks()?;
        (t.geometry().inode_size > 128).then_some(())?;
        t.inode_bytes(known.ino, |bytes| bytes[128] = 2)
    }),
    Kind::new("inode-attributes-outside", "", |t| {
        let outside = t.geometry().blocks_count as u32 + 9;
        let known = t.with_blocks()?;
        t.inode(known.ino, |raw| raw.i_file_acl_lo = outside.into())
    }),
    Kind::new("inode-attributes-high", "", |t| {
        of_blocks(t, |raw| raw.i_file_acl_high = 0x55.into())
    }),
    Kind::new("inode-attributes-in-a-free-block", "", |t| {
        let free = t.free_block()?.0 as u32;
        let known = t.with_blocks()?;
        t.inode(known.ino, |raw| raw.i_file_acl_lo = free.into())
    }),
    Kind::new("inode-attributes-in-metadata", "", |t| {
        let table = t.clean.groups[0].inode_table.0 as u32;
        let known = t.with_blocks()?;
        t.inode(known.ino, |raw| raw.i_file_acl_lo = table.into())
    }),
    Kind::new("inode-fragment", "", |t| {
        of_blocks(t, |raw| raw.i_obso_faddr = 77.into())
    })
    .unseen("the field is obsolete, and e2fsck looks at it without extents only"),
    Kind::new("inode-time-past-2310", "", |t| {
        of_blocks(t, |raw| {
            raw.i_mtime = 0x8000_0001.into();
            raw.i_mtime_extra = 3.into();
        })
    })
    .unseen("e2fsck takes such a time for one before 1970 only in file systems made before"),
    Kind::new("inode-free-one-with-links", "", |t| {
        let ino = (t.geometry().first_ino + 1..t.geometry().inodes_count)
            .map(uext4_ondisk::Ino)
            .find(|&ino| {
                t.clean.is_inode_used(ino) && {
                    let next = uext4_ondisk::Ino(ino.0 + 1);
                    !t.clean.is_inode_used(next)
                }
            })?;
        let next = uext4_ondisk::Ino(ino.0 + 1);
        t.inode_bytes(next, |bytes| {
            bytes[0..2].copy_from_slice(&[0xA4, 0x81]);
            bytes[26] = 1;
        })
    })
    .unseen("e2fsck does not read the part of a table that was never used"),
];
