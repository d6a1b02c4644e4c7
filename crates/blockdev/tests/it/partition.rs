//! Tables made by `sfdisk`, tables made by hand, and tables made by chance.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use proptest::prelude::*;
use uext4_blockdev::partition::{self, Name, Table, TableKind, find_file_systems, gpt, mbr};
use uext4_blockdev::{Access, BlockDevice, Error, FileDevice, MemoryDevice, SubDevice};

const MIB: u64 = 1 << 20;

/// One line of `sfdisk --dump`: number, start, size (sectors), type, name.
type Line = (u32, u64, u64, String, String);

fn sfdisk(arguments: &[&str], image: &Path, input: &str) -> Option<String> {
    let child = Command::new("sfdisk")
        .args(arguments)
        .arg(image)
        .env("LC_ALL", "C")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("skipped: no sfdisk");
        return None;
    };
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(String::from_utf8(output.stdout).unwrap())
}

/// The value of `key=` in a line of a dump, without quotes.
fn field(line: &str, key: &str) -> Option<String> {
    let (_, rest) = line.split_once(&format!("{key}="))?;
    Some(rest.split(',').next()?.trim().trim_matches('"').to_owned())
}

fn dumped(image: &Path) -> Vec<Line> {
    let text = sfdisk(&["--dump"], image, "").unwrap();
    let is_extended = |kind: &str| matches!(kind, "5" | "f" | "85");
    text.lines()
        .filter_map(|line| {
            let (name, fields) = line.split_once(" : ")?;
            let number = name
                .trim()
                .strip_prefix(image.to_str().unwrap())?
                .parse()
                .unwrap();
            let sectors = |key| field(fields, key).unwrap().parse().unwrap();
            let kind = field(fields, "type").unwrap();
            let label = field(fields, "name").unwrap_or_default();
            (!is_extended(&kind)).then(|| (number, sectors("start"), sectors("size"), kind, label))
        })
        .collect()
}

fn scanned(device: &dyn BlockDevice, sector_size: u64) -> Vec<Line> {
    let line = |p: partition::Partition| {
        let kind = match p.table {
            TableKind::Mbr => p.kind.trim_start_matches('0').to_owned(),
            TableKind::Gpt => p.kind,
        };
        // As sfdisk prints names in the C locale.
        let name = p.name.bytes().map(|byte| match byte.is_ascii() {
            true => char::from(byte).to_string(),
            false => format!("\\x{byte:02x}"),
        });
        (
            p.number,
            p.start / sector_size,
            p.len / sector_size,
            kind,
            name.collect(),
        )
    };
    partition::scan(device)
        .unwrap()
        .into_iter()
        .map(line)
        .collect()
}

#[test]
fn tables_of_sfdisk_read_as_sfdisk_reads_them() {
    let mbr = "label: dos\n,2M\n,1M,c\n,20M,E\n,3M,83\n,1M\n,2M,S\n,1M\n";
    let gpt = "label: gpt\nsize=1M, type=L, name=boot\nsize=2M, type=U\n\
        7 : size=3M, name=\"größe 1\"\nsize=4M, type=S\n";
    for (script, partitions) in [(mbr, 6), (gpt, 4), ("label: gpt\n", 0), ("label: dos\n", 0)] {
        let dir = tempfile::tempdir().unwrap();
        let image = dir.path().join("disk");
        drop(FileDevice::create(&image, 40 * MIB).unwrap());
        // The option keeps sfdisk from syncing all file systems of the machine.
        if sfdisk(
            &["--quiet", concat!("--no-te", "ll-kernel")],
            &image,
            script,
        )
        .is_none()
        {
            return;
        }
        let device = FileDevice::open(&image, Access::ReadWrite).unwrap();
        let expected = dumped(&image);
        assert_eq!(expected.len(), partitions, "{script}");
        assert_eq!(scanned(&device, 512), expected);
        assert_eq!(partition::read(&device).unwrap().damage, []);
        if script.contains("gpt") {
            device.write_at(512, &[0; 512]).unwrap();
            assert_eq!(scanned(&device, 512), expected, "from the backup");
            device.write_at(40 * MIB - 512, &[0; 512]).unwrap();
            assert!(matches!(partition::scan(&device), Err(Error::Partition(_))));
        }
    }
}

