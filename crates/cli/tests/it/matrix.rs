//! `manifest` against the kernel, for many ways to make a file system.
//!
//! Each test makes an image with the real mke2fs, fills it through the kernel's own mount, and
//! compares our manifest of the image with a walk over a read-only mount of it.

use std::path::Path;

use crate::host::{
    can_mount, copy_image, has_tool, mke2fs, mounted, run, scratch, text, uext4, uext4_ok,
};
use crate::oracle;
use crate::tree::{self, Source};

/// Size of the images in MiB.
const SIZE_MIB: u32 = 96;

/// A test for each feature set: its name, the options for mke2fs, and options for tune2fs.
macro_rules! feature_sets {
    ($($name:ident: $mke2fs:literal $(, tune $tune:literal)?;)*) => {
        $(
            #[test]
            fn $name() {
                filled_by_the_kernel($mke2fs, concat!($($tune)?));
            }
        )*
    };
}

feature_sets! {
    ext2_1k: "-t ext2 -b 1024";
    ext2_2k: "-t ext2 -b 2048 -I 128";
    ext2_4k: "-t ext2 -b 4096 -I 256";
    ext2_plain: "-t ext2 -b 1024 -I 128 -O none";
    ext2_revision_0: "-t ext2 -r 0 -b 1024";
    ext2_no_filetype: "-t ext2 -b 4096 -O ^filetype,^dir_index";
    ext3_1k: "-t ext3 -b 1024 -J size=4";
    ext3_4k: "-t ext3 -b 4096 -J size=4";
    ext3_legacy_hash: "-t ext3 -b 1024 -O dir_index", tune "-E hash_alg=legacy";
    ext4_default: "-t ext4";
    ext4_1k: "-t ext4 -b 1024";
    ext4_2k: "-t ext4 -b 2048";
    ext4_4k: "-t ext4 -b 4096";
    ext4_tea_hash: "-t ext4 -b 1024", tune "-E hash_alg=tea";
    ext4_inode_128: "-t ext4 -b 4096 -I 128";
    ext4_inode_512: "-t ext4 -b 4096 -I 512";
    ext4_inode_4096: "-t ext4 -b 4096 -I 4096 -N 8192";
    ext4_no_64bit: "-t ext4 -b 1024 -O ^64bit";
    ext4_no_extent: "-t ext4 -b 4096 -O ^extent,^64bit";
    ext4_no_csum: "-t ext4 -b 1024 -O ^metadata_csum";
    ext4_uninit_bg: "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg";
    ext4_csum_seed: "-t ext4 -b 1024 -O metadata_csum_seed -U 01234567-89ab-cdef-0123-456789abcdef",
        tune "-U random";
    ext4_meta_bg: "-t ext4 -b 1024 -O meta_bg,^resize_inode";
    ext4_meta_bg_4k: "-t ext4 -b 4096 -g 1024 -O meta_bg,^resize_inode,^64bit";
    ext4_sparse_super2: "-t ext4 -b 1024 -O sparse_super2";
    ext4_no_sparse_super: "-t ext4 -b 1024 -O ^sparse_super,^resize_inode";
    ext4_no_flex_bg: "-t ext4 -b 1024 -O ^flex_bg";
    ext4_flex_bg_4: "-t ext4 -b 1024 -G 4";
    ext4_packed: "-t ext4 -b 1024 -E packed_meta_blocks=1";
    ext4_bigalloc: "-t ext4 -b 4096 -O bigalloc -C 16384";
    ext4_bigalloc_1k: "-t ext4 -b 1024 -O bigalloc -C 65536";
    ext4_inline_data: "-t ext4 -b 4096 -O inline_data";
    ext4_inline_data_1k: "-t ext4 -b 1024 -I 1024 -N 8192 -O inline_data";
    ext4_ea_inode: "-t ext4 -b 4096 -O ea_inode";
    ext4_ea_inode_1k: "-t ext4 -b 1024 -O ea_inode";
    ext4_large_dir: "-t ext4 -b 1024 -O large_dir";
    ext4_no_dir_index: "-t ext4 -b 4096 -O ^dir_index";
    ext4_no_journal: "-t ext4 -b 4096 -O ^has_journal";
    ext4_no_huge_file: "-t ext4 -b 4096 -O ^huge_file,^dir_nlink,^extra_isize";
    ext4_quota: "-t ext4 -b 4096 -O quota";
    ext4_project: "-t ext4 -b 4096 -O quota,project -E quotatype=usrquota:grpquota:prjquota";
    ext4_mmp: "-t ext4 -b 4096 -O mmp";
    ext4_orphan_file: "-t ext4 -b 4096 -O orphan_file";
    ext4_fast_commit: "-t ext4 -b 4096 -O fast_commit";
    ext4_encrypt: "-t ext4 -b 4096 -O encrypt";
    ext4_eager: "-t ext4 -b 1024 -E lazy_itable_init=0,lazy_journal_init=0";
    ext4_all_at_once: "-t ext4 -b 1024 -I 512 -O inline_data,ea_inode,large_dir,bigalloc,\
                       metadata_csum_seed,sparse_super2,orphan_file";
}

