//! Every checksum in journals of the running kernel, and in those of version 2, which kernels no
//! longer write, of debugfs.

use std::fs;
use std::path::Path;

use uext4_ondisk::checksum::crc32_be;
use uext4_ondisk::journal::{
    BlockType, CommitBlock, CommitSumV1, JournalHeader, JournalSuperblock, Tag, TagFlags,
    commit_matches, parse_revokes, parse_tags, tag_checksum, tail_matches,
};
use uext4_ondisk::{Ino, Pblk};
use uext4_testkit::{can_mount, debugfs_script, has_tool, mke2fs};
use zerocopy::FromBytes;

use crate::image::Image;
use crate::kernel;

/// What was met in a log.
#[derive(Debug, Default)]
struct Met {
    tags: usize,
    escaped: usize,
    revokes: usize,
    commits: usize,
}

/// The log of an image, from its start.
struct Log<'a> {
    image: &'a Image,
    blocks: Vec<Pblk>,
    sb: JournalSuperblock,
}

impl<'a> Log<'a> {
    fn new(image: &'a Image) -> Self {
        let data = image.blocks(Ino(image.sb.s_journal_inum.get())).data;
        let blocks: Vec<_> = data.into_iter().map(|(_, at)| at).collect();
        let sb = JournalSuperblock::parse(image.block(blocks[0])).unwrap();
        Self { image, blocks, sb }
    }

    fn block(&self, at: u32) -> &'a [u8] {
        self.image.block(self.blocks[at as usize])
    }

    /// Walks all transactions; the log is short enough not to wrap.
    fn verify(&self) -> Met {
        let mut met = Met::default();
        let (mut at, mut sequence) = (self.sb.s_start.get(), self.sb.s_sequence.get());
        let mut v1_sum = !0;
        loop {
            let block = self.block(at);
            match JournalHeader::parse(block).filter(|&(_, found)| found == sequence) {
                Some((BlockType::Descriptor, _)) => {
                    assert!(tail_matches(block, &self.sb), "block {at}");
                    v1_sum = crc32_be(v1_sum, block);
                    for tag in parse_tags(block, &self.sb) {
                        at += 1;
                        self.verify_data(at, sequence, &tag, &mut met);
                        v1_sum = crc32_be(v1_sum, self.block(at));
                    }
                }
                Some((BlockType::Revoke, _)) => {
                    assert!(tail_matches(block, &self.sb), "block {at}");
                    let revoked = parse_revokes(block, &self.sb, at).unwrap();
                    assert!(revoked.iter().all(|&b| self.image.geometry.contains(b, 1)));
                    met.revokes += revoked.len();
                }
                Some((BlockType::Commit, _)) => {
                    assert!(commit_matches(block, &self.sb), "block {at}");
                    if self.sb.checksum_version() == 1 {
                        let (commit, _) = CommitBlock::read_from_prefix(block).unwrap();
                        assert_eq!(commit.sum_v1(), CommitSumV1::Crc32(v1_sum), "block {at}");
                    }
                    v1_sum = !0;
                    met.commits += 1;
                    sequence += 1;
                }
                _ => return met,
            }
            at += 1;
        }
    }

    fn verify_data(&self, at: u32, sequence: u32, tag: &Tag, met: &mut Met) {
        let data = self.block(at);
        assert!(self.image.geometry.contains(tag.block, 1), "{tag:?}");
        if self.sb.checksum_version() >= 2 {
            assert_eq!(
                tag_checksum(&self.sb, sequence, data),
                tag.checksum,
                "{tag:?}"
            );
        }
        if tag.flags.contains(TagFlags::ESCAPE) {
            assert_eq!(data[..4], [0; 4]);
            met.escaped += 1;
        }
        met.tags += 1;
    }
}

/// Two transactions: many files and one whose data looks like a journal block; all gone again.
fn change(root: &Path) {
    let dir = root.join("dir");
    fs::create_dir(&dir).unwrap();
    for i in 0..300 {
        fs::write(dir.join(format!("file number {i}")), [0x55; 5000]).unwrap();
    }
    fs::write(root.join("magic"), b"\xC0\x3B\x39\x98 is not data").unwrap();
    kernel::sync(root);
    fs::remove_dir_all(&dir).unwrap();
    kernel::sync(root);
}

fn verify(mke2fs_options: &str, mount_options: &str, checksum_version: u8) {
    if !can_mount() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = kernel::lost_image(dir.path(), mke2fs_options, mount_options, change);
    let image = Image::open(&path);
    let log = Log::new(&image);
    assert_eq!(log.sb.checksum_version(), checksum_version);
    let met = log.verify();
    assert!(met.tags > 10 && met.commits >= 2, "{met:?}");
    // Where data goes through the journal too, freed blocks need no revoking.
    let data_journal = mount_options.contains("data=journal");
    assert_eq!(met.escaped > 0, data_journal, "{met:?}");
    assert_eq!(met.revokes > 0, !data_journal, "{met:?}");
}

#[test]
fn v3() {
    verify("-t ext4 -b 1024", "data=journal", 3);
}

#[test]
fn v3_small_block_numbers() {
    verify("-t ext4 -b 4096 -O ^64bit", "defaults", 3);
}

#[test]
fn v1() {
    verify("-t ext4 -b 1024 -O ^metadata_csum", "journal_checksum", 1);
}

#[test]
fn no_checksums() {
    verify("-t ext3 -b 1024", "defaults", 0);
}

/// debugfs writes two transactions: three blocks, of which the second begins with the magic, and
/// two revokes.
fn verify_v2(mke2fs_options: &str) {
    if !has_tool("mke2fs") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let (path, data) = (dir.path().join("image"), dir.path().join("data"));
    mke2fs(&path, mke2fs_options.split_whitespace(), "32M");
    let mut blocks = vec![0xA5; 3 * 1024];
    blocks[1024..1028].copy_from_slice(b"\xC0\x3B\x39\x98");
    fs::write(&data, blocks).unwrap();
    let script = format!(
        "jo -c -v 2\njw -b 3000,3001,3002 {}\njw -r 3000,3005\njc\n",
        data.display()
    );
    debugfs_script(script, Some(&path));
    let image = Image::open(&path);
    let log = Log::new(&image);
    assert_eq!(log.sb.checksum_version(), 2);
    let met = log.verify();
    assert_eq!(
        (met.tags, met.escaped, met.revokes, met.commits),
        (3, 1, 2, 2)
    );
}

#[test]
fn v2() {
    verify_v2("-t ext4 -b 1024");
}

#[test]
fn v2_small_block_numbers() {
    verify_v2("-t ext4 -b 1024 -O ^64bit");
}
