//! Damage to group descriptors and bitmaps.

use uext4_ondisk::group_desc::{BG_BLOCK_UNINIT, BG_INODE_UNINIT, BG_INODE_ZEROED, GroupDesc};
use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Ino, Pblk};

use super::{Bitmap, Kind, Known, Target};

/// Changes the descriptor of one of the groups that this is true for.
fn desc(
    t: &mut Target<'_>,
    is_meant: impl Fn(&GroupDesc) -> bool,
    change: impl FnOnce(&mut GroupDesc),
) -> Option<()> {
    t.hurt.all = false;
    let group = group_where(t, is_meant)?;
    t.group(group, change)
}

fn any(_: &GroupDesc) -> bool {
    true
}

fn group_where(t: &mut Target<'_>, is_meant: impl Fn(&GroupDesc) -> bool) -> Option<GroupNr> {
    let groups = (0..).map(GroupNr).zip(&t.clean.groups);
    let groups = groups.filter(|(_, desc)| is_meant(desc));
    let groups: Vec<_> = groups.map(|(group, _)| group).collect();
    t.one_of(&groups)
}

fn has_block_bitmap(desc: &GroupDesc) -> bool {
    desc.flags & BG_BLOCK_UNINIT == 0
}

fn has_inodes(desc: &GroupDesc) -> bool {
    desc.flags & BG_INODE_UNINIT == 0
}

/// A block past the end of the file system.
fn outside(t: &Target<'_>) -> Pblk {
    Pblk(t.geometry().blocks_count + 5)
}

/// Sets or clears a bit; `None` if that changes nothing.
fn set(bytes: &mut [u8], bit: usize, value: bool) -> Option<()> {
    let before = bytes[bit / 8] >> (bit % 8) & 1 == 1;
    bytes[bit / 8] ^= u8::from(before != value) << (bit % 8);
    (before != value).then_some(())
}

/// Flips a bit that is `value` in one of the bitmaps, from the bit `from` on.
fn flip(t: &mut Target<'_>, which: Bitmap, value: bool, from: usize) -> Option<()> {
    let group = group_where(
        t,
        match which {
            Bitmap::Blocks => has_block_bitmap,
            Bitmap::Inodes => has_inodes,
        },
    )?;
    let bits = match which {
        Bitmap::Blocks => index(t.geometry().blocks_in_group(group) >> t.geometry().cluster_bits),
        Bitmap::Inodes => index(t.geometry().inodes_per_group.get()),
    };
    let start = t.random.index(bits - from);
    let mut done = None;
    t.bitmap(group, which, |bytes| {
        let mut places = (0..bits - from).map(|i| from + (start + i) % (bits - from));
        done = places.find_map(|bit| set(bytes, bit, !value));
    })?;
    done
}

/// Clears a bit behind the last of a bitmap.
fn padding(t: &mut Target<'_>, which: Bitmap) -> Option<()> {
    let group = group_where(
        t,
        match which {
            Bitmap::Blocks => has_block_bitmap,
            Bitmap::Inodes => has_inodes,
        },
    )?;
    let bits = match which {
        Bitmap::Blocks => t.geometry().blocks_in_group(group) >> t.geometry().cluster_bits,
        Bitmap::Inodes => t.geometry().inodes_per_group.get(),
    };
    let end = t.geometry().block_size.len() * 8;
    let mut done = None;
    t.bitmap(group, which, |bytes| {
        done = (index(bits)..end).find_map(|bit| set(bytes, bit, false));
    })?;
    done
}

fn fill(t: &mut Target<'_>, which: Bitmap, byte: u8) -> Option<()> {
    let group = group_where(
        t,
        match which {
            Bitmap::Blocks => has_block_bitmap,
            Bitmap::Inodes => has_inodes,
        },
    )?;
    t.bitmap(group, which, |bytes| bytes.fill(byte))
}

/// A descriptor whose inode table is lost takes all inodes with it.
fn lose_table(t: &mut Target<'_>, place: impl Fn(&Target<'_>, GroupNr) -> Pblk) -> Option<()> {
    let group = group_where(t, has_inodes)?;
    let place = place(t, group);
    t.hurt.all = true;
    t.group(group, |desc| desc.inode_table = place)
}

const SUM_ONLY: &str = "the padding is only looked at where sums say that it is right";