#[test]
fn a_disk_of_4096_byte_sectors_is_read_through_a_loop_device() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("disk");
    for label in ["gpt", "dos"] {
        drop(FileDevice::create(&image, 40 * MIB).unwrap());
        let Some(disk) = crate::file::attach(&image, 4096) else {
            return;
        };
        let script = format!("label: {label}\n,8M\n,8M\n");
        if sfdisk(
            &["--quiet", concat!("--no-te", "ll-kernel")],
            disk.path(),
            &script,
        )
        .is_none()
        {
            return;
        }
        let native = FileDevice::open(disk.path(), Access::ReadOnly).unwrap();
        assert_eq!(native.sector_size(), 4096);
        let spans: Vec<_> = partition::scan(&native)
            .unwrap()
            .iter()
            .map(|p| (p.start, p.len))
            .collect();
        assert_eq!(spans, [(MIB, 8 * MIB), (9 * MIB, 8 * MIB)]);
        drop(disk);

        // The image alone does not report its sector size, but where the file system is does.
        let copy = FileDevice::open(&image, Access::ReadWrite).unwrap();
        copy.write_at(9 * MIB + 100, b"magic").unwrap();
        let found = find_file_systems(Arc::new(copy), has_magic).unwrap();
        assert_eq!(found.len(), 1, "{label}");
        assert_eq!(found[0].device.start(), 9 * MIB);
        assert_eq!(found[0].partition.as_ref().unwrap().number, 2);
        std::fs::remove_file(&image).unwrap();
    }
}

fn has_magic(device: &dyn BlockDevice) -> bool {
    let mut magic = [0; 5];
    device.read_at(100, &mut magic).is_ok() && magic == *b"magic"
}

/// A disk with MBR entries (type, first sector, sectors).
fn disk(len: u64, entries: &[(u8, u32, u32)]) -> Arc<MemoryDevice> {
    let device = MemoryDevice::new(len);
    for (i, &(kind, first, count)) in (0..).zip(entries) {
        let at = 446 + 16 * i;
        device.write_at(at + 4, &[kind]).unwrap();
        device.write_at(at + 8, &first.to_le_bytes()).unwrap();
        device.write_at(at + 12, &count.to_le_bytes()).unwrap();
    }
    device.write_at(510, &[0x55, 0xaa]).unwrap();
    Arc::new(device)
}

fn starts(device: Arc<MemoryDevice>) -> Vec<u64> {
    let found = find_file_systems(device, has_magic).unwrap();
    found.iter().map(|found| found.device.start()).collect()
}

#[test]
fn file_systems_are_found_where_they_are() {
    let device = disk(
        MIB,
        &[
            (0x83, 10, 10),
            (0x83, 100, 5000),
            (0x83, 5000, 10),
            (0x83, 30, 1),
        ],
    );
    assert_eq!(starts(device.clone()), []);
    device.write_at(100 * 512 + 100, b"magic").unwrap();
    device.write_at(30 * 512 + 100, b"magic").unwrap();
    assert_eq!(
        starts(device.clone()),
        [100 * 512, 30 * 512],
        "in the order of the table"
    );
    let second = partition::open(device.clone(), &Name::Number(2)).unwrap();
    assert_eq!(
        second.len(),
        MIB - 100 * 512,
        "cut short at the end of the device"
    );
    assert!(matches!(
        partition::open(device.clone(), &Name::Number(3)),
        Err(Error::OutOfRange { .. })
    ));
    let error = partition::open(device.clone(), &Name::Number(5)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no partition 5, only 1, 2, 3, 4"
    );
    device.write_at(100, b"magic").unwrap();
    assert_eq!(
        starts(device),
        [0],
        "a file system with a table in its boot sector is one"
    );
    let plain = Arc::new(MemoryDevice::new(4096));
    let error = partition::open(plain, &Name::Number(1)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "there is no partition 1, only an unpartitioned device"
    );
}

#[test]
fn a_table_that_leaves_nothing_is_an_error() {
    let device = disk(MIB, &[(0xee, 1, u32::MAX)]);
    let error = find_file_systems(device.clone(), has_magic).unwrap_err();
    assert_eq!(
        error.to_string(),
        "partition table: no GPT header at sector 1"
    );
    // A hybrid disk whose GPT is lost still has its MBR entries.
    let device = disk(MIB, &[(0xee, 1, 9), (0x83, 10, 10)]);
    device.write_at(10 * 512 + 100, b"magic").unwrap();
    assert_eq!(starts(device), [10 * 512]);
    let chain = disk(MIB, &[(0x05, u32::MAX, 9)]);
    assert!(matches!(
        find_file_systems(chain, has_magic),
        Err(Error::Partition(_))
    ));
}

