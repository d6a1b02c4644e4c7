//! The superblock, its backups, the resize inode and multiple mount protection.

use super::*;

const EXT4: &str = "-t ext4 -b 1024";

fn ext4() -> Arc<MemoryDevice> {
    made(EXT4, "32M")
}

#[test]
fn a_primary_superblock_that_is_lost_is_restored_from_a_backup() {
    for (options, size) in [
        (EXT4, "32M"),
        ("-t ext4 -b 4096 -g 2048", "32M"),
        ("-t ext4 -b 1024 -O bigalloc -C 4096", "80M"),
        ("-t ext4 -b 1024 -O sparse_super2,^resize_inode", "60M"),
        ("-t ext2 -b 1024 -r 0", "32M"),
    ] {
        let device = patched(&made(options, size), 1024, &[0; 1024]);
        let found = opened(&device, &now());
        let mended = found
            .result
            .unwrap_or_else(|error| panic!("{options}: {error}"));
        assert_eq!(
            found.findings[0], "superblock-unusable",
            "{options}: {:?}",
            found.texts
        );
        assert_eq!(opened(&mended, &now()).texts, [""; 0], "{options}");
    }
}

#[test]
fn fields_that_say_where_copies_are_come_back_from_a_backup() {
    for (options, field) in [
        (
            "-t ext4 -b 1024 -O sparse_super2,^resize_inode",
            "backup_bgs[1] 2",
        ),
        (
            "-t ext4 -b 1024 -O meta_bg,^resize_inode",
            "first_meta_bg 1",
        ),
    ] {
        let device = changed(&made(options, "60M"), &[&format!("ssv {field}")]);
        assert_repaired(&device, &["superblock-copies-elsewhere"]);
    }
}

#[test]
fn a_backup_that_is_asked_for_is_used() {
    let device = patched(&ext4(), 1024 + 0x54, &[12]);
    let chosen = Options {
        superblock: Some(8193),
        block_size: Some(1024),
        ..now()
    };
    let found = opened(&device, &chosen);
    assert_eq!(found.findings, ["superblock-chosen"]);
    let second = opened(&found.result.unwrap(), &chosen);
    assert_eq!(second.findings, [""; 0]);
    let nothing = Options {
        superblock: Some(9000),
        ..now()
    };
    assert!(matches!(
        opened(&device, &nothing).result,
        Err(Error::NotExt4 { .. })
    ));
}

#[test]
fn a_copy_inside_a_file_is_no_backup() {
    let device = ext4();
    let mut bytes = device.to_bytes();
    // Of another file system, aligned as in a file: not where that one has backups.
    let other = made(
        "-t ext4 -b 1024 -U 11111111-2222-3333-4444-555555555555",
        "16M",
    );
    let at = 8193 * 1024;
    bytes.copy_within(at..at + 1024, 1 << 20);
    bytes[2 << 20..][..1024].copy_from_slice(&other.to_bytes()[at..at + 1024]);
    bytes[1024..2048].fill(0);
    let uuid = bytes[at + 0x68..][..16].to_vec();
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let mended = opened(&device, &now()).result.unwrap();
    assert_eq!(mended.to_bytes()[1024 + 0x68..][..16], uuid);
}

#[test]
fn without_a_backup_the_fields_that_follow_are_mended() {
    let small = made("-t ext4 -b 1024 -O ^metadata_csum,^resize_inode", "4M");
    for (field, wrong, name) in [
        (0x00, &[9, 9][..], "superblock-inodes"),
        (0x14, &[7], "superblock-field"),
        (0x20, &[9, 9], "superblock-field"),
        (0x54, &[3], "superblock-field"),
        (0x58, &[3], "superblock-field"),
        (0xFE, &[3], "superblock-field"),
        (0x1C, &[9], "superblock-field"),
        (0x174, &[99], "superblock-field"),
    ] {
        let found = opened(&patched(&small, 1024 + field, wrong), &now());
        assert!(
            found.findings.contains(&name.to_owned()),
            "{field:x}: {:?}",
            found.texts
        );
        let mended = found.result.unwrap();
        assert_eq!(complaints(stored(&mended).path()), None, "{field:x}");
    }
    let summed = made("-t ext4 -b 1024", "4M");
    assert_repaired(
        &patched(&summed, 1024 + 0x78, b"x"),
        &["superblock-checksum"],
    );
}

