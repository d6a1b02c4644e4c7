//! Fast commits that are written by hand, on images by mke2fs.

use std::path::Path;

use uext4_ondisk::checksum::crc32c;
use uext4_testkit::e2fsprogs::{assert_e2fsck, debugfs};

use crate::tests::TestImage;

/// Behind an empty log; transaction 7.
struct Records(Vec<u8>);

impl Records {
    fn new() -> Self {
        Self(Vec::new()).put(9, &[0, 7], b"")
    }

    fn put(mut self, tag: u16, words: &[u32], rest: &[u8]) -> Self {
        let len = words.len() * 4 + rest.len();
        self.0.extend(tag.to_le_bytes());
        self.0.extend((len as u16).to_le_bytes());
        words
            .iter()
            .for_each(|word| self.0.extend(word.to_le_bytes()));
        self.0.extend(rest);
        self
    }

    fn add(self, ino: u32, lblk: u32, len: u16, pblk: u32) -> Self {
        self.put(1, &[ino, lblk, len.into(), pblk], b"")
    }

    fn del(self, ino: u32, lblk: u32, len: u32) -> Self {
        self.put(2, &[ino, lblk, len], b"")
    }

    fn create(self, dir: u32, ino: u32, name: &str) -> Self {
        self.put(3, &[dir, ino], name.as_bytes())
    }

    fn link(self, dir: u32, ino: u32, name: &str) -> Self {
        self.put(4, &[dir, ino], name.as_bytes())
    }

    fn unlink(self, dir: u32, ino: u32, name: &str) -> Self {
        self.put(5, &[dir, ino], name.as_bytes())
    }

    /// An inode of this mode and size, with an empty extent tree.
    fn inode(self, ino: u32, mode: u16, size: u32, generation: u32) -> Self {
        let mut raw = [0; 160];
        raw[..2].copy_from_slice(&mode.to_le_bytes());
        raw[4..8].copy_from_slice(&size.to_le_bytes());
        raw[26] = 1;
        raw[32..36].copy_from_slice(&0x8_0000_u32.to_le_bytes());
        raw[40..48].copy_from_slice(&[0x0A, 0xF3, 0, 0, 4, 0, 0, 0]);
        raw[100..104].copy_from_slice(&generation.to_le_bytes());
        raw[128] = 32;
        self.put(6, &[ino], &raw)
    }

    /// The block of the area, of 1 KiB.
    fn block(mut self) -> Vec<u8> {
        let rest = 1024 - self.0.len() as u16 - 4;
        self.0.extend([[8, 0], rest.to_le_bytes()].concat());
        self.0.extend(7_u32.to_le_bytes());
        let sum = crc32c(0, &self.0);
        self.0.extend(sum.to_le_bytes());
        self.0.resize(1024, 0);
        self.0
    }
}

fn number(image: &Path, request: &str, before: &str) -> u32 {
    let text = debugfs(image, request);
    let rest = text.split(before).nth(1).unwrap_or(&text);
    let digits = rest.trim_start().split(|c: char| !c.is_ascii_digit());
    digits.into_iter().next().unwrap().parse().unwrap()
}

fn blocks(image: &Path, file: &str) -> Vec<usize> {
    let text = debugfs(image, &format!("blocks {file}"));
    let numbers = text.split_whitespace().filter_map(|n| n.parse().ok());
    numbers.collect()
}

fn ino(image: &Path, path: &str) -> u32 {
    number(image, &format!("stat {path}"), "Inode: ")
}

fn image(options: &str) -> TestImage {
    let options = format!("-t ext4 -b 1024 -O fast_commit {options}");
    let image = TestImage::new(&options, "40M");
    image.file("file", &[b'f'; 3000]);
    image.file("gone", &[b'g'; 9000]);
    image.debugfs(&["mkdir dir", "mkdir empty"]);
    image.file("other", b"other");
    image
}

