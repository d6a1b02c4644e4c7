//! Changes, compared with what tune2fs makes of a copy of the same image.

mod cases;
mod journal;
mod kernel;
mod power_cut;
mod reshape;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_ondisk::group_desc::GroupDesc;
use uext4_testkit::e2fsprogs::{assert_clean, complaints};
use uext4_testkit::run_text;

use super::*;
use crate::tests::TestImage;
use crate::{UnfinishedRepair, apply};
use cases::{Case, label};
use kernel::Mounts;

const BASES: [&str; 3] = [
    "-t ext4 -b 1024 -O ^metadata_csum_seed,^orphan_file",
    "-t ext4 -b 1024 -O ^metadata_csum,quota,project,^flex_bg",
    "-t ext2 -b 1024 -I 256 -O ^sparse_super,^dir_index,^resize_inode",
];

/// An image with files, directories with and without an index, links and attributes.
fn filled(options: &str) -> TestImage {
    let image = TestImage::new(options, "20M");
    image.file("data", &[7; 300_000]);
    let empty = image.path().with_extension("empty");
    fs::write(&empty, "x").unwrap();
    let mut requests = vec!["mkdir d".to_owned(), "mkdir d/e".to_owned()];
    for nr in 0..70 {
        requests.push(format!(
            "write {} d/a-name-that-is-long-{nr}",
            empty.display()
        ));
    }
    requests.push("symlink short target".to_owned());
    requests.push(format!("symlink long {}", "t".repeat(90)));
    requests.push("ea_set data user.key value".to_owned());
    let requests: Vec<&str> = requests.iter().map(String::as_str).collect();
    image.debugfs(&requests);
    // debugfs counts neither quotas nor links of indexes.
    crate_repair(image.path());
    assert_clean(image.path());
    image
}

fn crate_repair(path: &Path) {
    let device = device(path);
    let outcome = crate::plan(&device, &Options::default(), &()).unwrap();
    let writes = Writes::new(&outcome.overlay, &outcome.used).unwrap();
    apply::in_place(&*device, &outcome.overlay, &writes, None, &|_| ()).unwrap();
    save(path, &device);
}

fn device(path: &Path) -> Arc<dyn BlockDevice> {
    Arc::new(MemoryDevice::from_bytes(fs::read(path).unwrap()))
}

fn save(path: &Path, device: &Arc<dyn BlockDevice>) {
    let mut bytes = vec![0; usize::try_from(device.len()).unwrap()];
    device.read_at(0, &mut bytes).unwrap();
    fs::write(path, bytes).unwrap();
}

fn options() -> Options {
    Options {
        now: 1_900_000_000,
        ..Options::default()
    }
}

/// Tunes an image in place.
fn tune_image(path: &Path, changes: &[Change]) -> Result<u64> {
    let device = device(path);
    let count = tune_device(&device, changes)?;
    save(path, &device);
    Ok(count)
}

fn tune_device(device: &Arc<dyn BlockDevice>, changes: &[Change]) -> Result<u64> {
    let tuned = tune(device, &options(), changes, &())?;
    apply::in_place(&**device, &tuned.overlay, &tuned.writes, None, &|_| ())
}

/// The lines of `dumpe2fs -h` that must be equal, without those in `but`.
fn dumped(path: &Path, but: &[&str]) -> BTreeSet<String> {
    let output = Command::new("dumpe2fs")
        .arg("-h")
        .arg(path)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // Times and counts of what tune2fs itself wrote, the checksum of all of it, and numbers of
    // blocks and inodes that were free for either.
    let never = [
        "Last write time",
        "Lifetime writes",
        "Checksum:",
        "Last checked",
        "mmp_update",
        "mmp_node_name",
        "mmp_device_name",
        "MMP block number",
        "Overhead clusters",
        "Journal checksum",
        "Mount count",
        "Free blocks",
        "Journal sequence",
        "Filesystem state",
        "First inode",
        "Journal features",
    ];
    let is_left_out = |line: &str| {
        never
            .iter()
            .chain(but)
            .any(|start| line.trim().starts_with(start))
    };
    let lines = text.lines().filter(|line| !is_left_out(line));
    lines.map(str::to_owned).collect()
}

