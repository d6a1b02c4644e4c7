//! The pass on images made by mke2fs and changed by debugfs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;
use uext4_blockdev::{Access, BlockDevice, FileDevice};
use uext4_ondisk::extent::Extent;
use uext4_ondisk::group_desc::BG_BLOCK_UNINIT;
use uext4_ondisk::inode::RawInode;
use uext4_ondisk::num::index;
use uext4_ondisk::{GroupNr, Ino, Lblk, Pblk};
use uext4_testkit::e2fsprogs::{complaints, debugfs_write, e2fsck, mke2fs};

use super::run;
use crate::finding::Finding;
use crate::mapping::{self, FileMap};
use crate::options::Options;
use crate::overlay::Overlay;
use crate::report::{Findings, Observer};
use crate::state::State;
use crate::superblock;
use crate::tests::TestImage;

#[derive(Default)]
struct Names(Mutex<Vec<&'static str>>);

impl Observer for Names {
    fn finding(&self, finding: &Finding) {
        self.0.lock().push(finding.problem.info().name);
    }
}

/// Runs the pass, and then `then`; returns the names of what was found, with what became of it.
fn pass(image: &Path, then: impl FnOnce(&mut State<'_>)) -> (Vec<&'static str>, Overlay) {
    let device = FileDevice::open(image, Access::ReadOnly).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(device);
    let options = Options::default();
    let block_size = superblock::block_size(&device, &options).unwrap();
    pass_on(Overlay::new(device, block_size, 1 << 30), then)
}

fn pass_on(overlay: Overlay, then: impl FnOnce(&mut State<'_>)) -> (Vec<&'static str>, Overlay) {
    let options = Options::default();
    let names = Names::default();
    let findings = Findings::new(&names, 1000);
    let volume = superblock::open(overlay, &options, &findings).unwrap();
    let mut state = State::new(&options, &findings, volume.volume);
    run(&mut state).unwrap();
    findings.finish_pass();
    then(&mut state);
    let overlay = state.volume.into_overlay();
    (names.0.into_inner(), overlay)
}

/// Files, directories and links of many kinds.
fn tree(at: &Path) {
    let file = |name: &str, len: usize| fs::write(at.join(name), vec![b'x'; len]).unwrap();
    file("tiny", 3);
    file("hundred", 100);
    file("blocks", 5000);
    file("large", 3_000_000);
    fs::create_dir_all(at.join("a/b/c")).unwrap();
    fs::create_dir(at.join("many")).unwrap();
    for i in 0..300 {
        file(&format!("many/a-name-that-is-long-enough-{i}"), i);
    }
    let link = |target: &str, name: &str| std::os::unix::fs::symlink(target, at.join(name));
    link("fast", "fast").unwrap();
    link(&"x".repeat(59), "longest-fast").unwrap();
    link(&"y/".repeat(100), "slow").unwrap();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    for i in 0..40 {
        use std::os::unix::fs::FileExt;
        sparse.write_all_at(&[1; 1024], i * 200_000).unwrap();
    }
}

fn image(directory: &TempDir, options: &str) -> std::path::PathBuf {
    let source = directory.path().join("source");
    if !source.exists() {
        fs::create_dir(&source).unwrap();
        tree(&source);
    }
    let image = directory.path().join("image");
    let _ = fs::remove_file(&image);
    let mut words: Vec<_> = options.split_whitespace().collect();
    words.extend(["-d", source.to_str().unwrap()]);
    mke2fs(&image, words, "64M");
    image
}

/// Every cluster that a bitmap says is used is in `used`, and no other.
fn assert_used_as_bitmaps(state: &State<'_>) {
    let geometry = state.geometry();
    let mut bitmap = vec![0; geometry.block_size.len()];
    for group in (0..geometry.groups_count.get()).map(GroupNr) {
        let desc = state.volume.group(group);
        if desc.flags & BG_BLOCK_UNINIT != 0 {
            continue;
        }
        let overlay = state.volume.overlay();
        overlay.read_block(desc.block_bitmap, &mut bitmap).unwrap();
        let blocks = geometry.blocks_in_group(group) >> geometry.cluster_bits;
        let words: Vec<_> = state.used.words(group).collect();
        for bit in 0..blocks {
            let marked = bitmap[index(bit / 8)] >> (bit % 8) & 1 != 0;
            let word = words.get(index(bit / 64)).copied().unwrap_or(0);
            let used = word >> (bit % 64) & 1 != 0;
            assert_eq!(used, marked, "cluster {bit} of group {group}");
        }
    }
}

/// Feature sets of images.
const SETS: &[&str] = &[
    "-t ext2",
    "-t ext2 -r 0",
    "-t ext2 -b 1024 -I 128",
    "-t ext3",
    "-t ext4",
    "-t ext4 -b 1024",
    "-t ext4 -b 65536",
    "-t ext4 -I 128",
    "-t ext4 -I 1024",
    "-t ext4 -O ^metadata_csum",
    "-t ext4 -O ^metadata_csum,uninit_bg",
    "-t ext4 -O none,extent,filetype",
    "-t ext4 -O inline_data",
    "-t ext4 -b 1024 -I 512 -O inline_data",
    "-t ext4 -O bigalloc -C 65536",
    "-t ext4 -b 1024 -O bigalloc -C 16384",
    "-t ext4 -O quota",
    "-t ext4 -O quota,project",
    "-t ext4 -O casefold",
    "-t ext4 -O encrypt,verity,stable_inodes",
    "-t ext4 -O ea_inode",
    "-t ext4 -b 1024 -O sparse_super2,^resize_inode",
    "-t ext4 -b 1024 -O meta_bg,^resize_inode",
    "-t ext4 -b 1024 -O ^flex_bg",
    "-t ext4 -b 1024 -g 1024",
    "-t ext4 -O mmp",
    "-t ext4 -O orphan_file",
    "-t ext4 -O large_dir",
    "-t ext4 -O metadata_csum_seed",
    "-t ext4 -O ^has_journal",
    "-t ext4 -O ^64bit",
    "-t ext4 -O ^64bit,^huge_file,^metadata_csum",
];

#[test]
fn clean_images_have_no_finding_and_use_what_their_bitmaps_say() {
    let directory = TempDir::new().unwrap();
    for set in SETS {
        let image = image(&directory, set);
        let (names, overlay) = pass(&image, |state| {
            assert_used_as_bitmaps(state);
            let all = state.directories.directories().len();
            assert!(all >= 6, "{set}: {all} directories");
        });
        assert_eq!(names, [""; 0], "{set}");
        assert_eq!(overlay.changed(), 0, "{set}");
    }
}

/// A change by debugfs, and what is found then.
const DAMAGE: &[(&str, &str, &str, &[&str])] = &[
    (
        "-t ext4",
        "tiny",
        "dtime 1700000000",
        &["inode-deletion-time"],
    ),
    ("-t ext4", "tiny", "mode 0070644", &["regular-file-mode"]),
    ("-t ext4", "tiny", "mode 0140644", &["regular-file-mode"]),
    ("-t ext4", "tiny", "mode 0644", &["regular-file-mode"]),
    ("-t ext4", "large", "mode 0120644", &["regular-file-mode"]),
    ("-t ext2", "large", "mode 0120644", &["regular-file-mode"]),
    ("-t ext2", "large", "mode 0140644", &["regular-file-mode"]),
    ("-t ext4", "tiny", "flags 0x82000", &["inode-imagic"]),
    ("-t ext4", "tiny", "flags 0x40080000", &["inode-casefold"]),
    ("-t ext4", "tiny", "flags 0x81000", &["inode-index-flag"]),
    (
        "-t ext4",
        "tiny",
        "flags 0x10080000",
        &["inode-inline-feature"],
    ),
    ("-t ext4", "tiny", "flags 0", &["inode-extents-missing"]),
    ("-t ext4", "tiny", "faddr 7", &["inode-fragment"]),
    ("-t ext4", "tiny", "file_acl 99999999", &["inode-file-acl"]),
    ("-t ext4", "tiny", "blocks 3", &["inode-blocks"]),
    ("-t ext4", "large", "size 4096", &["inode-size"]),
    ("-t ext4", "a", "size 1000", &["inode-size"]),
    ("-t ext4", "a", "size 0", &["inode-size"]),
    ("-t ext4", "fast", "size 3", &["symlink-size"]),
    ("-t ext4", "fast", "size 5", &["symlink-size"]),
    ("-t ext4", "fast", "size 0", &["symlink-size"]),
    ("-t ext4", "fast", "size 5000", &["symlink-size"]),
    ("-t ext4", "fast", "flags 0x80000", &["symlink-extents"]),
    ("-t ext4", "slow", "size 199", &["symlink-size"]),
    ("-t ext4", "slow", "size 201", &["symlink-size"]),
    ("-t ext4", "<1>", "links_count 1", &["bad-blocks-inode"]),
    ("-t ext4", "<1>", "file_acl 700", &["bad-blocks-inode"]),
    ("-t ext4", "<1>", "uid 5", &["bad-blocks-inode"]),
    ("-t ext4", "<5>", "blocks 8", &["system-file-unused"]),
    (
        "-t ext4",
        "<9>",
        "flags 0x40000000",
        &["system-file-unused"],
    ),
    ("-t ext4", "<10>", "flags 0x1000", &["system-file-unused"]),
    ("-t ext4", "<3>", "links_count 1", &["system-file-unused"]),
    ("-t ext4", "<5>", "mode 0040644", &["reserved-mode"]),
    ("-t ext4", "<9>", "mode 0100644", &["reserved-mode"]),
    ("-t ext4", "<7>", "blocks 0", &["resize-inode"]),
    ("-t ext4", "<2>", "mode 0100644", &["directory-mode"]),
    ("-t ext2", "<2>", "block[0] 0", &["root-missing"]),
    (
        "-t ext4",
        "tiny",
        "links_count 0",
        &["inode-no-deletion-time"],
    ),
    (
        "-t ext4 -O ^has_journal",
        "<8>",
        "links_count 1",
        &["system-file-unused"],
    ),
    (
        "-t ext4 -O ^64bit",
        "tiny",
        "file_acl 0x500000000",
        &["inode-file-acl-high"],
    ),
    (
        "-t ext4 -O quota",
        "<3>",
        "mode 0040644",
        &["system-file-mode"],
    ),
    (
        "-t ext4 -O inline_data",
        "a",
        "size 59",
        &["inode-inline-size"],
    ),
    (
        "-t ext4 -O inline_data",
        "large",
        "flags 0x10080000",
        &["inode-inline-and-extents"],
    ),
    ("-t ext2", "large", "block[0] 99999999", &["block-range"]),
    ("-t ext2", "large", "block[IND] 99999999", &["table-range"]),
    ("-t ext2", "large", "block[IND] 1", &["table-range"]),
    ("-t ext2", "a", "block[0] 0", &["directory-empty"]),
    ("-t ext2", "tiny", "flags 0x80000", &["inode-extents-flag"]),
    ("-t ext2", "tiny", "size 0x400000000000", &["inode-size"]),
];

#[test]
fn damage_is_found_and_mended_so_that_e2fsck_agrees() {
    let directory = TempDir::new().unwrap();
    for (set, file, change, expected) in DAMAGE {
        let image = image(&directory, set);
        debugfs_write(&image, [format!("sif {file} {change}")]);
        let (names, overlay) = pass(&image, |_| ());
        let case = format!("{set}: {file} {change}");
        for name in *expected {
            assert!(names.contains(name), "{case}: {names:?}");
        }
        assert!(complaints(&image).is_some(), "{case}: e2fsck finds nothing");
        let (names, overlay) = pass_on(overlay, |_| ());
        assert_eq!(names, [""; 0], "{case}, second round");
        write_changes(&overlay, &image);
        let output = e2fsck(&image, "-fn");
        let text = String::from_utf8_lossy(&output.stdout);
        let from = text.find("Pass 1:").unwrap_or(0);
        let until = text.find("Pass 2:").unwrap_or(text.len());
        let said: Vec<_> = text[from..until].lines().skip(1).collect();
        assert_eq!(said.join("\n").trim(), "", "{case}");
    }
}

fn write_changes(overlay: &Overlay, image: &Path) {
    use std::os::unix::fs::FileExt;
    let file = fs::OpenOptions::new().write(true).open(image).unwrap();
    let block = u64::from(overlay.block_size().bytes());
    let write = |change: crate::ChangedBlock| {
        file.write_all_at(&change.content, change.block.0 * block)
            .unwrap();
        Ok(())
    };
    overlay.for_each_change(write).unwrap();
}

/// How long the pass takes with one file of so many extents; stores that file first.
fn time_of_extents(count: u32) -> Duration {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("image");
    mke2fs(
        &path,
        ["-t", "ext4", "-b", "1024", "-O", "^has_journal"],
        "3G",
    );
    fs::write(directory.path().join("empty"), b"").unwrap();
    let empty = directory.path().join("empty");
    debugfs_write(&path, [format!("write {} file", empty.display())]);
    let ino = Ino(12);
    let (names, overlay) = pass(&path, |state| {
        let mut free = state.used.first_absent(0);
        let mut extents = Vec::new();
        for i in 0..count {
            let cluster = free.unwrap();
            state.used.add(cluster..cluster + 1, |_| ());
            extents.push(Extent {
                lblk: Lblk(2 * i),
                len: 1,
                pblk: state.used.first_block(cluster),
                unwritten: false,
            });
            free = state.used.first_absent(cluster + 2);
        }
        let cause = crate::Cause(0);
        mapping::store(state, ino, &FileMap::default(), &extents, cause).unwrap();
        let size = u64::from(count) * 2048;
        let set = |raw: &mut RawInode| {
            raw.i_size_lo = (size as u32).into();
            raw.i_size_high = ((size >> 32) as u32).into();
        };
        state.volume.update_raw_inode(ino, cause, set).unwrap();
        let bytes = state.volume.read_inode(ino).unwrap().unwrap();
        let raw = RawInode::parse(&bytes, ino).unwrap();
        let map = mapping::read(state, ino, &raw).unwrap();
        assert_eq!(map.extents, extents);
    });
    assert_eq!(names, [""; 0]);
    let begin = Instant::now();
    let (names, _) = pass_on(overlay, |state| {
        assert!(
            state
                .used
                .contains_any(state.used.of_blocks(Pblk(5000), 1000))
        );
    });
    assert_eq!(names, [""; 0]);
    begin.elapsed()
}

#[test]
fn a_million_extents_of_one_file_take_time_in_proportion() {
    let few = time_of_extents(100_000);
    let many = time_of_extents(1_000_000);
    let limit = (few * 30).max(Duration::from_secs(3));
    assert!(
        many < limit,
        "{few:?} for 100,000 and {many:?} for 1,000,000"
    );
}

#[test]
fn one_wrong_bit_of_the_depth_with_a_wrong_checksum_costs_no_file() {
    const SIZE: usize = 2222;
    let image = TestImage::new("-t ext4 -b 1024", "4M");
    image.file("f", &[7; SIZE]);
    let whole = fs::read(image.path()).unwrap();
    let is_inode = |inode: &&[u8]| inode[4..8] == (SIZE as u32).to_le_bytes();
    let at = whole
        .chunks(256)
        .position(|inode| is_inode(&inode))
        .unwrap()
        * 256;
    for bit in 0..16 {
        image.change(|bytes| {
            bytes.copy_from_slice(&whole);
            bytes[at + 0x2E + bit / 8] ^= 1 << (bit % 8);
        });
        let found = image.repair();
        assert!(found.contains(&"inode-checksum"), "{bit}: {found:?}");
        let after = fs::read(image.path()).unwrap();
        assert_eq!(after[at + 0x28..][..20], whole[at + 0x28..][..20], "{bit}");
    }
}
