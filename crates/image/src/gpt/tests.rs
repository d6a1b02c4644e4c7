//! Against `sfdisk`, `sgdisk` and our own reader of partition tables.

use std::path::Path;

use uext4_blockdev::{FileDevice, MemoryDevice, partition};
use uext4_testkit::{has_tool, run, run_text, scratch};

use super::*;

const IDENTITY: [u8; 16] = *b"0123456789abcdef";

fn gpt(kind: &str, name: &str) -> Gpt {
    Gpt::new(kind.parse().unwrap(), name, IDENTITY).unwrap()
}

fn hash() -> RootHash {
    RootHash(std::array::from_fn(|i| i as u8 * 7 + 1))
}

fn file(path: &Path, len: u64) -> FileDevice {
    _ = std::fs::remove_file(path);
    FileDevice::create(path, len).unwrap()
}

#[test]
fn partitions_are_aligned_and_do_not_overlap() {
    let gpt = gpt("root-arm64", "x");
    for (fs_len, verity_len) in [
        (1, None),
        (ALIGN, Some(4096)),
        (ALIGN - 16_895, None),
        (ALIGN + 1, Some(1)),
    ] {
        let layout = gpt.layout(fs_len, verity_len);
        assert_eq!((layout.fs.start, layout.len % ALIGN), (ALIGN, 0));
        assert!(layout.fs.end - layout.fs.start >= fs_len);
        let mut end = layout.fs.end;
        if let Some(verity) = &layout.verity {
            assert_eq!(verity.start % ALIGN, 0);
            assert!(verity.start >= end && verity.start - end < ALIGN);
            assert!(verity.end - verity.start >= verity_len.unwrap());
            end = verity.end;
        }
        let rest = layout.len - end;
        assert!((16_896..ALIGN + 16_896).contains(&rest), "{rest}");
    }
    assert_eq!(gpt.layout(u64::MAX, Some(u64::MAX)).len, u64::MAX);
}

#[test]
fn our_own_reader_finds_the_partitions() {
    for sector_size in [512, 4096] {
        let gpt = gpt("root-x86-64", "wurzel-é")
            .with_sector_size(sector_size)
            .unwrap();
        let layout = gpt.layout(5 << 20, Some(64 << 10));
        let device = MemoryDevice::new(layout.len);
        gpt.write(&layout, Some(&hash()), &device).unwrap();
        let table = partition::read(&device).unwrap();
        assert_eq!(table.damage, []);
        let verity = layout.verity.clone().unwrap();
        let found: Vec<_> = table
            .partitions
            .iter()
            .map(|p| p.start..p.start + p.len)
            .collect();
        assert_eq!(found, [layout.fs.clone(), verity]);
        assert_eq!(table.partitions[0].name, "wurzel-é");
        assert_eq!(table.partitions[1].name, "root-x86-64-verity");
        let kinds = table.partitions.iter().map(|p| p.kind.to_lowercase());
        let kind: PartitionType = "root-x86-64".parse().unwrap();
        let expected = [kind.guid().to_string(), kind.verity().unwrap().to_string()];
        assert!(kinds.eq(expected));
        // The copy at the end is as good.
        device.discard(0, ALIGN).unwrap();
        device.write_at(510, &[0x55, 0xaa]).unwrap();
        device
            .write_at(450, &[0xee, 0, 0, 0, 1, 0, 0, 0, 255])
            .unwrap();
        if sector_size == 512 {
            assert_eq!(
                partition::read(&device).unwrap().partitions,
                table.partitions
            );
        }
    }
}

#[test]
fn sfdisk_and_sgdisk_accept_the_table() {
    let dir = scratch();
    let path = dir.path().join("disk");
    for (verity, longer) in [(None, 0), (Some(300 << 10), 0), (None, 7 << 20)] {
        let gpt = gpt("usr-riscv64", "data");
        let layout = gpt.layout(20 << 20, verity);
        let hash = verity.map(|_| hash());
        let device = file(&path, layout.len + longer);
        gpt.write(&layout, hash.as_ref(), &device).unwrap();
        drop(device);
        if has_tool("sfdisk") {
            let said = run_text("sfdisk", ["--verify".as_ref(), path.as_os_str()]);
            assert!(said.contains("No errors detected"), "{said}");
            let dump = run_text("sfdisk", ["--dump".as_ref(), path.as_os_str()]).to_lowercase();
            assert!(
                dump.contains("start=        2048, size=       40960"),
                "{dump}"
            );
            assert!(dump.contains("name=\"data\""), "{dump}");
            let uuids = [
                "01080f16-1d24-2b32-3940-474e555c636a",
                "71787f86-8d94-9ba2-a9b0-b7bec5ccd3da",
            ];
            for uuid in uuids {
                assert_eq!(dump.contains(uuid), verity.is_some(), "{dump}");
            }
            let read_only = dump.matches("attrs=\"guid:60\"").count();
            assert_eq!(read_only, if verity.is_some() { 2 } else { 0 }, "{dump}");
        }
        if has_tool("sgdisk") {
            let said = run_text("sgdisk", ["-v".as_ref(), path.as_os_str()]);
            assert!(said.contains("No problems found"), "{said}");
        }
        let used = std::os::unix::fs::MetadataExt::blocks(&std::fs::metadata(&path).unwrap());
        assert!(used * 512 < 128 << 10, "{used} sectors of an empty disk");
    }
}

