//! Damage to data within inodes: of files, directories and links.

use uext4_ondisk::inode::{FileType, InodeFlags, RawInode};

use super::target::{get16, get32, put16, put32};
use super::{Kind, Known, Target};

/// An inode of this type with its data within it.
fn inline<'a>(t: &mut Target<'a>, file_type: FileType) -> Option<&'a Known> {
    let first = t.geometry().first_ino;
    t.inode_where(|k| k.ino.0 > first && k.is(file_type) && k.has(InodeFlags::INLINE_DATA))
}

fn fields(t: &mut Target<'_>, of: FileType, change: impl FnOnce(&mut RawInode)) -> Option<()> {
    let known = inline(t, of)?;
    t.inode(known.ino, change)
}

/// Changes the attribute that holds the rest of the data.
fn attribute(t: &mut Target<'_>, of: FileType, change: impl FnOnce(&mut [u8])) -> Option<()> {
    let known = inline(t, of)?;
    t.inode_bytes(known.ino, |bytes| {
        let at = 128 + usize::from(get16(bytes, 128));
        change(&mut bytes[at..]);
    })
}

use FileType::{Directory, Regular, Symlink};

pub(super) const KINDS: &[Kind] = &[
    Kind::new("inline-flag-missing", "inline_data", |t| {
        fields(t, Regular, |raw| {
            raw.i_flags = (raw.i_flags.get() & !InodeFlags::INLINE_DATA.bits()).into();
        })
    }),
    Kind::new("inline-directory-flag-missing", "inline_data", |t| {
        fields(t, Directory, |raw| {
            raw.i_flags = (raw.i_flags.get() & !InodeFlags::INLINE_DATA.bits()).into();
        })
    }),
    Kind::new("inline-with-extents-flag", "inline_data", |t| {
        fields(t, Regular, |raw| {
            raw.i_flags = (raw.i_flags.get() | InodeFlags::EXTENTS.bits()).into();
        })
    }),
    Kind::new("inline-size-too-large", "inline_data", |t| {
        fields(t, Regular, |raw| raw.i_size_lo = 3000.into())
    })
    .unseen("e2fsck does not compare the size of a regular file with its inline data"),
    Kind::new("inline-directory-size-too-large", "inline_data", |t| {
        fields(t, Directory, |raw| raw.i_size_lo = 4000.into())
    }),
    Kind::new("inline-directory-size-zero", "inline_data", |t| {
        fields(t, Directory, |raw| raw.i_size_lo = 0.into())
    }),
    Kind::new("inline-directory-size-odd", "inline_data", |t| {
        fields(t, Directory, |raw| {
            raw.i_size_lo = (raw.i_size_lo.get() + 3).into()
        })
    }),
    Kind::new("inline-with-blocks", "inline_data", |t| {
        fields(t, Regular, |raw| raw.i_blocks_lo = 8.into())
    }),
    Kind::new("inline-attribute-missing", "inline_data", |t| {
        attribute(t, Regular, |bytes| bytes.fill(0))
    }),
    Kind::new("inline-directory-attribute-missing", "inline_data", |t| {
        attribute(t, Directory, |bytes| bytes.fill(0))
    }),
    Kind::new("inline-attribute-value-outside", "inline_data", |t| {
        attribute(t, Regular, |bytes| put16(bytes, 4 + 2, 0x3000))
    }),
    Kind::new("inline-attribute-value-size", "inline_data", |t| {
        attribute(t, Regular, |bytes| put32(bytes, 4 + 8, 0x2000))
    }),
    Kind::new("inline-attribute-name", "inline_data", |t| {
        attribute(t, Directory, |bytes| bytes[4 + 16] = b'x')
    }),
    Kind::new("inline-directory-parent-outside", "inline_data", |t| {
        fields(t, Directory, |raw| put32(&mut raw.i_block, 0, 0x7FFF_FFFF))
    }),
    Kind::new("inline-directory-parent-zero", "inline_data", |t| {
        fields(t, Directory, |raw| put32(&mut raw.i_block, 0, 0))
    }),
    Kind::new("inline-directory-parent-a-file", "inline_data", |t| {
        let other = t.with_blocks()?.ino.0;
        fields(t, Directory, |raw| put32(&mut raw.i_block, 0, other))
    }),
    Kind::new("inline-directory-record-length", "inline_data", |t| {
        fields(t, Directory, |raw| put16(&mut raw.i_block, 4 + 4, 6))
    }),
    Kind::new("inline-directory-record-past-the-end", "inline_data", |t| {
        fields(t, Directory, |raw| put16(&mut raw.i_block, 4 + 4, 400))
    }),
    Kind::new("inline-directory-name-length", "inline_data", |t| {
        fields(t, Directory, |raw| raw.i_block[4 + 6] = 255)
    }),
    Kind::new("inline-directory-entry-outside", "inline_data", |t| {
        let known = t.inode_where(|k| {
            let is_inline = k.is(Directory) && k.has(InodeFlags::INLINE_DATA);
            is_inline && get32(&k.raw.i_block, 4) != 0
        })?;
        t.inode(known.ino, |raw| put32(&mut raw.i_block, 4, 0x7FFF_FFFF))
    }),
    Kind::new("inline-directory-entry-type", "inline_data,filetype", |t| {
        let known = t.inode_where(|k| {
            let is_inline = k.is(Directory) && k.has(InodeFlags::INLINE_DATA);
            is_inline && get32(&k.raw.i_block, 4) != 0
        })?;
        t.inode(known.ino, |raw| raw.i_block[4 + 7] ^= 4)
    }),
    Kind::new("inline-directory-random-bytes", "inline_data", |t| {
        let mut random = t.random.clone();
        fields(t, Directory, |raw| {
            raw.i_block.fill_with(|| random.next_u64() as u8)
        })
    }),
    Kind::new(
        "inline-directory-with-index-flag",
        "inline_data,dir_index",
        |t| {
            fields(t, Directory, |raw| {
                raw.i_flags = (raw.i_flags.get() | InodeFlags::INDEX.bits()).into();
            })
        },
    ),
    Kind::new("inline-link-size", "inline_data", |t| {
        fields(t, Symlink, |raw| {
            raw.i_size_lo = (raw.i_size_lo.get() + 40).into()
        })
    }),
    Kind::new("inline-link-with-a-zero", "inline_data", |t| {
        fields(t, Symlink, |raw| raw.i_block[2] = 0)
    })
    .unseen("e2fsck does not look for the end of a target that lies in an attribute"),
];