/// Whether the tool of e2fsprogs makes the change.
fn by_tool(path: &Path, case: &Case) -> bool {
    let mut command = Command::new("sh");
    let line = "yes | \"$0\" -f \"$@\" >/dev/null 2>&1";
    let status = command
        .args(["-c", line, case.tool])
        .args(&case.arguments)
        .arg(path)
        .status();
    status.unwrap().success()
}

/// Makes the changes, compares with tune2fs and has the kernel mount it; what went wrong.
fn compare(base: &Path, case: &Case, mounts: &mut Mounts) -> Option<String> {
    let (ours, theirs) = (base.with_extension("ours"), base.with_extension("theirs"));
    fs::copy(base, &ours).unwrap();
    fs::copy(base, &theirs).unwrap();
    let is_done = by_tool(&theirs, case);
    let result = tune_image(&ours, &case.changes);
    let found = crate::findings(&device(&ours)).unwrap();
    let said = complaints(&ours);
    // What is not set need not be cleared: tune2fs refuses all that it can never clear.
    let is_nothing = result.as_ref().is_ok_and(|&blocks| blocks == 0);
    let arguments = &case.arguments;
    if result.is_ok() != is_done && !is_nothing || !found.is_empty() || said.is_some() {
        return Some(format!(
            "{arguments:?} {result:?} {is_done} {found:?} {said:?}"
        ));
    }
    let (left, wanted) = (dumped(&ours, case.but), dumped(&theirs, case.but));
    let differ: Vec<_> = left.symmetric_difference(&wanted).collect();
    if is_done && !differ.is_empty() {
        return Some(format!("{arguments:?}: {differ:?}"));
    }
    let complaint = mounts.complaint(&ours, &theirs)?;
    Some(format!("{arguments:?}: the kernel: {complaint}"))
}

/// Without `UEXT4_LONG`, each case is made on one of the images.
fn is_skipped(case: usize, base: usize) -> bool {
    std::env::var_os("UEXT4_LONG").is_none() && case % BASES.len() != base
}

fn has_tools() -> bool {
    ["tune2fs", "dumpe2fs", "debugfs", "mke2fs"]
        .iter()
        .all(|tool| uext4_testkit::has_tool(tool))
}

