//! Inodes and descriptors of another size.

use super::*;

/// Changes of a shape, with the options of mke2fs for what they begin with.
pub fn shapes() -> Vec<(&'static str, Case)> {
    const SMALL: &str = "-t ext4 -b 1024 -g 512 -N 4000 -J size=1 -O ^64bit";
    const SMALL_64: &str = "-t ext4 -b 1024 -g 512 -N 4000 -J size=1 -O 64bit";
    // With `resize_inode`, bitmaps and tables need not move.
    const BARE: &str = "-t ext4 -b 1024 -g 512 -N 4000 -J size=1 -O ^64bit,^resize_inode,^flex_bg";
    const BARE_64: &str = "-t ext4 -b 1024 -g 512 -N 4000 -J size=1 -O 64bit,^resize_inode";
    const CRC16: &str = "-t ext4 -b 1024 -I 128 -O ^64bit,^flex_bg,^metadata_csum,uninit_bg";
    const EXT3: &str = "-t ext3 -b 1024 -I 128";
    const META: &str =
        "-t ext4 -b 1024 -g 512 -N 4000 -O ^64bit,meta_bg,^resize_inode,^has_journal";
    const META_64: &str = "-t ext4 -b 1024 -g 512 -N 4000 -J size=1 -O 64bit,meta_bg,^resize_inode";
    // Bitmaps lie in each group, behind the descriptors.
    const META_BARE: &str =
        "-t ext4 -b 1024 -g 512 -N 4000 -J size=1 -O ^64bit,meta_bg,^resize_inode,^flex_bg";
    const BIG: &str = "-t ext4 -b 1024 -g 256 -N 4000 -J size=1 -O ^64bit,bigalloc -C 4096";
    const BIG_64: &str = "-t ext4 -b 1024 -g 256 -N 4000 -J size=1 -O 64bit,bigalloc -C 4096";
    // The descriptors grow into the next cluster, which has the bitmaps.
    const BIG_BARE: &str = "-t ext4 -b 1024 -g 256 -N 4000 -J size=1 \
                            -O ^64bit,bigalloc,^resize_inode,^flex_bg -C 2048";
    const BIG_META: &str = "-t ext4 -b 1024 -g 256 -N 4000 -J size=1 \
                            -O ^64bit,bigalloc,meta_bg,^resize_inode -C 4096";
    // Each of 40 groups has copies.
    const COPIES: &str = "-t ext4 -b 1024 -g 512 -N 4000 \
                          -O ^64bit,^sparse_super,^resize_inode,^flex_bg,^has_journal";
    const COPIES_64: &str = "-t ext4 -b 1024 -g 512 -N 4000 -J size=1 \
                             -O 64bit,^sparse_super,^resize_inode,^flex_bg";
    let of_features = |base, flag, list| {
        let changes = Change::of_features(list).unwrap();
        (base, Case::new("resize2fs", &[flag], changes))
    };
    let of_inodes = |base, size: u64| {
        let arguments = ["-I", &size.to_string()];
        (
            base,
            Case::new("tune2fs", &arguments, vec![Change::InodeSize(size)]),
        )
    };
    vec![
        of_features(SMALL, "-b", "64bit"),
        of_features(SMALL_64, "-s", "^64bit"),
        of_features(BARE, "-b", "64bit"),
        of_features(BARE_64, "-s", "^64bit"),
        of_features(CRC16, "-b", "64bit"),
        of_features(META, "-b", "64bit"),
        of_features(META_64, "-s", "^64bit"),
        of_features(META_BARE, "-b", "64bit"),
        of_features(BIG, "-b", "64bit"),
        of_features(BIG_64, "-s", "^64bit"),
        of_features(BIG_BARE, "-b", "64bit"),
        of_features(BIG_META, "-b", "64bit"),
        of_features(COPIES, "-b", "64bit"),
        of_features(COPIES_64, "-s", "^64bit"),
        of_inodes(CRC16, 256),
        of_inodes(EXT3, 256),
        of_inodes(EXT3, 1024),
    ]
}

