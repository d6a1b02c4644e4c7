//! Damage of directories, one kind at a time, over several sets of features. Each repair must be
//! clean by our second run and by e2fsck, but for what the passes over bitmaps mend.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use uext4_blockdev::{Access, BlockDevice, FileDevice};
use uext4_fsck::{Finding, Observer, Options, Outcome, examine, plan};
use uext4_ondisk::dir_entry::{tail, update_tail};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{Geometry, Ino, htree};
use uext4_testkit::e2fsprogs::{complaints, debugfs, debugfs_write, e2fsck, mke2fs};

/// Features, block size and inode size are chosen by mke2fs.
const SHAPES: [&str; 6] = [
    "-t ext4 -b 1024",
    "-t ext4 -b 4096",
    "-t ext4 -b 1024 -O ^metadata_csum",
    "-t ext4 -b 1024 -O bigalloc -C 4096",
    "-t ext3 -b 1024 -I 128",
    "-t ext2 -b 1024 -O ^dir_index,^filetype",
];

struct Quiet;

impl Observer for Quiet {
    fn finding(&self, _finding: &Finding) {}
}

/// An image in a file, with a tree in it.
struct Image {
    dir: TempDir,
}

/// Each shape is made once.
static MADE: Mutex<BTreeMap<String, Vec<u8>>> = Mutex::new(BTreeMap::new());

impl Image {
    fn new(flags: &str) -> Self {
        let mut made = MADE.lock().unwrap();
        let image = match made.get(flags) {
            Some(bytes) => {
                let dir = tempfile::tempdir().unwrap();
                std::fs::write(dir.path().join("image"), bytes).unwrap();
                Self { dir }
            }
            None => Self::make(flags),
        };
        let bytes = || std::fs::read(image.path()).unwrap();
        made.entry(flags.to_owned()).or_insert_with(bytes);
        image
    }

    fn make(flags: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        for path in ["big/sub", "small", "up/down"] {
            std::fs::create_dir_all(tree.join(path)).unwrap();
        }
        for i in 0..400 {
            std::fs::write(tree.join(format!("big/a name of file {i:04}")), "").unwrap();
        }
        for name in ["one", "two", "three", "four"] {
            std::fs::write(tree.join("small").join(name), name).unwrap();
        }
        let image = Self { dir };
        let words = flags.split_whitespace();
        let options = words.map(str::to_owned);
        let source = ["-d".to_owned(), tree.to_str().unwrap().to_owned()];
        mke2fs(&image.path(), options.chain(source), "8M");
        let code = e2fsck(&image.path(), "-fyD").status.code();
        assert!(code.is_some_and(|code| code <= 1));
        image
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("image")
    }

    fn debugfs(&self, request: &str) {
        debugfs_write(&self.path(), [request]);
    }

    fn ino(&self, path: &str) -> u32 {
        let text = debugfs(&self.path(), &format!("stat {path}"));
        let word = text.split_whitespace().nth(1).unwrap();
        word.parse().unwrap()
    }

    fn superblock(&self) -> SuperBlock {
        let file = std::fs::File::open(self.path()).unwrap();
        let mut bytes = [0; 1024];
        file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
        SuperBlock::parse(&bytes).unwrap()
    }

    fn geometry(&self) -> Geometry {
        Geometry::new(&self.superblock()).unwrap()
    }

    /// Changes block `lblk` of a directory; its checksum is made right.
    fn edit(&self, path: &str, lblk: u32, change: impl FnOnce(&mut [u8])) {
        self.edit_raw(path, lblk, change, true);
    }

    fn edit_raw(&self, path: &str, lblk: u32, change: impl FnOnce(&mut [u8]), sums: bool) {
        let geometry = self.geometry();
        let block: u64 = debugfs(&self.path(), &format!("bmap {path} {lblk}"))
            .trim()
            .parse()
            .unwrap();
        let options = std::fs::OpenOptions::new().read(true).write(true).clone();
        let file = options.open(self.path()).unwrap();
        let mut bytes = vec![0; geometry.block_size.len()];
        let offset = block << geometry.block_size.log2();
        file.read_exact_at(&mut bytes, offset).unwrap();
        change(&mut bytes);
        if let (Some(seed), true) = (geometry.csum_seed, sums) {
            let seed = seed.inode(Ino(self.ino(path)), self.generation(path));
            if tail(&bytes).is_some() {
                update_tail(&mut bytes, seed);
            } else {
                htree::update_tail(&mut bytes, htree::DX_ROOT_ENTRIES_OFFSET, seed);
            }
        }
        file.write_all_at(&bytes, offset).unwrap();
    }

