//! Every checksum of images made and filled by the real tools.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;

use uext4_ondisk::extent;
use uext4_ondisk::features::Incompat;
use uext4_ondisk::group_desc::{
    BG_BLOCK_UNINIT, BG_INODE_UNINIT, DescChecksum, GroupDesc, bitmap_checksum, desc_checksum,
};
use uext4_ondisk::hash::CharSign;
use uext4_ondisk::inode::{GOOD_OLD_INODE_SIZE, inode_checksum, stored_checksum, update_checksum};
use uext4_ondisk::journal::JournalSuperblock;
use uext4_ondisk::mmp::{MmpBlock, MmpState};
use uext4_ondisk::orphan::{self, OrphanBlock};
use uext4_ondisk::quota::{
    QUOTA_BLOCK_LEN, QUOTA_TREE_ROOT, QuotaHeader, QuotaKind, parse_leaf, parse_tree_block,
    tree_slot,
};
use uext4_ondisk::superblock::SuperBlock;
use uext4_ondisk::xattr::{
    EXT4_XATTR_MAGIC, XATTR_IBODY_HEADER_LEN, XattrEntry, XattrPlace, XattrValue, block_hash,
    ea_inode_hash, entry_hash, parse_entries, verify_block,
};
use uext4_ondisk::{BlockSize, GroupNr, Ino, Pblk};
use uext4_testkit::{assert_e2fsck, can_mount, debugfs_script, has_tool, mke2fs, run, run_text};
use zerocopy::IntoBytes;

use crate::dirs::{Dir, Met};
use crate::image::Image;
use crate::kernel;

const NAMES: usize = 1500;

/// A tree with a big directory, a file of hundreds of extents, and the odd ends.
fn make_source(root: &Path) {
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for i in 0..NAMES {
        let name = format!("{i:04}-{}-größe", "long name ".repeat(i % 9 + 1));
        fs::write(many.join(name), []).unwrap();
    }
    let sparse = File::create(root.join("sparse")).unwrap();
    for i in 0..400 {
        sparse.write_all_at(b"data", i * 16384).unwrap();
    }
    fs::write(root.join("plain"), b"plain").unwrap();
    symlink("plain", root.join("short")).unwrap();
    symlink("x/".repeat(100), root.join("long")).unwrap();
}

/// Formats an image with the source in it, adds attributes, and has directories indexed.
fn make_image(dir: &Path, options: &str) -> Image {
    let source = dir.join("source");
    if !source.exists() {
        fs::create_dir(&source).unwrap();
        make_source(&source);
    }
    let path = dir.join("image");
    let _ = fs::remove_file(&path);
    let options = options.split_whitespace();
    let more = ["-N", "4000", "-d", source.to_str().unwrap()];
    mke2fs(&path, options.chain(more), "40M");
    let value = dir.join("value");
    fs::write(&value, [0xA5; 801]).unwrap();
    let script = format!(
        "ea_set -f {0} plain user.big\nea_set plain user.small v\nea_set plain user.größe v\n\
         ea_set sparse user.empty \"\"\n",
        value.display()
    );
    debugfs_script(script, Some(&path));
    assert_e2fsck(&path, "-fyD", 1);
    Image::open(&path)
}

fn verify_supers_and_descriptors(image: &Image) {
    let g = &image.geometry;
    for group in image.groups() {
        if group.0 > 0 && g.has_super(group) {
            let backup = SuperBlock::parse(image.bytes_at(g.group_start(group), 1024)).unwrap();
            assert_eq!(backup.s_block_group_nr.get(), group.0 as u16);
        }
        verify_descriptor(image, group, image.desc_bytes(group, |i| g.gdt_block(i)));
        let index = group.0 / g.descs_per_block();
        let backups: Vec<_> = g.gdt_backups(index).collect();
        assert_eq!(backups.is_empty(), g.groups_count.get() == 1);
        for backup in backups {
            verify_descriptor(image, group, image.desc_bytes(group, |_| backup));
        }
    }
}

fn verify_descriptor(image: &Image, group: GroupNr, bytes: &[u8]) {
    let how = image.geometry.desc_checksum;
    let desc = GroupDesc::parse(bytes);
    let computed = desc_checksum(bytes, group, how);
    assert_eq!(desc.checksum, computed, "group {group}");
    let mut copy = bytes.to_vec();
    desc.store(&mut copy, group, how);
    assert_eq!(copy, bytes);
}

