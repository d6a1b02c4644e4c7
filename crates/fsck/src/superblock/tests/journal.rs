//! The journal.

use super::*;

/// Blocks of 1 KiB; the journal's first block is found by debugfs.
fn ext3() -> Arc<MemoryDevice> {
    made("-t ext3 -b 1024 -O ^resize_inode", "16M")
}

fn journal_at(device: &MemoryDevice) -> usize {
    let file = stored(device);
    let text = uext4_testkit::e2fsprogs::debugfs(file.path(), "blocks <8>");
    let first: usize = text.split_whitespace().next().unwrap().parse().unwrap();
    first * 1024
}

#[test]
fn a_damaged_journal_superblock_becomes_an_empty_journal() {
    let device = ext3();
    let at = journal_at(&device);
    for (field, bytes) in [
        (0, &[0; 4][..]),
        (0x0C, &[0, 0, 8, 0]),
        (0x10, &[1, 0, 0, 0]),
        (0x14, &[0, 0, 0, 0]),
    ] {
        let damaged = patched(&device, at + field, bytes);
        assert_repaired(&damaged, &["journal-damaged"]);
    }
    // A log that begins in the middle of nowhere.
    let start = patched(&device, at + 0x1C, &[0x7F, 0, 0, 0]);
    assert_repaired(&start, &["journal-torn"]);
    let errno = patched(&device, at + 0x20, &[0, 0, 0, 5]);
    assert_repaired(&errno, &["journal-errno"]);
    let old = patched(&device, at + 4, &[0, 0, 0, 3]);
    assert_repaired(&old, &["journal-v1-fields"]);
}

#[test]
fn the_inode_comes_back_from_the_superblock() {
    for request in [
        "clri <8>",
        "sif <8> mode 0",
        "sif <8> block[0] 1",
        "sif <8> size 5",
    ] {
        let device = changed(&ext3(), &[request]);
        assert_repaired(&device, &["journal-inode-from-backup"]);
    }
    let device = changed(&ext3(), &["ssv journal_inum 12"]);
    assert_repaired(&device, &["journal-inode-number"]);
    let copy = changed(&ext3(), &["ssv jnl_backup_type 0"]);
    assert_repaired(&copy, &["journal-not-backed-up"]);
}

#[test]
fn an_inode_that_is_lost_is_cleared_for_a_new_journal() {
    let device = changed(&ext3(), &["sif <8> block[0] 1", "ssv jnl_backup_type 0"]);
    let mended = assert_mended(&device, &["journal-inode"]);
    let text = uext4_testkit::e2fsprogs::debugfs(stored(&mended).path(), "stat <8>");
    assert!(text.contains("Links: 0"), "{text}");
}

#[test]
fn a_new_journal_takes_the_place_of_one_that_is_lost() {
    for options in ["-t ext3 -b 1024", "-t ext4 -b 1024"] {
        let image = crate::tests::TestImage::new(options, "16M");
        image.debugfs(&[
            "sif <8> block[2] 5",
            "sif <8> block[0] 1",
            "ssv jnl_backup_type 0",
        ]);
        let found = image.repair();
        assert!(found.contains(&"journal-missing"), "{options}: {found:?}");
    }
}

#[test]
fn features_and_journal_agree() {
    let device = changed(&ext3(), &["feature needs_recovery"]);
    assert_repaired(&device, &["journal-recover-of-nothing"]);
    let device = changed(&ext3(), &["feature -has_journal"]);
    assert_mended(&device, &["journal-without-feature"]);
    let none = made("-t ext2 -b 1024", "8M");
    let device = changed(&none, &["feature needs_recovery"]);
    assert_repaired(&device, &["journal-recover-without-journal"]);
}

