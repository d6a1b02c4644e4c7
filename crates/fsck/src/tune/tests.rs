//! Changes, compared with what tune2fs makes of a copy of the same image.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_ondisk::quota::QuotaKind;
use uext4_testkit::e2fsprogs::assert_clean;
use uext4_testkit::{SimDevice, SimOptions};

use super::*;
use crate::tests::TestImage;
use crate::{UnfinishedRepair, apply};

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
    let tuned = tune(&device, &options(), changes, &())?;
    let count = apply::in_place(&*device, &tuned.overlay, &tuned.writes, None, &|_| ())?;
    save(path, &device);
    Ok(count)
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

/// What tune2fs ends with on a copy; `None` if it refuses.
fn by_tune2fs(path: &Path, arguments: &[&str]) -> bool {
    let mut command = Command::new("sh");
    let line = "yes | tune2fs -f \"$@\" >/dev/null 2>&1";
    let status = command
        .args(["-c", line, "sh"])
        .args(arguments)
        .arg(path)
        .status();
    status.unwrap().success()
}

/// Makes the changes and compares with tune2fs; what went wrong.
fn compare(base: &Path, arguments: &[&str], changes: &[Change], but: &[&str]) -> Option<String> {
    let (ours, theirs) = (base.with_extension("ours"), base.with_extension("theirs"));
    fs::copy(base, &ours).unwrap();
    fs::copy(base, &theirs).unwrap();
    let is_done = by_tune2fs(&theirs, arguments);
    let result = tune_image(&ours, changes);
    let found = crate::findings(&device(&ours)).unwrap();
    let e2fsck = Command::new("e2fsck")
        .arg("-fn")
        .arg(&ours)
        .output()
        .unwrap();
    // What is not set need not be cleared: tune2fs refuses all that it can never clear.
    let is_nothing = result.as_ref().is_ok_and(|&blocks| blocks == 0);
    if result.is_ok() != is_done && !is_nothing || !found.is_empty() || !e2fsck.status.success() {
        let said = String::from_utf8_lossy(&e2fsck.stdout);
        return Some(format!(
            "{arguments:?} {result:?} {is_done} {found:?} {said}"
        ));
    }
    let (ours, theirs) = (dumped(&ours, but), dumped(&theirs, but));
    let differ: Vec<_> = ours.symmetric_difference(&theirs).collect();
    let is_same = !is_done || differ.is_empty();
    (!is_same).then(|| format!("{arguments:?}: {differ:?}"))
}