/// Puts records behind an empty log.
fn put(image: &TestImage, records: Records) {
    image.debugfs(&["feature needs_recovery"]);
    let journal = blocks(image.path(), "<8>");
    let log = journal[0] * 1024;
    let area = records.block();
    image.change(|bytes| {
        bytes[log + 0x18..][..8].copy_from_slice(&[0, 0, 0, 7, 0, 0, 0, 1]);
        bytes[log + 0x28..][..4].copy_from_slice(&[0, 0, 0, 0x20]);
        bytes[log + 0x54..][..4].copy_from_slice(&[0, 0, 0, 64]);
        let superblock = uext4_ondisk::journal::JournalSuperblock::parse(&bytes[log..][..1024]);
        let mut superblock = superblock.unwrap();
        if superblock.checksum_version() >= 2 {
            superblock.s_checksum = superblock.checksum().into();
            let new = zerocopy::IntoBytes::as_bytes(&superblock);
            bytes[log..][..new.len()].copy_from_slice(new);
        }
        let first = superblock.s_maxlen.get() as usize - 64;
        // The area ends with the journal.
        bytes[journal[first + 1] * 1024..][..1024].copy_from_slice(&area);
    });
}

/// A file that grows, loses a block and gets a second name; a file that goes; a new file and a new
/// directory with a name in it.
fn everything(image: &Path) -> Records {
    let (file, gone, dir) = (ino(image, "file"), ino(image, "gone"), ino(image, "dir"));
    let generation = number(image, "stat file", "Generation: ");
    let free = number(image, "ffb 8 20000", "found: ");
    Records::new()
        .inode(file, 0o100_600, 20_000, generation)
        .add(file, 5, 3, free)
        .del(file, 1, 1)
        .link(dir, file, "second")
        .unlink(2, gone, "gone")
        .inode(900, 0o100_644, 2000, 5)
        .add(900, 0, 2, free + 3)
        .create(2, 900, "new")
        .inode(901, 0o040_755, 1024, 6)
        .create(dir, 901, "sub")
        .link(901, 900, "again")
        .unlink(2, ino(image, "empty"), "empty")
}

fn assert_everything(image: &Path) {
    let file = debugfs(image, "stat /dir/second");
    assert!(file.contains("Size: 20000"), "{file}");
    assert!(file.contains("Links: 2"), "{file}");
    let mapped = debugfs(image, "ex file");
    assert!(mapped.contains("5 -     7"), "{mapped}");
    assert!(!mapped.contains("1 -     1"), "{mapped}");
    let root = names(image);
    let expected = [".", "..", "lost+found", "file", "new", "dir", "other"];
    assert_eq!(root, expected);
    let new = debugfs(image, "stat /dir/sub/again");
    assert!(
        new.contains("Inode: 900 ") && new.contains("Links: 2"),
        "{new}"
    );
    assert!(new.contains("Blockcount: 4"), "{new}");
    assert_eq!(ino(image, "new"), 900);
}

/// The names in the root directory.
fn names(image: &Path) -> Vec<String> {
    let text = debugfs(image, "ls -p /");
    // Inode 0 is a record that is not in use.
    let used = text.lines().filter(|line| !line.starts_with("/0/"));
    let names = used.filter_map(|line| line.split('/').nth(5));
    names.map(str::to_owned).collect()
}

#[test]
fn fast_commits_are_replayed_where_blocks_were_shared() {
    let image = image("");
    put(&image, everything(image.path()));
    let block = blocks(image.path(), "file")[0];
    image.debugfs(&[&format!("sif other block[5] {block}")]);
    let found = image.found();
    assert!(found.contains(&"journal-fast-commits"), "{found:?}");
    assert!(!found.contains(&"fast-commit-misfit"), "{found:?}");
    image.repair();
    assert_everything(image.path());
    let own = [
        blocks(image.path(), "file")[0],
        blocks(image.path(), "other")[0],
    ];
    assert_ne!(own[0], own[1]);
}

