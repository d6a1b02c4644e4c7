//! Orphans.

use super::*;

/// Three files, of which none is an orphan yet: inodes 12, 13, 14; the orphan file takes one
/// number more.
fn files(options: &str) -> Arc<MemoryDevice> {
    let content = NamedTempFile::new().unwrap();
    std::fs::write(content.path(), vec![b'n'; 5000]).unwrap();
    let write = |name: &str| format!("write {} {name}", content.path().display());
    let requests = ["a", "b", "c"].map(write);
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    changed(&made(options, "16M"), &requests)
}

#[test]
fn deleted_orphans_get_a_time_and_the_list_is_emptied() {
    let device = changed(
        &files("-t ext3 -b 1024"),
        &[
            "ssv last_orphan 12",
            "sif <12> links_count 0",
            "sif <12> dtime @13",
            "sif <13> links_count 0",
            "unlink a",
            "unlink b",
        ],
    );
    let mended = assert_mended(&device, &["orphan", "orphan"]);
    let file = stored(&mended);
    let complaints = complaints(file.path()).unwrap_or_default();
    assert!(
        !complaints.contains("dtime") && !complaints.contains("orphan"),
        "{complaints}"
    );
}

#[test]
fn lists_that_lead_nowhere_are_cut() {
    let device = files("-t ext3 -b 1024");
    for head in ["5", "99999999", "500"] {
        let lost = changed(&device, &[&format!("ssv last_orphan {head}")]);
        assert_repaired(&lost, &["orphan-list-head"]);
    }
    let circle = changed(&device, &["ssv last_orphan 12", "sif <12> dtime @12"]);
    assert_mended(&circle, &["orphan", "orphan-list-next"]);
}

#[test]
fn orphan_files_are_emptied() {
    let device = files("-t ext4 -b 1024 -O orphan_file,^metadata_csum");
    let text = uext4_testkit::e2fsprogs::debugfs(stored(&device).path(), "blocks <12>");
    let first: usize = text.split_whitespace().next().unwrap().parse().unwrap();
    let slot = patched(&device, first * 1024, &13u32.to_le_bytes());
    assert_repaired(&slot, &["orphan-file-entry"]);
    let missing = patched(&device, first * 1024, &1300u32.to_le_bytes());
    assert_repaired(&missing, &["orphan-list-next"]);
    let twice = [13u32.to_le_bytes(), 13u32.to_le_bytes()].concat();
    let twice = patched(&device, first * 1024, &twice);
    assert_repaired(&twice, &["orphan-list-next", "orphan-file-entry"]);
    let magic = patched(&device, first * 1024 + 1016, b"xx");
    assert_repaired(&magic, &["orphan-file-block"]);
    let present = changed(&device, &["feature orphan_present"]);
    assert_mended(&present, &["orphan-file-present"]);
}

#[test]
fn an_orphan_file_that_is_none_is_given_up() {
    let device = files("-t ext4 -b 1024 -O orphan_file");
    let other = changed(&device, &["ssv orphan_file_inum 2"]);
    assert_mended(&other, &["orphan-file-inode"]);
    let journal = changed(&device, &["feature -has_journal"]);
    let names = ["journal-without-feature", "orphan-file-without-journal"];
    assert_mended(&journal, &names);
}

/// Extents and indirect blocks, of several levels.
#[test]
fn orphans_with_links_are_cut_at_their_size() {
    for options in [
        "-t ext3 -b 1024",
        "-t ext4 -b 1024 -O ^metadata_csum",
        "-t ext4 -b 1024",
    ] {
        for size in [0, 5_000, 20_000, 400_000] {
            let content = NamedTempFile::new().unwrap();
            std::fs::write(content.path(), vec![b'n'; 500_000]).unwrap();
            let write = format!("write {} a", content.path().display());
            let device = changed(&made(options, "16M"), &[&write]);
            let orphan = ["ssv last_orphan 12".into(), format!("sif <12> size {size}")];
            let orphan: Vec<&str> = orphan.iter().map(String::as_str).collect();
            let mended = assert_mended(&changed(&device, &orphan), &["orphan"]);
            let file = stored(&mended);
            // The rest is freed by later passes.
            uext4_testkit::e2fsprogs::assert_e2fsck(file.path(), "-fy", 1);
            let text = uext4_testkit::e2fsprogs::debugfs(file.path(), "stat <12>");
            assert!(
                text.contains(&format!("Size: {size}\n")),
                "{options} {size}: {text}"
            );
        }
    }
}

#[test]
fn a_table_that_names_itself_is_cut_once() {
    let device = files("-t ext2 -b 1024");
    let text = uext4_testkit::e2fsprogs::debugfs(stored(&device).path(), "bmap a 0");
    let block: u32 = text.trim().parse().unwrap();
    let table = block.to_le_bytes().repeat(256);
    let device = patched(&device, block as usize * 1024, &table);
    let requests = [
        "ssv last_orphan 12",
        "sif <12> size 0",
        &format!("sif <12> block[TIND] {block}"),
    ];
    let start = std::time::Instant::now();
    let found = opened(&changed(&device, &requests), &Options::default());
    assert_eq!(found.findings, ["orphan", "orphan-blocks-shared"]);
    assert!(start.elapsed().as_secs() < 10);
}

/// The image of an orphan of 300,000 bytes with a block of attributes: deleted, or cut to nothing.
fn waiting(options: &str, is_deleted: bool) -> crate::tests::TestImage {
    let image = crate::tests::TestImage::new(options, "16M");
    image.file("a", &[b'a'; 300_000]);
    image.debugfs(&["ea_set a user.long 0123456789"]);
    image.debugfs(&["ssv last_orphan 12"]);
    match is_deleted {
        true => image.debugfs(&["sif <12> links_count 0", "unlink a"]),
        false => image.debugfs(&["sif <12> size 0"]),
    }
    image
}

#[test]
fn what_an_orphan_held_is_no_damage_and_anything_else_is() {
    for options in [
        "-t ext2 -b 1024 -I 128",
        "-t ext3 -b 1024 -I 128",
        "-t ext4 -b 1024",
        "-t ext4 -b 1024 -I 128 -O ^metadata_csum",
    ] {
        for is_deleted in [true, false] {
            let image = waiting(options, is_deleted);
            let found = image.found();
            assert!(image.is_clean(), "{options} {is_deleted}: {found:?}");
            assert_eq!(found, ["orphan"], "{options} {is_deleted}");
            for (request, wanted) in [
                ("seti <60>", "inode-bitmap-marked"),
                ("setb 16000 5", "block-bitmap-marked"),
                ("clri <12>", "block-bitmap-marked"),
            ] {
                let image = waiting(options, is_deleted);
                image.debugfs(&[request]);
                let found = image.found();
                let is_found = found.contains(&wanted) && !image.is_clean();
                assert!(is_found, "{options} {is_deleted} {request}: {found:?}");
            }
            image.repair();
        }
    }
}

#[test]
fn what_an_orphan_used_of_a_quota_is_no_damage() {
    let image = crate::tests::TestImage::new("-t ext4 -b 1024 -O quota", "16M");
    image.file("a", &[b'a'; 300_000]);
    // debugfs does not count what it writes.
    assert!(image.repair().contains(&"quota-usage"));
    image.debugfs(&["ssv last_orphan 12", "sif <12> links_count 0", "unlink a"]);
    let found = image.found();
    assert!(image.is_clean(), "{found:?}");
    image.repair();
}