#[test]
fn every_switch_leaves_what_tune2fs_leaves() {
    if !has_tools() {
        return;
    }
    let (mut wrong, mut mounts) = (Vec::new(), Mounts::default());
    for (nr, base) in BASES.iter().enumerate() {
        let image = filled(base);
        let all = cases::all();
        let cases = all.iter().enumerate();
        for (_, case) in cases.filter(|(number, _)| !is_skipped(*number, nr)) {
            wrong.extend(compare(image.path(), case, &mut mounts));
        }
    }
    println!("{mounts:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(mounts.are_enough(), "{mounts:?}");
}

#[test]
fn a_journal_has_the_size_that_was_said() {
    let image = filled("-t ext2 -b 1024");
    tune_image(image.path(), &[Change::JournalSize(2 << 20)]).unwrap();
    assert_clean(image.path());
    let size = dumped(image.path(), &[]);
    assert!(size.contains("Total journal blocks:     2048"), "{size:?}");
    let error = tune_image(image.path(), &[Change::JournalSize(2 << 20)]).unwrap_err();
    assert!(error.to_string().contains("has a journal"), "{error}");
}

#[test]
fn directories_follow_another_seed_of_their_hashes() {
    let image = filled("-t ext4 -b 1024");
    tune_image(image.path(), &[Change::HashSeed([0x5A; 16])]).unwrap();
    assert_clean(image.path());
    let seed = "Directory Hash Seed:      5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a";
    assert!(dumped(image.path(), &[]).contains(seed));
}

/// dumpe2fs does not show whether names that are no text are refused.
#[test]
fn an_encoding_has_the_flags_of_tune2fs() {
    if !has_tools() {
        return;
    }
    let words = |path: &Path| fs::read(path).unwrap()[1024 + 0x27C..][..4].to_vec();
    for (flag, is_strict) in [("strict", true), ("nostrict", false)] {
        let image = filled("-t ext4 -b 1024");
        let list = format!("encoding=utf8,encoding_flags={flag}");
        let changes = vec![Change::Encoding { is_strict }];
        let case = Case::new("tune2fs", &["-E", &list], changes.clone());
        let complaint = compare(image.path(), &case, &mut Mounts::default());
        assert_eq!(complaint, None);
        let [ours, theirs] = ["ours", "theirs"].map(|name| image.path().with_extension(name));
        assert_eq!(words(&ours), words(&theirs), "{flag}");
        let error = tune_image(&ours, &changes).unwrap_err().to_string();
        assert!(error.contains("has an encoding"), "{error}");
    }
}

#[test]
fn an_encoding_that_directories_use_stays() {
    if !has_tools() {
        return;
    }
    let image = filled("-t ext4 -b 1024 -O casefold");
    let mut changes = Change::of_features("^casefold").unwrap();
    changes.push(Change::Encoding { is_strict: true });
    tune_image(image.path(), &changes).unwrap();
    assert_clean(image.path());
    let image = filled("-t ext4 -b 1024 -O casefold");
    image.debugfs(&["mkdir folded", "sif folded flags 0x40080000"]);
    assert_clean(image.path());
    let error = tune_image(image.path(), &changes).unwrap_err().to_string();
    assert!(error.contains("directories use it"), "{error}");
}

#[test]
fn what_is_not_clean_is_refused() {
    let image = filled("-t ext4 -b 1024");
    image.debugfs(&["set_super_value state 0", "sif data links_count 7"]);
    let error = tune_image(image.path(), &[label("x")]).unwrap_err();
    assert!(error.to_string().contains("uext4 repair"), "{error}");
}

#[test]
fn the_order_of_project_and_quota_does_not_matter() {
    for list in ["project,quota", "quota,project"] {
        let image = filled("-t ext4 -b 1024");
        tune_image(image.path(), &Change::of_features(list).unwrap()).unwrap();
        assert_clean(image.path());
        let shown = run_text("dumpe2fs", ["-h".as_ref(), image.path()]);
        for kind in ["User", "Group", "Project"] {
            assert!(
                shown.contains(&format!("{kind} quota inode:")),
                "{list}: {shown}"
            );
        }
    }
}

#[test]
fn multiple_mount_protection_comes_and_goes() {
    let image = filled("-t ext4 -b 1024");
    let feature = |text| Change::of_features(text).unwrap();
    // Other hosts are waited for once: one may have seen the block as it was.
    let steps = [
        (feature("mmp"), 0),
        (vec![label("alone")], 1),
        (feature("quota"), 1),
        (feature("^mmp"), 1),
    ];
    for (changes, waits) in steps {
        let device = device(image.path());
        let tuned = tune(&device, &options(), &changes, &()).unwrap();
        let waited = Cell::new(0);
        let pause = |_| {
            waited.set(waited.get() + 1);
            // Any other program refuses the file system meanwhile.
            let examined = tune(&device, &options(), &feature("^dir_index"), &());
            assert!(examined.is_err(), "{changes:?}");
        };
        apply::in_place(&*device, &tuned.overlay, &tuned.writes, None, &pause).unwrap();
        assert_eq!(waited.get(), waits, "{changes:?}");
        save(image.path(), &device);
        assert_eq!(image.found(), [""; 0]);
        assert_clean(image.path());
    }
}

#[test]
fn a_bitmap_without_the_marks_of_metadata_gives_no_room_for_the_log() {
    let image = filled(BASES[1]);
    let mut bytes = fs::read(image.path()).unwrap();
    let superblock = SuperBlock::parse(&bytes[1024..2048]).unwrap();
    let geometry = Geometry::new(&superblock).unwrap();
    let desc = GroupDesc::parse(&bytes[2048..][..usize::from(geometry.desc_size)]);
    // All of group 0 is free, if this is believed.
    let bitmap = desc.block_bitmap.0 as usize * 1024;
    bytes[bitmap..bitmap + 1024].fill(0);
    fs::write(image.path(), &bytes).unwrap();
    tune_image(image.path(), &[label("x")]).unwrap();
    let after = fs::read(image.path()).unwrap();
    let group = geometry.blocks_per_group.get() as usize * 1024;
    let changed = (2048..group).filter(|&at| bytes[at] != after[at]);
    assert_eq!(changed.count(), 0, "bytes of group 0 behind the superblock");
}