fn filled_by_the_kernel(options: &str, tune: &str) {
    if !can_mount() {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(
        &image,
        &options.split_whitespace().collect::<Vec<_>>(),
        SIZE_MIB,
    );
    if !tune.is_empty() {
        let mut arguments: Vec<&str> = tune.split_whitespace().collect();
        arguments.push(text(&image));
        run("tune2fs", &arguments);
    }
    let Some(mount) = mounted(&image, false) else {
        return;
    };
    tree::fill(mount.path());
    drop(mount);
    assert_manifest_is_what_the_kernel_shows(&image);
}

fn assert_manifest_is_what_the_kernel_shows(image: &Path) {
    let ours = oracle::parse(&uext4_ok(&["manifest", text(image)]));
    // The kernel took it a moment ago, so it does now.
    let mount = mounted(image, true).unwrap();
    let theirs = oracle::walk(mount.path());
    assert!(theirs.len() > 5_000, "only {} files", theirs.len());
    oracle::assert_equal(&ours, &theirs, &[]);
}

/// Blocks larger than a page the kernel may not mount, so mke2fs fills these from a directory, and
/// the directory is the oracle. It keeps neither numbers nor all times.
fn filled_by_mke2fs(block_size: &str) {
    if !has_tool("mke2fs") {
        return;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    let filled = Source::new(scratch.path());
    let source = filled.path();
    // mke2fs gives up where an attribute is larger than a block.
    for large in ["huge", "max"] {
        let _ = std::fs::remove_file(source.join("xattrs").join(large));
    }
    mke2fs(
        &image,
        &["-t", "ext4", "-b", block_size, "-d", text(source)],
        600,
    );
    let mut ours = oracle::parse(&uext4_ok(&["manifest", text(&image)]));
    assert!(ours.remove("lost+found").is_some());
    let mut theirs = oracle::walk(source);
    for tree in [&mut ours, &mut theirs] {
        for keys in tree.values_mut().filter(|keys| keys["type"] == "dir") {
            keys.remove("size");
        }
    }
    let lost = [
        "ino", "blocks", "nlink", "flags", "atime_ns", "ctime_ns", "mtime_ns",
    ];
    oracle::assert_equal(&ours, &theirs, &lost);
}

#[test]
fn blocks_of_8k() {
    filled_by_mke2fs("8192");
}

#[test]
fn blocks_of_16k() {
    filled_by_mke2fs("16384");
}

#[test]
fn blocks_of_32k() {
    filled_by_mke2fs("32768");
}

#[test]
fn blocks_of_64k() {
    filled_by_mke2fs("65536");
}

/// An image cut off from the power after `last`, while the kernel has it mounted: what the journal
/// holds is seen although it is not in its place, and the image stays as it is. Returns what was
/// seen, and what lies in its place.
fn cut(
    options: &[&str],
    but: &[&str],
    last: impl Fn(&Path),
) -> Option<(oracle::Tree, oracle::Tree)> {
    if !can_mount() {
        return None;
    }
    let scratch = scratch();
    let image = scratch.path().join("image");
    mke2fs(&image, options, SIZE_MIB);
    let mount = mounted(&image, false)?;
    last(mount.path());
    let cut = copy_image(&image, "cut");
    drop(mount);
    let replayed = copy_image(&cut, "replayed");
    let before = std::fs::read(&cut).unwrap();
    let ours = oracle::parse(&uext4_ok(&["manifest", text(&cut)]));
    let unreplayed = uext4(&["manifest", "--no-hash", "--no-replay", text(&cut)]);
    assert!(
        before == std::fs::read(&cut).unwrap(),
        "the image was changed"
    );
    // The kernel replays when it mounts to write.
    drop(mounted(&replayed, false).unwrap());
    let mount = mounted(&replayed, true).unwrap();
    oracle::assert_equal(&ours, &oracle::walk(mount.path()), but);
    Some((ours, oracle::parse(&unreplayed.stdout)))
}

/// Commits without writing anything to its place, as `sync` would.
fn fsync(path: &Path) {
    std::fs::File::open(path).unwrap().sync_all().unwrap();
}

#[test]
fn a_dirty_journal_is_replayed_in_memory() {
    for options in [
        &["-t", "ext4", "-b", "1024", "-J", "size=32"][..],
        &["-t", "ext4", "-b", "4096", "-O", "^metadata_csum,^64bit"],
        &["-t", "ext3", "-b", "1024", "-J", "size=32"],
    ] {
        let result = cut(options, &[], |top| {
            tree::fill(top);
            fsync(top);
        });
        let Some((seen, in_place)) = result else {
            return;
        };
        assert!(
            in_place.len() < seen.len() / 2,
            "{options:?}: nothing was in the journal"
        );
    }
}

#[test]
fn fast_commits_are_replayed_in_memory() {
    let options = ["-t", "ext4", "-b", "4096", "-O", "fast_commit"];
    // The kernel dates directories by the moment of its replay.
    let result = cut(&options, &["mtime_ns", "ctime_ns"], |top| {
        tree::fill(top);
        run("sync", &["-f", text(top)]);
        std::fs::write(top.join("late"), vec![9; 50_000]).unwrap();
        std::fs::rename(top.join("links/two"), top.join("renamed-late")).unwrap();
        std::fs::remove_file(top.join("files/4096-bytes")).unwrap();
        fsync(&top.join("late"));
    });
    let Some((seen, in_place)) = result else {
        return;
    };
    assert!(seen.contains_key("late") && !in_place.contains_key("late"));
    assert_eq!(seen["late"]["size"], 50_000);
}