    fn generation(&self, path: &str) -> u32 {
        let text = debugfs(&self.path(), &format!("stat {path}"));
        let mut words = text.split_whitespace();
        words.find(|word| *word == "Generation:").unwrap();
        words.next().unwrap().parse().unwrap()
    }

    /// The names in a directory as debugfs lists them.
    fn names(&self, path: &str) -> BTreeSet<String> {
        let text = debugfs(&self.path(), &format!("ls -p {path}"));
        let name = |line: &str| line.split('/').nth(5).map(str::to_owned);
        text.lines().filter_map(name).collect()
    }

    fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::new(FileDevice::open(self.path(), Access::ReadOnly).unwrap())
    }

    fn check(&self) -> Outcome {
        examine(&self.device(), &options(), &Quiet).unwrap()
    }

    /// Repairs the image in place, and returns the names of the problems that were found.
    fn repair(&self) -> BTreeSet<&'static str> {
        let outcome = plan(&self.device(), &options(), &Quiet).unwrap();
        let findings = &outcome.findings;
        assert!(outcome.is_clean, "{findings:#?}");
        let file = std::fs::OpenOptions::new().write(true).open(self.path());
        let file = file.unwrap();
        let log2 = outcome.overlay.block_size().log2();
        let write = |change: uext4_fsck::ChangedBlock| {
            file.write_all_at(&change.content, change.block.0 << log2)
                .unwrap();
            Ok(())
        };
        outcome.overlay.for_each_change(write).unwrap();
        let names = findings.iter().map(|(_, f)| f.problem.info().name);
        names.collect()
    }
}

fn options() -> Options {
    Options {
        now: 1_700_000_000,
        ..Options::default()
    }
}

/// Where the record of a name is in a block.
fn record(bytes: &[u8], name: &str) -> usize {
    let mut at = 0;
    while at + 8 <= bytes.len() {
        let len = usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
        let name_len = usize::from(bytes[at + 6]);
        let ino = u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        if ino != 0 && &bytes[at + 8..at + 8 + name_len] == name.as_bytes() {
            return at;
        }
        assert!(len >= 8, "no record {name}");
        at += len;
    }
    panic!("no record {name}");
}

fn put_ino(bytes: &mut [u8], name: &str, ino: u32) {
    let at = record(bytes, name);
    bytes[at..at + 4].copy_from_slice(&ino.to_le_bytes());
}

fn put_name(bytes: &mut [u8], name: &str, new: &[u8]) {
    let at = record(bytes, name);
    bytes[at + 6] = new.len() as u8;
    bytes[at + 8..at + 8 + new.len()].copy_from_slice(new);
}

/// Complaints of e2fsck that no pass over directories is about.
fn is_of_bitmaps(line: &str) -> bool {
    let parts = [
        "bitmap differences",
        "count wrong",
        "Fix? no",
        "Pass ",
        "e2fsck 1",
        "WARNING",
        "IGNORED",
        "contiguous",
        "Padding at end",
    ];
    line.trim().is_empty() || parts.iter().any(|part| line.contains(part))
}

fn assert_mended(image: &Image, what: &str) {
    let again = image.check();
    assert!(again.is_clean, "{what}: {:#?}", again.findings);
    let said = complaints(&image.path()).unwrap_or_default();
    let said: Vec<_> = said.lines().filter(|line| !is_of_bitmaps(line)).collect();
    assert!(
        said.is_empty() || said == ["exit status: 4"],
        "{what}: {said:#?}"
    );
}