/// Asserts what holds for every table whatever its bytes.
fn check_sane(device: &Arc<dyn BlockDevice>) {
    let Table {
        partitions, damage, ..
    } = partition::read(&**device).unwrap();
    assert!(partitions.len() <= 8192 && damage.len() <= 8192 + 8);
    for partition in &partitions {
        assert!(partition.number > 0 && partition.len > 0);
        partition.start.checked_add(partition.len).unwrap();
        if let Ok(window) = partition.open(Arc::clone(device)) {
            assert!(window.start() + window.len() <= device.len());
        }
    }
    let found = find_file_systems(Arc::clone(device), |device: &dyn BlockDevice| {
        device.read_at(0, &mut [0]).is_ok()
    });
    assert!(found.is_ok());
}

/// A GPT with right checksums around whatever the fields say.
fn gpt_disk(fields: &[u8; 60], entries: &[u8], sector_size: u64) -> MemoryDevice {
    let device = MemoryDevice::new(200 * sector_size);
    device.write_at(446 + 4, &[mbr::PROTECTIVE]).unwrap();
    device.write_at(510, &[0x55, 0xaa]).unwrap();
    let mut header = [0; 92];
    header[..8].copy_from_slice(&gpt::SIGNATURE);
    header[12..16].copy_from_slice(&92_u32.to_le_bytes());
    header[24] = 1;
    header[32..92].copy_from_slice(fields);
    header[88..].copy_from_slice(&crc32fast::hash(entries).to_le_bytes());
    let checksum = crc32fast::hash(&header);
    header[16..20].copy_from_slice(&checksum.to_le_bytes());
    device.write_at(sector_size, &header).unwrap();
    device.write_at(2 * sector_size, entries).unwrap();
    device
}

proptest! {
    #[test]
    fn no_bytes_make_the_scan_panic(
        mut sectors in prop::collection::vec(any::<u8>(), 0..4096),
        signed in any::<bool>(),
        links in prop::collection::vec((0_u8..8, any::<u8>(), any::<u8>()), 0..20),
    ) {
        if signed {
            for sector in sectors.chunks_exact_mut(512) {
                sector[510..].copy_from_slice(&[0x55, 0xaa]);
                for entry in sector[446..510].chunks_mut(16) {
                    entry[0] = 0;
                }
            }
            // Small numbers in entries, so that chains lead somewhere.
            for &(sector, kind, target) in &links {
                let at = usize::from(sector) * 512 + 446 + 16;
                if let Some(entry) = sectors.get_mut(at..at + 16) {
                    entry[4] = if kind % 2 == 0 { 0x05 } else { kind };
                    entry[8..12].copy_from_slice(&u32::from(target % 8).to_le_bytes());
                }
            }
        }
        let _ = mbr::parse(&sectors);
        let _ = gpt::Header::parse(&sectors, 1);
        for entry_size in [0, 1, 128, 136, 4096, u32::MAX] {
            gpt::parse_entries(&sectors, entry_size, 512, &mut Table::default());
        }
        let device: Arc<dyn BlockDevice> = Arc::new(MemoryDevice::from_bytes(sectors));
        let _ = partition::scan(&*device);
        let _ = SubDevice::from_offset(device, 1).map(|device| partition::scan(&device));
    }

    #[test]
    fn gpts_with_right_checksums_stay_sane(
        mut fields in any::<[u8; 32]>().prop_map(|random| {
            let mut fields = [0; 60];
            fields[..32].copy_from_slice(&random);
            fields
        }),
        entries_lba in prop_oneof![Just(2_u64), any::<u64>()],
        count in prop_oneof![Just(16_u32), 0_u32..32, any::<u32>()],
        entry_size in prop_oneof![Just(128_u32), 0_u32..600, any::<u32>()],
        spans in prop::collection::vec(
            prop_oneof![(0_u64..300, 0_u64..300), any::<(u64, u64)>()], 16),
        large in any::<bool>(),
    ) {
        fields[40..48].copy_from_slice(&entries_lba.to_le_bytes());
        fields[48..52].copy_from_slice(&count.to_le_bytes());
        fields[52..56].copy_from_slice(&entry_size.to_le_bytes());
        let mut entries = vec![0; 16 * 128];
        for (entry, (first, last)) in entries.chunks_mut(128).zip(spans) {
            entry[0] = 1;
            entry[32..40].copy_from_slice(&first.to_le_bytes());
            entry[40..48].copy_from_slice(&last.to_le_bytes());
        }
        let device = gpt_disk(&fields, &entries, if large { 4096 } else { 512 });
        let device: Arc<dyn BlockDevice> = Arc::new(device);
        let table = partition::read(&*device).unwrap();
        if (entries_lba, count, entry_size) == (2, 16, 128) {
            prop_assert_eq!(table.partitions.len() + table.damage.len(), 16);
        }
        if table.damage.is_empty() || !table.partitions.is_empty() {
            check_sane(&device);
        }
    }
}