#[test]
fn the_same_arguments_give_the_same_bytes() {
    let bytes = |gpt: &Gpt| {
        let layout = gpt.layout(1 << 20, None);
        let device = MemoryDevice::new(layout.len);
        gpt.write(&layout, None, &device).unwrap();
        let mut bytes = vec![0; layout.len as usize];
        device.read_at(0, &mut bytes).unwrap();
        bytes
    };
    let same = gpt("linux", "a");
    assert!(bytes(&same) == bytes(&same));
    let other = Gpt::new(PartitionType::LINUX, "a", [1; 16]).unwrap();
    assert!(bytes(&same) != bytes(&other));
    assert_ne!(same.guid("disk"), same.guid("partition"));
}

#[test]
fn types_are_those_of_sfdisk() {
    if !has_tool("sfdisk") {
        return;
    }
    let list = run("sfdisk", ["--list-types", "--label", "gpt"]);
    let list = String::from_utf8(list).unwrap().to_lowercase();
    let same = |name: &str| {
        let (part, arch) = name.split_once('-').unwrap_or((name, ""));
        let arch = match arch {
            "arm64" => "arm-64",
            "ia64" => "ia-64",
            "loongarch64" => "loongarch-64",
            "mips-le" => "mips-32 le",
            "mips64-le" => "mips-64 le",
            "ppc64-le" => "ppc64le",
            "riscv32" => "risc-v-32",
            "riscv64" => "risc-v-64",
            "tilegx" => "tile-gx",
            arch => arch,
        };
        match part {
            "linux" => ["linux filesystem".to_owned(), String::new()],
            "srv" => ["linux server data".to_owned(), String::new()],
            "tmp" => ["linux temporary data".to_owned(), String::new()],
            "var" => ["linux variable data".to_owned(), String::new()],
            "usr" => ["", " verity"].map(|tree| format!("linux /usr{tree} ({arch})")),
            "root" => ["", " verity"].map(|tree| format!("linux root{tree} ({arch})")),
            part => [format!("linux {part}"), String::new()],
        }
    };
    for kind in PartitionType::all() {
        let [fs, verity] = same(kind.name());
        let line = |guid: Uuid, name: &str| list.contains(&format!("{guid}  {name}\n"));
        assert!(line(kind.guid(), &fs), "{kind:?}: {fs}");
        if let Some(guid) = kind.verity() {
            assert!(line(guid, &verity), "{kind:?}: {verity}");
        }
    }
}

#[test]
fn types_have_names_and_guids() {
    let root: PartitionType = "root-x86-64".parse().unwrap();
    let by_guid: PartitionType = root.guid().to_string().to_uppercase().parse().unwrap();
    assert_eq!(root, by_guid);
    let other: PartitionType = "00000000-0000-0000-0000-00000000000a".parse().unwrap();
    assert_eq!((other.name(), other.verity()), ("", None));
    for wrong in ["esp", "", "root", "root-", "4f68bce3"] {
        let error = wrong.parse::<PartitionType>().unwrap_err().to_string();
        assert!(error.contains("root-x86-64"), "{error}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let long = "😀".repeat(19);
    let kind = PartitionType::LINUX;
    let error = Gpt::new(kind, &long, IDENTITY).unwrap_err();
    assert!(error.to_string().contains("38 UTF-16 units"), "{error}");
    assert!(Gpt::new(kind, &long[..72], IDENTITY).is_ok());
    assert!(Gpt::new(kind, "a\0b", IDENTITY).is_err());
    let error = gpt("linux", "").with_sector_size(520).unwrap_err();
    assert_eq!(error, GptError::SectorSize { bytes: 520 });
    let gpt = gpt("linux", "");
    let layout = gpt.layout(1 << 20, None);
    let device = MemoryDevice::new(layout.fs.end + 16_895);
    let error = gpt.write(&layout, None, &device).unwrap_err();
    assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
    assert_eq!(device.next_data(0).unwrap(), None);
}