#[test]
fn another_shape_is_that_of_tune2fs_and_resize2fs() {
    if !has_tools() || !uext4_testkit::has_tool("resize2fs") {
        return;
    }
    let (mut wrong, mut mounts) = (Vec::new(), Mounts::default());
    for (base, case) in shapes() {
        let image = filled(base);
        let complaint = compare(image.path(), &case, &mut mounts);
        wrong.extend(complaint.map(|what| format!("{base}: {what}")));
    }
    println!("{mounts:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(mounts.are_enough(), "{mounts:?}");
}

/// Without `sparse_super`, all copies become those of the other size.
#[test]
fn every_copy_of_the_descriptors_can_be_used_instead() {
    if !has_tools() {
        return;
    }
    let image = filled(
        "-t ext4 -b 1024 -g 512 -N 4000 \
         -O ^64bit,^sparse_super,^resize_inode,^flex_bg,^has_journal",
    );
    tune_image(image.path(), &Change::of_features("64bit").unwrap()).unwrap();
    let volume = opened(
        Overlay::new(device(image.path()), uext4_ondisk::BlockSize::MIN, 1 << 20),
        &options(),
    );
    let volume = volume.unwrap();
    let geometry = volume.geometry();
    let (groups, mut bytes) = (volume.groups(), vec![0; 1024]);
    for (at, groups) in (0..).zip(groups.chunks(16)) {
        assert_eq!(geometry.gdt_backups(at).count(), 39);
        for block in geometry.gdt_backups(at) {
            volume.overlay().read_block(block, &mut bytes).unwrap();
            assert!(backups::is_copy(geometry, groups, &bytes), "{block}");
        }
    }
}

/// Files behind the backups of descriptors, which have no room to grow.
#[test]
fn files_in_the_way_of_descriptors_are_named() {
    if !has_tools() {
        return;
    }
    let image = filled("-t ext4 -b 1024 -g 512 -N 4000 -J size=1 -O ^64bit,^resize_inode");
    image.file("large", &[9; 12 << 20]);
    let before = fs::read(image.path()).unwrap();
    let changes = Change::of_features("64bit").unwrap();
    let error = tune_image(image.path(), &changes).unwrap_err().to_string();
    assert!(error.contains("resize2fs -b"), "{error}");
    assert!(fs::read(image.path()).unwrap() == before, "{error}");
}

/// tune2fs refuses this, or leaves what e2fsck cannot read.
#[test]
fn inodes_grow_with_checksums_and_where_tables_lie_anywhere() {
    if !has_tools() {
        return;
    }
    let mut mounts = Mounts::default();
    for options in [
        "",
        "-O ^flex_bg",
        "-O bigalloc -C 4096",
        "-O ^metadata_csum,^uninit_bg",
    ] {
        let image = filled(&format!(
            "-t ext4 -b 1024 -I 128 -E lazy_itable_init=1 {options}"
        ));
        tune_image(image.path(), &[Change::InodeSize(512)]).unwrap();
        assert_eq!(image.found(), [""; 0], "{options}");
        assert_clean(image.path());
        let complaint = mounts.complaint(image.path(), image.path());
        assert_eq!(complaint, None, "{options}");
    }
}

#[test]
fn a_shape_that_cannot_be_is_refused_with_the_way() {
    if !has_tools() {
        return;
    }
    let sentence = |options: &str, change: Change| {
        let image = filled(&format!("-t ext4 -b 1024 {options}"));
        let before = fs::read(image.path()).unwrap();
        let error = tune_image(image.path(), &[change]).unwrap_err();
        assert!(fs::read(image.path()).unwrap() == before, "{error}");
        error.to_string()
    };
    let feature = |list: &str| Change::of_features(list).unwrap().remove(0);
    let small = "-I 256";
    assert!(sentence(small, Change::InodeSize(128)).contains("uext4 build --base"));
    assert!(sentence(small, Change::InodeSize(2048)).contains("bytes of a block"));
    assert!(sentence("-O ^extent,^64bit", feature("64bit")).contains("set extent"));
    // Half of each group is its inode table: there is no room for another of twice the size.
    let full = "-I 128 -i 1024 -O ^flex_bg,^resize_inode,^has_journal";
    assert!(sentence(full, Change::InodeSize(1024)).contains("-O flex_bg"));
}