#[test]
fn unknown_features_are_refused_before_anything() {
    for feature in ["FEATURE_C20", "FEATURE_I20", "FEATURE_R20", "dirdata"] {
        let device = changed(&ext4(), &[&format!("feature {feature}")]);
        match opened(&device, &now()).result {
            Err(Error::Features { features }) => assert_eq!(features, feature),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_device_that_is_too_short_is_said_to_be_cut_off() {
    let mut bytes = ext4().to_bytes();
    bytes.truncate(20 << 20);
    let device = Arc::new(MemoryDevice::from_bytes(bytes));
    let result = opened(&device, &now()).result;
    assert!(matches!(result, Err(Error::CutOff { need, have })
        if need == 32 << 20 && have == 20 << 20));
}

#[test]
fn fields_and_features_that_cannot_be_are_mended() {
    for (request, names) in [
        ("ssv min_extra_isize 1", &["superblock-min-extra-isize"][..]),
        (
            "ssv want_extra_isize 9000",
            &["superblock-want-extra-isize"],
        ),
        ("ssv r_blocks_count 30000", &["superblock-reserved-blocks"]),
        ("ssv usr_quota_inum 99999999", &["superblock-quota-inode"]),
        ("ssv state 3", &["superblock-errors"]),
        ("ssv flags 0", &["superblock-hash-sign"]),
        (
            "feature uninit_bg",
            &["superblock-two-descriptor-checksums"],
        ),
        ("feature -extent", &["superblock-64bit-without-extents"]),
    ] {
        assert_repaired(&changed(&ext4(), &[request]), names);
    }
    let seed = "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg";
    let device = changed(&made(seed, "8M"), &["feature metadata_csum_seed"]);
    assert_mended(&device, &["superblock-seed-without-checksums"]);
    let plain = made("-t ext2 -b 1024", "8M");
    let hurd = patched(&plain, 1024 + 0x48, &[1]);
    assert_mended(&hurd, &["superblock-hurd"]);
    let nameless = patched(&plain, 1024 + 0x68, &[0; 16]);
    assert_mended(&nameless, &["superblock-uuid"]);
}

#[test]
fn times_in_the_future_are_set_back() {
    let device = changed(&ext4(), &["ssv mtime 4000000000", "ssv wtime 4000000000"]);
    let today = Options {
        now: 1_790_000_000,
        ..Options::default()
    };
    let found = opened(&device, &today);
    let names = [
        "superblock-mounted-in-future",
        "superblock-written-in-future",
    ];
    assert_eq!(found.findings, names);
}

#[test]
fn backups_that_differ_are_written_anew() {
    let device = ext4();
    for at in [8193 * 1024 + 0x68, 24577 * 1024 + 0x38] {
        let patched = patched(&device, at, &[1, 2, 3]);
        assert_eq!(
            opened(&patched, &now()).findings,
            ["superblock-backup-differs"]
        );
        assert_repaired(&patched, &[]);
    }
    let table = patched(&device, 8194 * 1024, &[1, 2, 3]);
    assert_eq!(opened(&table, &now()).findings, ["group-backup-differs"]);
    let mended = assert_mended(&table, &[]);
    let lost = patched(&mended, 2048, &[0; 1024]);
    let found = opened(&lost, &now());
    assert!(
        found
            .findings
            .iter()
            .all(|name| name == "group-descriptor-from-backup")
    );
    found.result.unwrap();
}

#[test]
fn the_resize_inode_is_mapped_anew() {
    let device = ext4();
    let clear = changed(&device, &["feature -resize_inode"]);
    let names = ["superblock-reserved-descriptors", "resize-inode-in-use"];
    let found = opened(&clear, &now());
    assert_eq!(found.findings[..1], names[..1]);
    assert!(found.findings.contains(&names[1].to_owned()));
    // The first reserved block, which is an indirect block of inode 7.
    assert_repaired(&patched(&device, 3 * 1024, &[9]), &["resize-inode"]);
    assert_repaired(&changed(&device, &["sif <7> mode 0"]), &["resize-inode"]);
    let lost = changed(&device, &["sif <7> block[DIND] 2"]);
    assert_mended(&lost, &["resize-inode"]);
}

#[test]
fn multiple_mount_protection_is_respected_and_mended() {
    let device = made("-t ext4 -b 1024 -O mmp", "8M");
    let bytes = device.to_bytes();
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let block = number(1024 + 0x168) as usize * 1024;
    assert_mended(&patched(&device, block, b"xyz"), &["mmp-magic"]);
    assert_repaired(&patched(&device, block + 0x20, b"xyz"), &["mmp-checksum"]);
    let plain = made("-t ext4 -b 1024 -O mmp,^metadata_csum", "8M");
    let bytes = plain.to_bytes();
    let at = u32::from_le_bytes(bytes[1024 + 0x168..][..4].try_into().unwrap()) as usize * 1024;
    assert_mended(
        &patched(&plain, 1024 + 0x168, &[1, 0, 0, 0]),
        &["mmp-block"],
    );
    let mounted = patched(&plain, at + 4, &7u32.to_le_bytes());
    match opened(&mounted, &now()).result {
        Err(Error::Refused { what }) => assert!(what.contains("mounted"), "{what}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn noise_is_refused_or_mended_without_a_panic() {
    let device = made("-t ext4 -b 1024 -O orphan_file,mmp", "4M");
    let clean = device.to_bytes();
    let mut random = uext4_testkit::random::SplitMix64::new(18);
    for _ in 0..40 {
        let mut bytes = clean.clone();
        for _ in 0..1 + random.below(30) {
            // Superblock, descriptors, and the inodes that the first pass reads.
            let at = 1024 + random.below(2048) as usize;
            bytes[at] = random.below(256) as u8;
        }
        let noisy = Arc::new(MemoryDevice::from_bytes(bytes));
        if let Ok(mended) = opened(&noisy, &now()).result {
            let _ = opened(&mended, &now());
        }
    }
}

#[test]
fn more_groups_than_memory_allows_are_refused_before_their_tables_are_made() {
    let device = made("-t ext2 -b 1024", "16M");
    let options = Options {
        memory: 500,
        ..Options::default()
    };
    let found = opened(&device, &options);
    assert!(matches!(found.result, Err(Error::Memory { need, limit: 500 }) if need > 500));
    assert!(opened(&device, &Options::default()).result.is_ok());
}

#[test]
fn changes_in_blocks_of_another_size_are_refused() {
    let device: Arc<dyn BlockDevice> = made("-t ext4 -b 1024", "16M");
    let overlay = Overlay::new(device, BlockSize::from_bytes(4096).unwrap(), u64::MAX);
    let options = Options::default();
    let result = open(overlay, &options, &Findings::new(&(), 10));
    assert!(matches!(result, Err(Error::Refused { .. })));
}
