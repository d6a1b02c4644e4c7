//! The same flags given to the real mke2fs and to this crate: the same image.

use std::collections::HashSet;
use std::path::Path;
use std::process::{Command, Output};

use uext4_blockdev::{BlockDevice, FileDevice};
use uext4_mkfs::{format, layout};
use uext4_ondisk::mmp::{EXT4_MMP_MAGIC, MmpBlock};
use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SuperBlock};
use uext4_testkit::complaints;
use zerocopy::{FromBytes, IntoBytes};

use crate::compare::differences;
use crate::flags::{HASH_SEED, TIME, UUID, options};

/// Lines of dumpe2fs that may differ, and why.
const ALLOWED_LINES: &[(&str, &str)] = &[
    (
        "Lifetime writes:",
        "mke2fs counts what its cache happened to write",
    ),
    ("Checksum:", "covers the above"),
    ("    mmp_update_date:", "mke2fs takes the real time here"),
    ("    mmp_update_time:", "mke2fs takes the real time here"),
    ("    mmp_node_name:", "mke2fs names the host"),
    ("    mmp_device_name:", "mke2fs names the file"),
];

/// Differences notified of each kind.
const MOST_SHOWN: usize = 4;
/// e2fsck takes many seconds for more than this.
const FSCK_MAX: u64 = 8 << 40;

fn run(command: &mut Command) -> Output {
    command
        .env("E2FSPROGS_FAKE_TIME", TIME.to_string())
        .env("MKE2FS_CONFIG", "/etc/mke2fs.conf")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// True if the tools are there, in the version this crate follows.
pub fn available() -> bool {
    let version = |tool: &str| Command::new(tool).arg("-V").output();
    let Ok(mke2fs) = version("mke2fs") else {
        return false;
    };
    text(&mke2fs.stderr).contains(" 1.47.")
        && version("dumpe2fs").is_ok()
        && version("e2fsck").is_ok()
}

/// An image made by mke2fs; its complaint if it refuses.
pub fn theirs(path: &Path, flags: &str, len: u64) -> Result<(), String> {
    FileDevice::create(path, len).unwrap();
    let mut words: Vec<&str> = flags.split_whitespace().collect();
    // The size argument comes after the device.
    let size =
        words.pop_if(|word| word.starts_with(|c: char| c.is_ascii_digit()) && is_size(flags));
    // Only the last -E counts.
    let mut extended = format!("hash_seed={HASH_SEED}");
    let mut plain = Vec::new();
    let mut rest = words.into_iter();
    while let Some(word) = rest.next() {
        if word == "-E" {
            extended = format!("{},{extended}", rest.next().unwrap());
        } else {
            plain.push(word);
        }
    }
    let output = run(Command::new("mke2fs")
        .args(["-F", "-q", "-U", UUID, "-E", &extended])
        .args(plain)
        .arg(path)
        .args(size));
    if output.status.success() {
        Ok(())
    } else {
        Err(text(&output.stderr))
    }
}

/// True if the last word is no flag's value.
fn is_size(flags: &str) -> bool {
    let words: Vec<&str> = flags.split_whitespace().collect();
    match words.as_slice() {
        [.., before, _] => !before.starts_with('-') || *before == "-j",
        _ => true,
    }
}

/// An image made by this crate.
fn ours(path: &Path, flags: &str, len: u64) -> Result<(), String> {
    let device = FileDevice::create(path, len).unwrap();
    let mut options = options(flags);
    // A new file is all holes: what the discard would make of it.
    options.assume_zeroed = options.extended.discard;
    let layout = layout(&options, device.len()).map_err(|e| e.to_string())?;
    format(&layout, &device).map_err(|e| e.to_string())
}

/// Zeroes what [`ALLOWED_LINES`] stand for in every copy of the superblock and in the MMP block.
fn normalize(_offset: u64, bytes: &mut [u8]) {
    if let Ok(mut sb) = SuperBlock::read_from_bytes(bytes)
        && sb.s_magic.get() == EXT4_SUPER_MAGIC
    {
        sb.s_kbytes_written = 0.into();
        sb.s_checksum = 0.into();
        bytes.copy_from_slice(sb.as_bytes());
    }
    if let Ok(mut mmp) = MmpBlock::read_from_bytes(bytes)
        && mmp.mmp_magic.get() == EXT4_MMP_MAGIC
    {
        mmp.mmp_time = 0.into();
        mmp.mmp_nodename = [0; 64];
        mmp.mmp_bdevname = [0; 32];
        mmp.mmp_checksum = 0.into();
        bytes.copy_from_slice(mmp.as_bytes());
    }
}

fn dumpe2fs(path: &Path) -> Vec<String> {
    let output = run(Command::new("dumpe2fs").arg(path));
    let allowed = |line: &&str| {
        !ALLOWED_LINES
            .iter()
            .any(|(start, _)| line.starts_with(start))
    };
    text(&output.stdout)
        .lines()
        .filter(allowed)
        .map(str::to_owned)
        .collect()
}

/// Lines that only one of the two has.
fn line_differences(a: &[String], b: &[String]) -> Vec<String> {
    let set = |lines: &[String]| lines.iter().cloned().collect::<HashSet<_>>();
    let (in_a, in_b) = (set(a), set(b));
    let only_a = a.iter().filter(|line| !in_b.contains(*line));
    let only_b = b.iter().filter(|line| !in_a.contains(*line));
    let removed = only_a.take(MOST_SHOWN).map(|line| format!("- {line}"));
    removed
        .chain(only_b.take(MOST_SHOWN).map(|line| format!("+ {line}")))
        .collect()
}

/// What differs between the two images, e2fsck's verdict on ours included.
pub fn check(flags: &str, len: u64) -> Vec<String> {
    let dir = tempfile::Builder::new()
        .prefix("uext4-mkfs-")
        .tempdir_in(scratch())
        .unwrap();
    let (a, b) = (dir.path().join("theirs"), dir.path().join("ours"));
    let theirs = theirs(&a, flags, len);
    let ours = ours(&b, flags, len);
    let mut found = match (&theirs, ours) {
        (Ok(()), Ok(())) => differences(&a, &b, normalize),
        (Err(_), Err(_)) => return Vec::new(),
        (Ok(()), Err(why)) => return vec![format!("only ours refuses: {why}")],
        // Smaller devices are taken here than there.
        (Err(_), Ok(())) => Vec::new(),
    };
    if theirs.is_ok() && !found.is_empty() {
        found.truncate(MOST_SHOWN);
        found.extend(line_differences(&dumpe2fs(&a), &dumpe2fs(&b)));
    }
    if len >= FSCK_MAX {
        return found;
    }
    found.extend(complaints(&b));
    found
}

/// Memory if there is some, so that large sparse images cost nothing.
fn scratch() -> &'static Path {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() { shm } else { Path::new("/tmp") }
}