/// Each with the lines of dumpe2fs that differ from those of tune2fs, for the reason given.
const FEATURES: [(&str, &[&str]); 25] = [
    ("metadata_csum", &[]),
    // tune2fs leaves the orphan file, which neither the kernel nor e2fsck expects.
    (
        "has_journal",
        &[
            "Orphan file inode",
            "Total journal",
            "Max transaction",
            "Fast commit",
            // tune2fs leaves the copy of an inode that is no more.
            "Journal backup",
        ],
    ),
    ("dir_index", &[]),
    ("quota", &[]),
    ("project", &["Free inodes"]),
    ("orphan_file", &["Free inodes"]),
    // The kernel divides the journal when it mounts; tune2fs does it at once.
    ("fast_commit", &["Max transaction", "Fast commit"]),
    ("large_dir", &[]),
    ("ea_inode", &[]),
    ("casefold", &[]),
    ("dir_nlink", &[]),
    ("extra_isize", &[]),
    ("huge_file", &[]),
    ("large_file", &[]),
    ("uninit_bg", &[]),
    ("sparse_super", &[]),
    ("flex_bg", &[]),
    ("mmp", &["MMP"]),
    ("metadata_csum_seed", &[]),
    ("extent", &[]),
    ("filetype", &[]),
    ("verity", &[]),
    ("stable_inodes", &[]),
    ("encrypt", &[]),
    ("read-only", &[]),
];

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
fn features_are_set_and_cleared_as_tune2fs_does() {
    if !has_tools() {
        return;
    }
    let mut wrong = Vec::new();
    for (nr, base) in BASES.iter().enumerate() {
        let image = filled(base);
        let cases = FEATURES.iter().enumerate();
        for (_, (name, but)) in cases.filter(|(case, _)| !is_skipped(*case, nr)) {
            for text in [(*name).to_owned(), format!("^{name}")] {
                let changes = Change::of_features(&text).unwrap();
                wrong.extend(compare(image.path(), &["-O", &text], &changes, but));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn label(text: &str) -> Change {
    let mut label = [0; 16];
    label[..text.len()].copy_from_slice(text.as_bytes());
    Change::Label(label)
}

fn last_mounted(text: &str) -> Change {
    let mut path = [0; 64];
    path[..text.len()].copy_from_slice(text.as_bytes());
    Change::LastMounted(path)
}

fn mount_options(text: &str) -> Change {
    let mut options = [0; 64];
    options[..text.len()].copy_from_slice(text.as_bytes());
    Change::MountOptions(options)
}

const UUID: &str = "c1b9d5a2-f162-11cf-9ece-0020afc76f16";

fn uuid() -> Change {
    Change::Uuid(uuid::Uuid::parse_str(UUID).unwrap().into_bytes())
}

#[test]
fn fields_are_set_as_tune2fs_sets_them() {
    if !has_tools() {
        return;
    }
    let quota = |kind, is_on| Change::Quota { kind, is_on };
    let cases: Vec<(&str, Vec<Change>)> = vec![
        ("-L name", vec![label("name")]),
        ("-U c1b9d5a2-f162-11cf-9ece-0020afc76f16", vec![uuid()]),
        ("-m 10", vec![Change::Reserved(Reserved::Percent(10.0))]),
        ("-m 1.5", vec![Change::Reserved(Reserved::Percent(1.5))]),
        ("-r 777", vec![Change::Reserved(Reserved::Blocks(777))]),
        ("-r 20000", vec![Change::Reserved(Reserved::Blocks(20_000))]),
        (
            "-u 7 -g 8",
            vec![Change::ReservedUser(7), Change::ReservedGroup(8)],
        ),
        ("-e panic", vec![Change::Errors(3)]),
        ("-c 20", vec![Change::MountsMax(20)]),
        ("-i 2w", vec![Change::CheckInterval(2 * 7 * 86_400)]),
        ("-M /mnt/x", vec![last_mounted("/mnt/x")]),
        (
            "-o discard,^user_xattr",
            vec![Change::DefaultMount {
                clear: 4,
                set: 0x400,
            }],
        ),
        ("-E mount_opts=discard", vec![mount_options("discard")]),
        ("-E hash_alg=tea", vec![Change::Hash(2)]),
        (
            "-E stride=4,stripe_width=16",
            vec![Change::Stride(4), Change::StripeWidth(16)],
        ),
        ("-E test_fs", vec![Change::TestFs(true)]),
        ("-Q usrquota", vec![quota(QuotaKind::User, true)]),
        ("-Q ^grpquota", vec![quota(QuotaKind::Group, false)]),
        ("-Q prjquota", vec![quota(QuotaKind::Project, true)]),
    ];
    let mut wrong = Vec::new();
    for (nr, base) in BASES.iter().enumerate() {
        let image = filled(base);
        let cases = cases.iter().enumerate();
        for (_, (arguments, changes)) in cases.filter(|(case, _)| !is_skipped(*case, nr)) {
            let arguments: Vec<_> = arguments.split(' ').collect();
            wrong.extend(compare(image.path(), &arguments, changes, &["Free inodes"]));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
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

#[test]
fn what_is_not_clean_is_refused() {
    let image = filled("-t ext4 -b 1024");
    image.debugfs(&["set_super_value state 0", "sif data links_count 7"]);
    let error = tune_image(image.path(), &[label("x")]).unwrap_err();
    assert!(error.to_string().contains("uext4 repair"), "{error}");
}

#[test]
fn multiple_mount_protection_comes_and_goes() {
    let image = filled("-t ext4 -b 1024");
    for text in ["mmp", "^mmp"] {
        tune_image(image.path(), &Change::of_features(text).unwrap()).unwrap();
        assert_eq!(image.found(), [""; 0]);
    }
    assert_clean(image.path());
}

/// Cuts the power at every write: the next run ends with the old or the new state.
#[test]
fn a_power_cut_leaves_the_old_or_the_new_state() {
    let cases: [(&str, Vec<Change>); 4] = [
        ("label", vec![label("new")]),
        ("uuid", vec![uuid()]),
        ("no journal", Change::of_features("^has_journal").unwrap()),
        ("quota", Change::of_features("quota,^dir_index").unwrap()),
    ];
    let image = filled("-t ext4 -b 1024");
    for (name, changes) in cases {
        let whole = MemoryDevice::from_bytes(fs::read(image.path()).unwrap());
        let base: Arc<dyn BlockDevice> = Arc::new(whole.snapshot());
        let tuned = tune(&base, &options(), &changes, &()).unwrap();
        let sim = SimDevice::new(&whole, SimOptions::default());
        apply::in_place(&sim, &tuned.overlay, &tuned.writes, None, &|_| ()).unwrap();
        let writes = sim.stats().changes();
        let step = (writes / 12).max(1);
        for cut in (0..writes).filter(|cut| cut % step == 0 || cut + 3 >= writes) {
            let sim = SimDevice::new(
                &whole,
                SimOptions {
                    seed: cut,
                    ..SimOptions::default()
                },
            );
            sim.cut_at_write(cut);
            let written = apply::in_place(&sim, &tuned.overlay, &tuned.writes, None, &|_| ());
            assert!(written.is_err(), "{name}: {cut}");
            let left: Arc<dyn BlockDevice> = Arc::new(sim.contents());
            if let Some(repair) = UnfinishedRepair::find(&*left).unwrap() {
                apply::finish(&*left, &repair, &|_| ()).unwrap();
            }
            assert_eq!(crate::findings(&left).unwrap(), [], "{name}: {cut}");
            // Changing it again ends as changing it once did.
            let again = tune(&left, &options(), &changes, &()).unwrap();
            apply::in_place(&*left, &again.overlay, &again.writes, None, &|_| ()).unwrap();
            assert_eq!(crate::findings(&left).unwrap(), [], "{name}: {cut}");
        }
    }
}