/// Damages an image of each shape, repairs it, and expects these problems among those found.
fn damage(expected: &[&str], change: impl Fn(&Image)) {
    for shape in SHAPES {
        let image = Image::new(shape);
        let before = image.names("/big");
        change(&image);
        let found = image.repair();
        for problem in expected {
            assert!(
                found.contains(problem),
                "{shape}: {problem} not in {found:?}"
            );
        }
        assert_mended(&image, shape);
        assert_eq!(image.names("/big"), before, "{shape}");
    }
}

#[test]
fn clean_images_have_no_finding() {
    for shape in SHAPES.into_iter().chain([
        "-t ext4 -O inline_data -I 256",
        "-t ext4 -O casefold",
        "-t ext4 -O large_dir -b 1024",
        "-t ext4 -O ^dir_index",
        "-t ext4 -O ^extent,^64bit",
    ]) {
        let image = Image::new(shape);
        let outcome = image.check();
        assert!(outcome.is_clean, "{shape}: {:#?}", outcome.findings);
    }
}

#[test]
fn slashes_in_names_become_dots() {
    damage(&["directory-illegal-name"], |image| {
        image.edit("/small", 0, |bytes| put_name(bytes, "three", b"th/ee"));
    });
}

#[test]
fn entries_for_inodes_that_are_not_in_use_go() {
    damage(
        &["directory-unused-inode", "directory-no-such-inode"],
        |image| {
            image.edit("/small", 0, |bytes| {
                put_ino(bytes, "one", 1900);
                put_ino(bytes, "two", 4_000_000_000);
            });
        },
    );
}

#[test]
fn entries_for_root_and_self_and_reserved_inodes_go() {
    let expected = [
        "directory-link-to-root",
        "directory-link-to-self",
        "directory-reserved-inode",
    ];
    damage(&expected, |image| {
        let own = image.ino("/small");
        image.edit("/small", 0, |bytes| {
            put_ino(bytes, "one", 2);
            put_ino(bytes, "two", own);
            put_ino(bytes, "three", 7);
        });
    });
}

#[test]
fn a_second_entry_for_a_directory_goes() {
    damage(&["directory-second-parent"], |image| {
        let down = image.ino("/up/down");
        image.edit("/small", 0, |bytes| put_ino(bytes, "one", down));
    });
}

#[test]
fn wrong_file_types_are_mended() {
    for shape in SHAPES.iter().take(5) {
        let image = Image::new(shape);
        image.edit("/small", 0, |bytes| {
            let at = record(bytes, "one");
            bytes[at + 7] = 2;
            let at = record(bytes, "two");
            bytes[at + 7] = 0;
        });
        let found = image.repair();
        assert!(found.contains("directory-file-type"), "{found:?}");
        assert!(found.contains("directory-file-type-unset"), "{found:?}");
        assert_mended(&image, shape);
    }
}

#[test]
fn dot_and_dot_dot_come_back() {
    damage(
        &["directory-dot-inode", "directory-dotdot-inode"],
        |image| {
            image.edit("/small", 0, |bytes| put_ino(bytes, ".", 11));
            image.edit("/up/down", 0, |bytes| put_ino(bytes, "..", 11));
        },
    );
    damage(
        &["directory-dot-missing", "directory-dotdot-missing"],
        |image| {
            image.edit("/small", 0, |bytes| put_name(bytes, ".", b"x"));
            image.edit("/up/down", 0, |bytes| put_name(bytes, "..", b"y"));
        },
    );
}

#[test]
fn a_torn_record_costs_no_other_name() {
    damage(&["directory-record"], |image| {
        image.edit("/small", 0, |bytes| {
            let at = record(bytes, "one");
            bytes[at + 4..at + 6].copy_from_slice(&3_u16.to_le_bytes());
        });
        image.edit("/up", 0, |bytes| {
            let at = record(bytes, "down");
            bytes[at + 4..at + 6].copy_from_slice(&0xFFF0_u16.to_le_bytes());
        });
    });
}

#[test]
fn equal_names_of_one_inode_become_one_and_of_two_inodes_differ() {
    damage(&["directory-duplicate-name"], |image| {
        let one = image.ino("/small/one");
        image.edit("/small", 0, |bytes| {
            put_ino(bytes, "two", one);
            put_name(bytes, "two", b"one");
            put_name(bytes, "four", b"THRE");
            put_name(bytes, "THRE", b"three");
        });
    });
}