pub(super) const KINDS: &[Kind] = &[
    Kind::new("group-checksum", "metadata_csum", |t| {
        let group = t.any_group();
        let place = t.clean.desc_place(group);
        t.bytes[place.start + 0x1E] ^= 0x55;
        Some(())
    }),
    Kind::new("group-checksum-crc16", "uninit_bg", |t| {
        let group = t.any_group();
        let place = t.clean.desc_place(group);
        t.bytes[place.start + 0x1E] ^= 0x55;
        Some(())
    }),
    Kind::new("group-descriptor-zeroed", "", |t| {
        let group = t.any_group();
        let place = t.clean.desc_place(group);
        t.bytes[place].fill(0);
        Some(())
    }),
    Kind::new("group-descriptors-zeroed", "", |t| {
        let index = t.random.below(t.geometry().gdt_blocks().into()) as u32;
        t.block(t.geometry().gdt_block(index)).fill(0);
        Some(())
    }),
    Kind::new("group-descriptors-random-bytes", "", |t| {
        let block = t.geometry().gdt_block(0);
        for at in 0..t.geometry().block_size.len() {
            let byte = t.random.next_u64() as u8;
            t.block(block)[at] = byte;
        }
        Some(())
    }),
    Kind::new("group-block-bitmap-outside", "", |t| {
        let place = outside(t);
        desc(t, any, |desc| desc.block_bitmap = place)
    }),
    Kind::new("group-block-bitmap-zero", "", |t| {
        desc(t, any, |desc| desc.block_bitmap = Pblk(0))
    }),
    Kind::new("group-block-bitmap-at-the-superblock", "", |t| {
        let place = t.geometry().superblock_block();
        desc(t, any, |desc| desc.block_bitmap = place)
    }),
    Kind::new("group-block-bitmap-in-a-table", "", |t| {
        desc(t, any, |desc| {
            desc.block_bitmap = Pblk(desc.inode_table.0 + 1)
        })
    }),
    Kind::new("group-block-bitmap-in-a-file", "", |t| {
        let place = t.with_blocks()?.blocks[0].pblk;
        desc(t, any, |desc| desc.block_bitmap = place)
    }),
    Kind::new("group-inode-bitmap-outside", "", |t| {
        let place = outside(t);
        desc(t, any, |desc| desc.inode_bitmap = place)
    }),
    Kind::new("group-inode-bitmap-zero", "", |t| {
        desc(t, any, |desc| desc.inode_bitmap = Pblk(0))
    }),
    Kind::new("group-bitmaps-at-one-place", "", |t| {
        desc(t, any, |desc| desc.inode_bitmap = desc.block_bitmap)
    }),
    Kind::new("group-inode-bitmap-in-a-directory", "", |t| {
        let place = t.directory()?.blocks[0].pblk;
        desc(t, any, |desc| desc.inode_bitmap = place)
    }),
    Kind::new("group-inode-table-outside", "", |t| {
        lose_table(t, |t, _| outside(t))
    }),
    Kind::new("group-inode-table-zero", "", |t| {
        lose_table(t, |_, _| Pblk(0))
    }),
    Kind::new("group-inode-table-at-the-descriptors", "", |t| {
        lose_table(t, |t, _| t.geometry().gdt_block(0))
    }),
    Kind::new("group-inode-table-at-another-one", "", |t| {
        lose_table(t, |t, group| {
            let other = (group.0 + 1) % t.geometry().groups_count.get();
            t.clean.groups[index(other)].inode_table
        })
    }),
    Kind::new("group-inode-table-in-files", "", |t| {
        let place = t.with_blocks()?.blocks[0].pblk;
        lose_table(t, |_, _| place)
    }),
    Kind::new("group-empty-inode-table-in-files", "", |t| {
        let group = group_where(t, |desc| !has_inodes(desc))?;
        t.group(group, |d| d.inode_table.0 += 32)
    }),
    Kind::new("group-inode-table-at-the-end", "", |t| {
        lose_table(t, |t, _| Pblk(t.geometry().blocks_count - 1))
    }),
    Kind::new("group-free-blocks", "", |t| {
        let more = 1 + t.random.below(50) as u32;
        desc(t, any, |desc| desc.free_clusters += more)
    }),
    Kind::new("group-free-blocks-huge", "", |t| {
        desc(t, any, |desc| desc.free_clusters = 0xFFFF)
    }),
    Kind::new("group-free-inodes", "", |t| {
        let more = 1 + t.random.below(50) as u32;
        desc(t, any, |desc| desc.free_inodes += more)
    }),
    Kind::new("group-free-inodes-huge", "", |t| {
        desc(t, any, |desc| desc.free_inodes = 0xFFFF)
    }),
    Kind::new("group-directories", "", |t| {
        let more = 1 + t.random.below(9) as u32;
        desc(t, any, |desc| desc.used_dirs += more)
    }),
    Kind::new(
        "group-blocks-uninitialised-though-used",
        "metadata_csum",
        |t| desc(t, has_block_bitmap, |desc| desc.flags |= BG_BLOCK_UNINIT),
    ),
    Kind::new(
        "group-inodes-uninitialised-though-used",
        "metadata_csum",
        |t| {
            let is_meant = |desc: &GroupDesc| has_inodes(desc) && desc.used_dirs > 0;
            desc(t, is_meant, |desc| desc.flags |= BG_INODE_UNINIT)
        },
    ),
    Kind::new("group-uninitialised-though-used-crc16", "uninit_bg", |t| {
        let is_meant = |desc: &GroupDesc| has_inodes(desc) && desc.used_dirs > 0;
        desc(t, is_meant, |desc| {
            desc.flags |= BG_INODE_UNINIT | BG_BLOCK_UNINIT
        })
    }),
    Kind::new(
        "group-uninitialised-without-the-feature",
        "^metadata_csum,^uninit_bg",
        |t| {
            desc(t, has_inodes, |desc| {
                desc.flags |= BG_INODE_UNINIT | BG_BLOCK_UNINIT
            })
        },
    ),
    Kind::new("group-unknown-flags", "", |t| {
        desc(t, any, |desc| desc.flags |= 0xFF00)
    })
    .unseen("no flag that means anything"),
    Kind::new("group-table-not-zeroed", "metadata_csum", |t| {
        desc(t, any, |desc| desc.flags &= !BG_INODE_ZEROED)
    })
    .unseen("a hint: the kernel zeroes the table later"),
    Kind::new("group-unused-inodes-too-many", "metadata_csum", |t| {
        let all = t.geometry().inodes_per_group.get();
        let is_meant = |desc: &GroupDesc| has_inodes(desc) && desc.used_dirs > 0;
        desc(t, is_meant, |desc| desc.itable_unused = all)
    }),
    Kind::new("group-unused-inodes-past-the-table", "metadata_csum", |t| {
        desc(t, has_inodes, |desc| desc.itable_unused = 0xFFFF)
    }),
    Kind::new("group-unused-inodes-none", "metadata_csum", |t| {
        let is_meant = |desc: &GroupDesc| has_inodes(desc) && desc.itable_unused > 0;
        desc(t, is_meant, |desc| desc.itable_unused = 0)
    })
    .unseen("allowed: the whole table is read"),
    Kind::new("group-block-bitmap-checksum", "metadata_csum", |t| {
        desc(t, has_block_bitmap, |desc| desc.block_bitmap_csum ^= 0x55)
    }),
    Kind::new("group-inode-bitmap-checksum", "metadata_csum", |t| {
        desc(t, has_inodes, |desc| desc.inode_bitmap_csum ^= 0x55)
    }),
    Kind::new("bitmap-block-marked-free", "", |t| {
        flip(t, Bitmap::Blocks, true, 0)
    }),
    Kind::new("bitmap-block-marked-used", "", |t| {
        flip(t, Bitmap::Blocks, false, 0)
    }),
    Kind::new("bitmap-blocks-all-free", "", |t| fill(t, Bitmap::Blocks, 0)),
    Kind::new("bitmap-blocks-all-used", "", |t| {
        fill(t, Bitmap::Blocks, 0xFF)
    }),
    Kind::new("bitmap-blocks-noise", "", |t| fill(t, Bitmap::Blocks, 0xA5)),
    Kind::new("bitmap-blocks-padding", "", |t| padding(t, Bitmap::Blocks)).unseen(SUM_ONLY),
    Kind::new("bitmap-inode-marked-free", "", |t| {
        flip(t, Bitmap::Inodes, true, 0)
    }),
    Kind::new("bitmap-inode-marked-used", "", |t| {
        flip(t, Bitmap::Inodes, false, 0)
    }),
    Kind::new("bitmap-inodes-all-free", "", |t| fill(t, Bitmap::Inodes, 0)),
    Kind::new("bitmap-inodes-all-used", "", |t| {
        fill(t, Bitmap::Inodes, 0xFF)
    }),
    Kind::new("bitmap-inodes-noise", "", |t| fill(t, Bitmap::Inodes, 0xA5)),
    Kind::new("bitmap-inodes-padding", "", |t| padding(t, Bitmap::Inodes)).unseen(SUM_ONLY),
    Kind::new("bitmap-reserved-inode-marked-free", "", |t| {
        let bit = t.random.index(10);
        let mut done = None;
        t.bitmap(GroupNr(0), Bitmap::Inodes, |bytes| {
            done = set(bytes, bit, false)
        })?;
        done
    }),
    Kind::new("bitmap-metadata-marked-free", "", |t| {
        let group = group_where(t, has_block_bitmap)?;
        let place = t.clean.groups[index(group.0)].inode_table;
        let (group, at) = t.geometry().group_of(place)?;
        let bit = index(at >> t.geometry().cluster_bits);
        let mut done = None;
        t.bitmap(group, Bitmap::Blocks, |bytes| done = set(bytes, bit, false))?;
        done
    }),
    Kind::new("inode-table-block-zeroed", "", |t| {
        let group = group_where(t, has_inodes)?;
        let place = t.clean.groups[index(group.0)].inode_table;
        hurt_block_of_table(t, place);
        t.block(place).fill(0);
        Some(())
    }),
    Kind::new("inode-table-block-random-bytes", "", |t| {
        let group = group_where(t, has_inodes)?;
        let place = t.clean.groups[index(group.0)].inode_table;
        hurt_block_of_table(t, place);
        for at in 0..t.geometry().block_size.len() {
            let byte = t.random.next_u64() as u8;
            t.block(place)[at] = byte;
        }
        Some(())
    }),
    Kind::new(
        "root-mode-odd-with-a-copy-in-the-journal",
        "has_journal",
        |t| {
            copy_table_to_the_journal(t, |_| true)?;
            t.inode(Ino::ROOT, |raw| {
                raw.i_mode = (raw.i_mode.get() | 0xF000).into();
            })
        },
    ),
    Kind::new(
        "inode-table-block-noise-with-a-copy-in-the-journal",
        "has_journal",
        |t| {
            let table = copy_table_to_the_journal(t, has_inodes)?;
            hurt_block_of_table(t, table);
            for at in 0..t.geometry().block_size.len() {
                let byte = t.random.next_u64() as u8;
                t.block(table)[at] = byte;
            }
            Some(())
        },
    ),
];

