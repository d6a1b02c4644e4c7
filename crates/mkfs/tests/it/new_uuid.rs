//! Another UUID for a file system that is there: do e2fsck and all copies agree with it?

use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_mkfs::{Error, change_uuid, format, layout};
use uext4_ondisk::features::Incompat;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{Geometry, GroupNr};
use zerocopy::IntoBytes;

use crate::flags::options;
use crate::oracle::available;

const LEN: u64 = 24 << 20;
const UUID: [u8; 16] = *b"another identity";

fn made(flags: &str) -> MemoryDevice {
    let device = MemoryDevice::new(LEN);
    format(&layout(&options(flags), LEN).unwrap(), &device).unwrap();
    device
}

fn superblock(device: &MemoryDevice, offset: u64) -> SuperBlock {
    let mut bytes = [0; size_of::<SuperBlock>()];
    device.read_at(offset, &mut bytes).unwrap();
    SuperBlock::parse(&bytes).unwrap()
}

/// Where the superblock and its copies are.
fn copies(device: &MemoryDevice) -> Vec<u64> {
    let geometry = Geometry::new(&superblock(device, SUPERBLOCK_OFFSET)).unwrap();
    let backup = |group: GroupNr| geometry.group_start(group).0 << geometry.block_size.log2();
    let backups = geometry.backup_groups().map(backup);
    std::iter::once(SUPERBLOCK_OFFSET).chain(backups).collect()
}

#[test]
fn all_copies_have_it_and_checksums_are_right() {
    let dir = tempfile::tempdir().unwrap();
    for (flags, adds_seed) in [
        ("-t ext4 -b 1024", true),
        ("-t ext4 -b 1024 -O metadata_csum_seed", false),
        ("-t ext4 -b 1024 -O ^metadata_csum,uninit_bg", false),
        (
            "-t ext4 -b 1024 -O ^metadata_csum,uninit_bg,meta_bg,^resize_inode -g 1024",
            false,
        ),
        ("-t ext3 -b 1024", false),
    ] {
        let device = made(flags);
        let before = superblock(&device, SUPERBLOCK_OFFSET);
        let changed = change_uuid(&device, UUID).unwrap();
        assert_eq!(
            (changed.old, changed.adds_seed),
            (before.s_uuid, adds_seed),
            "{flags}"
        );
        assert!(copies(&device).len() > 1, "{flags}");
        for offset in copies(&device) {
            let copy = superblock(&device, offset);
            assert_eq!(copy.s_uuid, UUID, "{flags}: {offset}");
            assert_eq!(copy.csum_seed(), before.csum_seed(), "{flags}: {offset}");
        }
        if available() {
            let path = dir.path().join("image");
            std::fs::write(&path, device.to_bytes()).unwrap();
            assert_eq!(uext4_testkit::complaints(&path), None, "{flags}");
        }
        // The second change needs no feature any more, and back again all is as it was.
        assert!(!change_uuid(&device, before.s_uuid).unwrap().adds_seed);
        let again = made(flags);
        assert!(
            adds_seed || device.to_bytes() == again.to_bytes(),
            "{flags}"
        );
    }
}

#[test]
fn damage_stays_damage() {
    let device = made("-t ext4 -b 1024 -O ^metadata_csum,uninit_bg");
    let geometry = Geometry::new(&superblock(&device, SUPERBLOCK_OFFSET)).unwrap();
    let descriptors = geometry.gdt_block(0).0 << geometry.block_size.log2();
    let mut first = [0; 32];
    device.write_at(descriptors + 12, &[9, 9]).unwrap();
    device.read_at(descriptors, &mut first).unwrap();
    let backup = copies(&device)[1];
    device.write_at(backup + 0x38, &[0, 0]).unwrap();
    change_uuid(&device, UUID).unwrap();
    let mut now = [0; 32];
    device.read_at(descriptors, &mut now).unwrap();
    assert_eq!(now, first, "a wrong descriptor gets no right checksum");
    let mut bytes = [0; size_of::<SuperBlock>()];
    device.read_at(backup, &mut bytes).unwrap();
    assert!(SuperBlock::parse(&bytes).is_err());
}

#[test]
fn a_uuid_that_must_stay_is_refused_and_nothing_changes() {
    let refused = |change: &dyn Fn(&mut SuperBlock)| {
        let device = made("-t ext4 -b 1024");
        let mut superblock = superblock(&device, SUPERBLOCK_OFFSET);
        change(&mut superblock);
        superblock.update_checksum();
        device
            .write_at(SUPERBLOCK_OFFSET, superblock.as_bytes())
            .unwrap();
        let before = device.to_bytes();
        let error = change_uuid(&device, UUID).unwrap_err();
        assert!(device.to_bytes() == before, "{error}");
        error
    };
    let recover = refused(&|superblock| {
        let mut features = superblock.features();
        features.incompat.insert(Incompat::RECOVER);
        superblock.set_features(features);
    });
    assert!(recover.to_string().contains("replay it first"), "{recover}");
    let external = refused(&|superblock| superblock.s_journal_dev = 7.into());
    assert!(
        external.to_string().contains("external journal"),
        "{external}"
    );
    let large = refused(&|superblock| superblock.s_blocks_count_lo = (1 << 20).into());
    assert!(
        matches!(large, Error::DeviceTooSmall { .. } | Error::Damaged(_)),
        "{large}"
    );
}