#[test]
fn damaged_indexes_are_made_anew() {
    type Change = fn(&mut [u8]);
    let changes: [(&str, Change); 7] = [
        ("directory-index-root", |bytes| bytes[0x1D] = 9),
        ("directory-index-hash-version", |bytes| bytes[0x1C] = 77),
        ("directory-index-depth", |bytes| bytes[0x1E] = 9),
        ("directory-index-limit", |bytes| bytes[0x20] ^= 1),
        ("directory-index-count", |bytes| bytes[0x22..0x24].fill(0)),
        ("directory-index-twice", |bytes| {
            bytes.copy_within(0x2C..0x30, 0x24)
        }),
        ("directory-index-order", |bytes| {
            bytes[0x28..0x2C].fill(0xFF)
        }),
    ];
    for shape in SHAPES.iter().take(5) {
        for (problem, change) in changes {
            let image = Image::new(shape);
            let before = image.names("/big");
            image.edit("/big", 0, change);
            let found = image.repair();
            assert!(found.contains(problem), "{shape}: {problem}: {found:?}");
            assert_mended(&image, shape);
            assert_eq!(image.names("/big"), before, "{shape}");
        }
    }
}

#[test]
fn a_name_in_the_wrong_leaf_is_found_and_put_right() {
    for shape in SHAPES.iter().take(5) {
        let image = Image::new(shape);
        for lblk in 1..4 {
            image.edit("/big", lblk, |bytes| {
                let at = bytes[..].windows(6).position(|w| w == b"a name").unwrap();
                bytes[at..at + 6].copy_from_slice(b"A NAME");
            });
        }
        let found = image.repair();
        let hashes = ["directory-index-min-hash", "directory-index-max-hash"];
        assert!(hashes.iter().any(|name| found.contains(name)), "{found:?}");
        assert_mended(&image, shape);
    }
}

#[test]
fn checksums_alone_are_computed_anew() {
    for shape in SHAPES.iter().take(2) {
        let image = Image::new(shape);
        let flip = |bytes: &mut [u8]| *bytes.last_mut().unwrap() ^= 1;
        image.edit_raw("/small", 0, flip, false);
        image.edit_raw("/big", 0, flip, false);
        image.edit_raw("/up", 0, |bytes| bytes[bytes.len() - 5] = 0, false);
        let found = image.repair();
        let expected = [
            "directory-block-checksum",
            "directory-index-checksum",
            "directory-block-no-checksum",
        ];
        for name in expected {
            assert!(found.contains(name), "{name}: {found:?}");
        }
        assert_mended(&image, shape);
    }
}

#[test]
fn what_lost_its_name_goes_to_lost_found() {
    damage(&["directory-unconnected", "unattached"], |image| {
        image.debugfs("unlink /up/down");
        image.debugfs("unlink /small/one");
    });
    damage(&["directory-unconnected", "lost-found-missing"], |image| {
        image.debugfs("rmdir /lost+found");
        image.debugfs("unlink /up");
    });
}

#[test]
fn a_loop_of_directories_is_cut() {
    damage(&["directory-loop"], |image| {
        let (up, one) = (image.ino("/up"), image.ino("/small/one"));
        image.debugfs(&format!("link <{up}> /up/down/loop"));
        image.debugfs("unlink /up");
        image.debugfs(&format!("set_inode_field <{one}> links_count 1"));
    });
}

#[test]
fn link_counts_are_those_of_the_names() {
    damage(&["inode-links"], |image| {
        image.debugfs("set_inode_field /small/one links_count 7");
        image.debugfs("set_inode_field /up links_count 9");
    });
}

#[test]
fn files_without_names_and_contents_are_cleared() {
    damage(&["unattached-empty"], |image| {
        image.debugfs("write /dev/null /small/empty");
        image.debugfs("unlink /small/empty");
    });
}

#[test]
fn a_directory_written_anew_on_request_stays_as_it_is_the_second_time() {
    let image = Image::new(SHAPES[0]);
    let options = Options {
        rebuild_directories: true,
        ..options()
    };
    let outcome = plan(&image.device(), &options, &Quiet).unwrap();
    assert!(outcome.is_clean, "{:#?}", outcome.findings);
}