fn verify_bitmaps(image: &Image) {
    let g = &image.geometry;
    for group in image.groups() {
        let desc = image.desc(group);
        let initialised = |flag| how_uninit(g.desc_checksum) & desc.flags & flag == 0;
        let Some(seed) = g.csum_seed else { continue };
        let sum =
            |block, len| bitmap_checksum(seed, image.bytes_at(block, len), g.desc_size.into());
        if initialised(BG_BLOCK_UNINIT) {
            let computed = sum(desc.block_bitmap, g.clusters_per_group.get() as usize / 8);
            assert_eq!(desc.block_bitmap_csum, computed, "group {group}");
        }
        if initialised(BG_INODE_UNINIT) {
            let computed = sum(desc.inode_bitmap, g.inodes_per_group.get() as usize / 8);
            assert_eq!(desc.inode_bitmap_csum, computed, "group {group}");
        }
    }
}

/// The flags count only where descriptors are summed.
fn how_uninit(how: DescChecksum) -> u16 {
    match how {
        DescChecksum::None => 0,
        _ => !0,
    }
}

/// Verifies all inodes in use with their extent trees, directories and attribute blocks. Returns
/// what the largest directory held, the deepest tree's blocks, and the attributes in inodes and
/// in blocks.
fn verify_inodes(image: &Image) -> (Met, usize, [usize; 2]) {
    let (mut largest, mut tree_blocks) = (Met::default(), 0);
    let (mut in_inodes, mut in_blocks) = (0, 0);
    for ino in image.inodes_in_use() {
        let (bytes, inode) = (image.inode_bytes(ino), image.inode(ino));
        if inode.i_mode.get() == 0 {
            continue;
        }
        let generation = inode.i_generation.get();
        if let Some(seed) = image.geometry.csum_seed {
            let computed = inode_checksum(bytes, seed, ino, generation);
            assert_eq!(stored_checksum(bytes), computed, "inode {ino}");
            let mut copy = bytes.to_vec();
            update_checksum(&mut copy, seed, ino, generation);
            assert_eq!(copy, bytes);
        }
        let is_file = image.inode(ino).i_mode.get() & 0xF000 == 0x8000;
        if is_file || image.is_dir(ino) {
            tree_blocks = tree_blocks.max(verify_extent_tails(image, ino, generation));
        }
        if image.is_dir(ino) {
            let met = Dir::new(image, ino).verify();
            largest = if met.names > largest.names {
                met
            } else {
                largest
            };
        }
        let acl =
            u64::from(inode.i_file_acl_high.get()) << 32 | u64::from(inode.i_file_acl_lo.get());
        in_inodes += verify_xattrs_in_inode(image, ino);
        if acl != 0 {
            in_blocks += verify_xattr_block(image, Pblk(acl));
        }
    }
    (largest, tree_blocks, [in_inodes, in_blocks])
}

fn verify_extent_tails(image: &Image, ino: Ino, generation: u32) -> usize {
    let tree = image.blocks(ino).tree;
    for &at in &tree {
        if let Some(seed) = image.geometry.csum_seed {
            let seed = seed.inode(ino, generation);
            assert_eq!(extent::verify_tail(image.block(at), at, seed), Ok(()));
            let mut copy = image.block(at).to_vec();
            extent::update_tail(&mut copy, seed);
            assert_eq!(copy, image.block(at));
        }
    }
    tree.len()
}

fn verify_xattr_block(image: &Image, at: Pblk) -> usize {
    let block = image.block(at);
    let header = verify_block(block, at, image.geometry.csum_seed).unwrap();
    let entries = parse_entries(block, 32, XattrPlace::Block(at)).unwrap();
    verify_entries(image, &entries);
    // libext2fs leaves it at 0, which means that no thread may share the block.
    let hash = block_hash(entries.iter().map(|e| e.hash));
    assert!([0, hash].contains(&header.h_hash.get()));
    entries.len()
}

/// Verifies the attributes in an inode's body and returns how many there are.
fn verify_xattrs_in_inode(image: &Image, ino: Ino) -> usize {
    let extra = usize::from(image.inode(ino).i_extra_isize.get());
    let body = image.inode_bytes(ino).get(GOOD_OLD_INODE_SIZE + extra..);
    let header = XATTR_IBODY_HEADER_LEN;
    match body {
        Some(body) if body.get(..header) == Some(&EXT4_XATTR_MAGIC.to_le_bytes()) => {
            let entries = parse_entries(&body[header..], 0, XattrPlace::Inode(ino)).unwrap();
            // libext2fs does not hash what lies in an inode.
            let hashed: Vec<_> = entries.iter().copied().filter(|e| e.hash != 0).collect();
            verify_entries(image, &hashed);
            entries.len()
        }
        _ => 0,
    }
}