/// The number of a directory is used again for a file, in the same commits; and that of a file for
/// a directory, and for a file.
#[test]
fn numbers_can_be_used_again() {
    let image = image("");
    let path = image.path();
    let (empty, gone, other) = (ino(path, "empty"), ino(path, "gone"), ino(path, "other"));
    let records = Records::new()
        .unlink(2, empty, "empty")
        .inode(empty, 0o100_644, 0, 3)
        .create(2, empty, "was-empty")
        .unlink(2, gone, "gone")
        .inode(gone, 0o040_755, 1024, 3)
        .create(2, gone, "was-gone")
        .unlink(2, other, "other")
        .inode(other, 0o100_644, 0, 3)
        .create(gone, other, "was-other");
    put(&image, records);
    let found = image.found();
    assert!(image.is_clean(), "{found:?}");
    image.repair();
    assert_eq!(ino(path, "was-empty"), empty);
    assert_eq!(ino(path, "was-gone"), gone);
    assert_eq!(ino(path, "was-gone/was-other"), other);
    let root = names(path);
    assert!(!root.iter().any(|name| name == "other"), "{root:?}");
}

/// The directory still has a name, or is not empty: the new file is left out, with its name.
#[test]
fn numbers_in_use_are_not_used_again() {
    for is_removed in [false, true] {
        let image = image("");
        let path = image.path();
        image.debugfs(&["ln other dir/within", "sif other links_count 2"]);
        let dir = ino(path, "dir");
        let mut records = Records::new();
        if is_removed {
            records = records.unlink(2, dir, "dir");
        }
        let records = records
            .inode(dir, 0o100_644, 0, 3)
            .create(2, dir, "again")
            .link(2, 800, "other");
        put(&image, records);
        let found = image.repair();
        assert!(found.contains(&"journal-fast-commit-misfit"), "{found:?}");
        let root = names(path);
        assert!(!root.iter().any(|name| name == "again"), "{root:?}");
        let within = match is_removed {
            false => "/dir/within".into(),
            true => format!("/lost+found/#{dir}/within"),
        };
        assert!(debugfs(path, &format!("cat {within}")).contains("other"));
        // Its new target does not exist.
        assert!(debugfs(path, "cat other").contains("other"));
    }
}

/// A file whose stored link count is too low keeps the name that is left.
#[test]
fn a_file_with_a_name_left_stays() {
    let image = image("");
    let path = image.path();
    image.debugfs(&["ln file second"]);
    put(&image, Records::new().unlink(2, ino(path, "file"), "file"));
    image.debugfs(&["sif second links_count 1"]);
    image.repair();
    assert!(debugfs(path, "stat second").contains("Links: 1"));
    assert!(debugfs(path, "cat second").contains("fff"));
}

#[test]
fn a_new_inode_whose_extra_fields_cannot_be_owns_nothing() {
    let image = image("");
    image.debugfs(&["rm other"]);
    let at = image.path().with_extension("value");
    std::fs::write(&at, [b'v'; 600]).unwrap();
    image.debugfs(&[&format!("ea_set -f {} file user.big", at.display())]);
    let block = number(image.path(), "stat file", "File ACL: ");
    assert_ne!(block, 0);
    let mut records = Records::new()
        .create(2, 30, "new")
        .inode(30, 0o100_644, 0, 9);
    // The inode is the last record.
    let raw = records.0.len() - 160;
    records.0[raw + 104..][..4].copy_from_slice(&block.to_le_bytes());
    records.0[raw + 128..][..2].copy_from_slice(&9999_u16.to_le_bytes());
    put(&image, records);
    image.repair();
    assert_e2fsck(image.path(), "-fn", 0);
    assert_eq!(number(image.path(), "stat new", "File ACL: "), 0);
    assert_eq!(number(image.path(), "stat file", "File ACL: "), block);
}