/// Leaves copies of the first block of a group's table in the log, as transactions do that were
/// checkpointed. Of the first group that this is true for and whose first block has inodes.
fn copy_table_to_the_journal(
    t: &mut Target<'_>,
    is_meant: impl Fn(&GroupDesc) -> bool,
) -> Option<Pblk> {
    let groups = t.clean.groups.iter().filter(|desc| is_meant(desc));
    let table = groups.map(|desc| desc.inode_table).next()?;
    let copy = t.clean.block(table).to_vec();
    let journal = t.clean.known(Ino::JOURNAL)?;
    let blocks = journal.blocks.iter().skip(3).step_by(5).take(9);
    for mapped in blocks {
        t.block(mapped.pblk).copy_from_slice(&copy);
    }
    Some(table)
}

/// The inodes of a block of a table.
fn inodes_of_block<'a>(t: &Target<'a>, block: Pblk) -> impl Iterator<Item = &'a Known> {
    let bytes = t.clean.place(block)..t.clean.place(Pblk(block.0 + 1));
    let clean = t.clean;
    let inodes = clean.inodes.iter();
    inodes.filter(move |known| bytes.contains(&clean.inode_place(known.ino).start))
}

/// The inodes of a block of a table may lose everything.
fn hurt_block_of_table(t: &mut Target<'_>, block: Pblk) {
    let inodes: Vec<_> = inodes_of_block(t, block).map(|known| known.ino).collect();
    t.hurt.inodes.extend(inodes);
}