fn verify_entries(image: &Image, entries: &[XattrEntry<'_>]) {
    for entry in entries {
        let value = match entry.value {
            XattrValue::Here(value) => value.to_vec(),
            XattrValue::Inode { ino, size } => ea_inode_sum(image, ino, size).to_vec(),
        };
        let either =
            [CharSign::Signed, CharSign::Unsigned].map(|sign| entry_hash(entry.name, &value, sign));
        assert!(either.contains(&entry.hash), "{entry:?}");
    }
}

/// What stands for a value that has an inode of its own: its sum, stored in that inode's atime.
fn ea_inode_sum(image: &Image, ino: Ino, size: u32) -> [u8; 4] {
    let blocks = image.blocks(ino).data;
    let data: Vec<u8> = blocks
        .iter()
        .flat_map(|&(_, at)| image.block(at).to_vec())
        .collect();
    let sum = ea_inode_hash(image.sb.seed(), &data[..size as usize]);
    assert_eq!(image.inode(ino).i_atime.get(), sum);
    sum.to_le_bytes()
}

/// Blocks at the start of each group by dumpe2fs' account: superblock, descriptors, reserved ones.
fn verify_base_blocks(image: &Image, path: &Path) {
    let text = run_text("dumpe2fs", [path]);
    let mut base = Vec::new();
    for line in text.lines() {
        if line.starts_with("Group ") && line.contains(": (Blocks ") {
            base.push(0);
        }
        let Some(count) = base.last_mut() else {
            continue;
        };
        for part in line.trim().split(", ") {
            match part.rsplit_once(" at ") {
                Some(("Primary superblock" | "Backup superblock", _)) => *count += 1,
                Some(("Group descriptors" | "Group descriptor" | "Reserved GDT blocks", range)) => {
                    *count += range_len(range);
                }
                _ => {}
            }
        }
    }
    assert_eq!(base.len(), image.geometry.groups_count.get() as usize);
    let boot = image.geometry.superblock_block().0 as u32 - image.geometry.first_data_block;
    base[0] += boot;
    for (group, count) in image.groups().zip(base) {
        assert_eq!(
            image.geometry.group_base_blocks(group),
            count,
            "group {group}"
        );
    }
}

fn range_len(range: &str) -> u32 {
    let (from, to) = range.split_once('-').unwrap_or((range, range));
    to.parse::<u32>().unwrap() - from.parse::<u32>().unwrap() + 1
}

fn verify_all(options: &str) {
    let dir = tempfile::tempdir().unwrap();
    let image = make_image(dir.path(), options);
    verify_supers_and_descriptors(&image);
    verify_base_blocks(&image, &dir.path().join("image"));
    verify_bitmaps(&image);
    let (largest, tree_blocks, [_, in_blocks]) = verify_inodes(&image);
    assert_eq!(largest.names, NAMES + 2, "{options}");
    assert!(in_blocks > 0, "{options}: {in_blocks}");
    let incompat = image.geometry.features.incompat;
    // Blocks of 64 KiB leave no hole in the sparse file.
    let holes = image.geometry.block_size < BlockSize::MAX;
    if holes && incompat.contains(Incompat::EXTENTS) {
        assert!(tree_blocks > 0, "{options}");
    }
    if image.geometry.block_size.bytes() == 1024 {
        assert!(largest.nodes > 1, "{options}: {largest:?}");
    }
    let journal = image.sb.s_journal_inum.get();
    if journal != 0 {
        let (_, first) = image.blocks(Ino(journal)).data[0];
        JournalSuperblock::parse(image.block(first)).unwrap();
    }
    if image.sb.s_mmp_block.get() != 0 {
        let at = Pblk(image.sb.s_mmp_block.get());
        let mmp = MmpBlock::parse(image.block(at), at, image.geometry.csum_seed).unwrap();
        assert_eq!(mmp.state(), Some(MmpState::Clean));
        assert_eq!(image.bytes_at(at, 1024), mmp.as_bytes());
    }
    verify_orphan_file(&image);
    verify_quota(&image);
}

fn verify_orphan_file(image: &Image) {
    let ino = Ino(image.sb.s_orphan_file_inum.get());
    if ino.0 == 0 {
        return;
    }
    let generation = image.inode(ino).i_generation.get();
    let seed = image.geometry.csum_seed.map(|s| s.inode(ino, generation));
    let blocks = image.blocks(ino).data;
    assert!(!blocks.is_empty());
    for (_, at) in blocks {
        let block = OrphanBlock::parse(image.block(at), at, seed).unwrap();
        assert_eq!(block.inodes().count(), 0);
        let mut copy = image.block(at).to_vec();
        orphan::update_tail(&mut copy, at, seed);
        assert_eq!(copy, image.block(at));
    }
}

/// Finds what root uses in the user quota file.
fn verify_quota(image: &Image) {
    let ino = image.sb.s_usr_quota_inum.get();
    if ino == 0 {
        return;
    }
    let blocks = image.blocks(Ino(ino)).data;
    let file: Vec<u8> = blocks
        .iter()
        .flat_map(|&(_, at)| image.block(at).to_vec())
        .collect();
    let header = QuotaHeader::parse(&file, QuotaKind::User).unwrap();
    let block = |n: u32| &file[n as usize * QUOTA_BLOCK_LEN..];
    let leaf = (0..4).fold(QUOTA_TREE_ROOT, |at, level| {
        let refs = parse_tree_block(block(at), header.dqi_blocks.get()).unwrap();
        refs[tree_slot(0, level)].get()
    });
    let entries = parse_leaf(block(leaf)).unwrap();
    let root = entries.iter().find(|e| e.dqb_id.get() == 0).unwrap();
    assert!(root.dqb_curinodes.get() > NAMES as u64, "{root:?}");
    assert!(root.dqb_curspace.get() > 400 * 1024, "{root:?}");
}

macro_rules! images {
    ($($name:ident $options:literal;)*) => {$(
        #[test]
        fn $name() {
            if has_tool("mke2fs") {
                verify_all($options);
            }
        }
    )*};
}

images! {
    default_1k "-t ext4 -b 1024";
    default_4k "-t ext4 -b 4096";
    block_2k_small_descriptors "-t ext4 -b 2048 -O ^64bit";
    block_64k "-t ext4 -b 65536";
    uninit_bg "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg";
    uninit_bg_small_descriptors "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,^64bit";
    no_checksums "-t ext4 -b 4096 -O ^metadata_csum";
    stored_seed "-t ext4 -b 4096 -O metadata_csum_seed -U random";
    small_inodes "-t ext4 -b 1024 -I 128";
    large_inodes "-t ext4 -b 4096 -I 1024 -O inline_data,ea_inode";
    meta_bg "-t ext4 -b 1024 -g 1024 -O meta_bg,^resize_inode";
    sparse_super2 "-t ext4 -b 1024 -O sparse_super2";
    every_group_has_a_backup "-t ext4 -b 1024 -O ^sparse_super,^resize_inode,^flex_bg";
    bigalloc_1k "-t ext4 -b 1024 -C 8192 -O bigalloc";
    bigalloc_4k "-t ext4 -b 4096 -C 65536 -O bigalloc";
    mmp_quota_orphan_file "-t ext4 -b 4096 -O mmp,quota,project,orphan_file";
    ext3 "-t ext3 -b 1024";
    ext2_without_types "-t ext2 -b 1024 -O ^filetype";
    tea_hash "-t ext4 -b 1024 -E hash_seed=5d3a1c07-9be2-44f1-8a60-0123456789ab";
}

/// What the kernel writes itself: its hash trees, attributes in blocks and in inodes of their own.
#[test]
fn filled_by_the_kernel() {
    if !can_mount() || !has_tool("setfattr") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let fill = |root: &Path| {
        make_source(root);
        for (name, len) in [("user.größe", 300), ("user.large", 9000)] {
            let value = format!("0x{}", "a5".repeat(len));
            let plain = root.join("plain");
            run(
                "setfattr",
                ["-n", name, "-v", &value, plain.to_str().unwrap()],
            );
        }
    };
    let path = kernel::filled_image(dir.path(), "-t ext4 -b 1024 -O ea_inode -N 4000", fill);
    let image = Image::open(&path);
    verify_supers_and_descriptors(&image);
    verify_bitmaps(&image);
    let (largest, tree_blocks, [in_inodes, in_blocks]) = verify_inodes(&image);
    assert_eq!(largest.names, NAMES + 2);
    assert_eq!([in_inodes, in_blocks], [1, 1]);
    assert!(largest.nodes > 1 && tree_blocks > 1);
}