#[test]
fn fast_commits_are_replayed() {
    for options in ["", "-O ^metadata_csum,^64bit", "-O quota"] {
        let image = image(options);
        put(&image, everything(image.path()));
        let found = image.found();
        assert!(found.contains(&"journal-fast-commits"), "{found:?}");
        assert!(!found.contains(&"journal-fast-commit-misfit"), "{found:?}");
        assert!(image.is_clean(), "{options}: {found:?}");
        image.repair();
        assert_everything(image.path());
    }
}

#[test]
fn fast_commits_are_replayed_on_a_damaged_file_system() {
    let image = image("");
    put(&image, everything(image.path()));
    image.debugfs(&["sif other links_count 9", "sif <2> links_count 77"]);
    let found = image.repair();
    assert!(found.contains(&"journal-fast-commits"), "{found:?}");
    assert!(found.contains(&"inode-links"), "{found:?}");
    assert_everything(image.path());
    assert!(debugfs(image.path(), "cat other").contains("other"));
}

#[test]
fn a_new_file_in_what_is_no_directory_is_kept() {
    let image = image("");
    let path = image.path();
    let free = number(path, "ffb 2 20000", "found: ");
    let records = Records::new()
        .inode(900, 0o100_644, 2000, 5)
        .add(900, 0, 2, free)
        .create(ino(path, "other"), 900, "new");
    put(&image, records);
    let found = image.repair();
    assert!(found.contains(&"journal-fast-commit-misfit"), "{found:?}");
    let kept = debugfs(path, "stat /lost+found/#900");
    assert!(
        kept.contains("Size: 2000") && kept.contains("Blockcount: 4"),
        "{kept}"
    );
    assert!(kept.contains("Links: 1"), "{kept}");
    assert_e2fsck(path, "-fn", 0);
}

#[test]
fn what_does_not_fit_is_left_out() {
    let records = |image: &Path| {
        let (file, other) = (ino(image, "file"), ino(image, "other"));
        let used = blocks(image, "other")[0] as u32;
        let free = number(image, "ffb 1 20000", "found: ");
        Records::new()
            .add(file, 9, 1, used)
            .add(file, 10, 1, 1)
            .add(file, 11, 100, 40_900)
            .add(8, 9000, 1, free)
            .del(1 << 30, 0, 1)
            .add(ino(image, "dir"), 3, 1, free)
            .link(2, 800, "nothing")
            .link(other, file, "in a file")
            .unlink(2, file, "no such name")
            .link(2, 8, "the journal")
            .link(2, file, "..")
    };
    let image = image("");
    put(&image, records(image.path()));
    let found = image.repair();
    assert!(found.contains(&"journal-fast-commit-misfit"), "{found:?}");
    assert!(debugfs(image.path(), "cat other").contains("other"));
    let file = debugfs(image.path(), "stat file");
    assert!(
        file.contains("Size: 3000") && file.contains("Links: 1"),
        "{file}"
    );
    let root = names(image.path());
    assert_eq!(root.len(), 8, "{root:?}");
}

#[test]
fn an_index_gets_names_that_are_committed_fast() {
    let image = image("");
    for n in 0..200 {
        image.file(&format!("name-with-some-length-{n:04}"), b"");
    }
    assert_e2fsck(image.path(), "-fyD", 1);
    let mut records = Records::new();
    for n in 0..3 {
        records = records
            .inode(900 + n, 0o100_644, 0, n)
            .create(2, 900 + n, &format!("new-{n}"));
    }
    put(&image, records);
    image.repair();
    let path = image.path();
    let stat = debugfs(path, "stat <2>");
    assert!(stat.contains("Flags: 0x81000"), "{stat}");
    for n in 0..3 {
        assert_eq!(ino(path, &format!("new-{n}")), 900 + n);
    }
    assert_eq!(ino(path, "name-with-some-length-0199"), 16 + 200);
}

#[test]
fn unknown_records_are_refused() {
    let image = image("");
    put(&image, Records(Vec::new()).put(9, &[4, 7], b""));
    let result = image.examined();
    assert!(
        matches!(result, Err(crate::Error::Features { .. })),
        "{result:?}"
    );
}