/// A journal with one transaction, written by debugfs: the content of a block of a file.
fn with_transaction() -> (Arc<MemoryDevice>, usize) {
    let content = NamedTempFile::new().unwrap();
    std::fs::write(content.path(), vec![b'n'; 1024]).unwrap();
    let device = changed(
        &ext3(),
        &[&format!("write {} file", content.path().display())],
    );
    let file = stored(&device);
    let text = uext4_testkit::e2fsprogs::debugfs(file.path(), "blocks /file");
    let block: usize = text.split_whitespace().next().unwrap().parse().unwrap();
    (logged(&device, block, &[b'j'; 1024]), block * 1024)
}

/// The device with a transaction that waits: the content of a block.
fn logged(device: &MemoryDevice, block: usize, content: &[u8]) -> Arc<MemoryDevice> {
    let new = NamedTempFile::new().unwrap();
    std::fs::write(new.path(), content).unwrap();
    let write = format!("journal_write -b {block} {}", new.path().display());
    // One session of debugfs, which keeps the journal open.
    let script = format!("journal_open -c -v 3\n{write}\njournal_close\n");
    let file = stored(device);
    uext4_testkit::e2fsprogs::debugfs_script(script, Some(file.path()));
    loaded(file.path())
}

#[test]
fn what_keeps_a_mount_from_the_log_is_found_although_the_log_mends_it() {
    let device = ext3();
    let bytes = device.to_bytes();
    // Its own copies, in the log.
    let [superblock, descriptors] = [1, 2].map(|block| &bytes[block * 1024..][..1024]);
    let damaged = patched(&logged(&device, 2, descriptors), 2048 + 8, &[0x2A, 0, 0, 0]);
    assert_mended(&damaged, &["journal-replay", "journal-unreachable"]);
    let damaged = patched(&logged(&device, 1, superblock), 1024 + 0xE0, &[0; 4]);
    assert_mended(&damaged, &["journal-inode-number", "journal-replay"]);
}

#[test]
fn the_journal_is_replayed_or_the_file_system_refused() {
    let (device, at) = with_transaction();
    assert_eq!(device.to_bytes()[at], b'n');
    let mended = assert_mended(&device, &["journal-replay"]);
    assert_eq!(mended.to_bytes()[at..at + 1024], [b'j'; 1024]);
    assert_eq!(complaints(stored(&mended).path()), None);
    let no_replay = Options {
        replay: false,
        ..now()
    };
    let result = opened(&device, &no_replay).result;
    assert!(matches!(result, Err(Error::Refused { .. })));
}

#[test]
fn a_journal_that_is_not_empty_is_replayed_without_the_flag_too() {
    let (device, at) = with_transaction();
    let flag = changed(&device, &["feature -needs_recovery"]);
    let names = ["journal-replay", "journal-recover-missing"];
    let mended = assert_mended(&flag, &names);
    assert_eq!(mended.to_bytes()[at], b'j');
}

#[test]
fn a_journal_that_must_be_replayed_is_so_without_its_feature() {
    let (device, at) = with_transaction();
    let lost = changed(&device, &["feature -has_journal"]);
    let names = ["superblock-feature-lost", "journal-replay"];
    let mended = assert_mended(&lost, &names);
    assert_eq!(mended.to_bytes()[at..at + 1024], [b'j'; 1024]);
    assert_eq!(complaints(stored(&mended).path()), None);
}

#[test]
fn a_torn_transaction_is_left_out() {
    let (device, at) = with_transaction();
    let journal = journal_at(&device);
    // The data block behind the descriptor: its checksum in the tag does not match any more.
    let torn = patched(&device, journal + 2 * 1024 + 9, b"x");
    let mended = assert_mended(&torn, &["journal-torn"]);
    assert_eq!(mended.to_bytes()[at], b'n');
    assert_eq!(complaints(stored(&mended).path()), None);
}

#[test]
fn an_external_journal_is_no_lost_one() {
    let device = changed(&ext3(), &["ssv journal_inum 0", "ssv journal_dev 0x801"]);
    assert_mended(&device, &[]);
    let full = changed(&device, &["feature needs_recovery"]);
    let result = opened(&full, &now()).result;
    assert!(matches!(result, Err(Error::Refused { .. })));
}
