//! Arbitrary bytes as a superblock: its shape is refused, or every question about it has an answer.

use uext4_ondisk::superblock::{CHECKSUM_TYPE_CRC32C, EXT4_SUPER_MAGIC, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr, Ino, Pblk};

/// Takes the bytes as they are, and once more with magic and checksum put right.
pub fn exercise(data: &[u8]) {
    let mut bytes = [0; 1024];
    let len = data.len().min(bytes.len());
    bytes[..len].copy_from_slice(&data[..len]);
    let _ = SuperBlock::parse(data).map(|sb| shape(&sb));
    let mut sb: SuperBlock = zerocopy::transmute!(bytes);
    sb.s_magic = EXT4_SUPER_MAGIC.into();
    sb.s_checksum_type = CHECKSUM_TYPE_CRC32C;
    sb.update_checksum();
    let sb = SuperBlock::parse(zerocopy::IntoBytes::as_bytes(&sb)).unwrap();
    shape(&sb);
}

fn shape(sb: &SuperBlock) {
    let _ = (sb.reserved_blocks_count(), sb.free_blocks_count());
    let _ = (sb.seed(), sb.hash_sign(), sb.hash_seed());
    let _ = sb.features().unreadable();
    let _ = sb.features().unwritable();
    let Ok(g) = Geometry::new(sb) else {
        return;
    };
    assert!(
        g.len_bytes() >= 1024 && g.len_bytes() / u64::from(g.block_size.bytes()) == g.blocks_count
    );
    assert!(g.descs_per_block() > 0 && g.gdt_blocks() > 0 && g.itable_blocks() > 0);
    let bits = g.clusters_per_group.get().max(g.inodes_per_group.get());
    assert!(bits as usize / 8 <= g.block_size.len());
    let last = g.groups_count.get() - 1;
    for group in [0, 1, 2, last / 2, last] {
        let group = GroupNr(group.min(last));
        let start = g.group_start(group);
        assert_eq!(g.group_of(start), Some((group, 0)));
        assert!(g.blocks_in_group(group) > 0);
        let end = Pblk(start.0 + u64::from(g.blocks_in_group(group)));
        assert!(g.contains(start, end.0 - start.0));
        assert_eq!(g.group_of(Pblk(end.0 - 1)).map(|(at, _)| at), Some(group));
    }
    for index in [0, 1, g.gdt_blocks() / 2, g.gdt_blocks() - 1] {
        let index = index.min(g.gdt_blocks() - 1);
        assert!(g.gdt_block(index).0 < g.blocks_count);
        assert!(g.gdt_backups(index).take(100).all(|at| at > g.gdt_block(0)));
    }
    assert!(g.backup_groups().take(100).all(|group| g.has_super(group)));
    assert_eq!(g.group_of(Pblk(g.blocks_count)), None);
    assert_eq!(g.inode_group(Ino(0)), None);
    let (group, _) = g.inode_group(Ino(g.inodes_count)).unwrap();
    assert_eq!(group.0, last);
    nonsense(&g);
}

/// Numbers that do not exist: any answer will do.
fn nonsense(g: &Geometry) {
    for number in [g.groups_count.get(), 1 << 31, u32::MAX] {
        let group = GroupNr(number);
        let _ = (
            g.group_start(group),
            g.blocks_in_group(group),
            g.has_super(group),
        );
        let _ = (g.group_base_blocks(group), g.gdt_block(number));
        let _ = g.gdt_backups(number).take(10).count();
        let _ = g.inode_group(Ino(number));
    }
    for block in [0, 1, g.blocks_count, u64::MAX] {
        let _ = g.group_of(Pblk(block));
        assert!(!g.contains(Pblk(block), u64::MAX));
    }
}
