//! What e2fsck says of a mutant, and what it makes of it.

use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::panic::catch_unwind;
use std::path::Path;
use std::process::{Command, Stdio};

use tempfile::NamedTempFile;
use uext4_ondisk::features::{Compat, Incompat, RoCompat};
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use zerocopy::FromBytes;

use crate::damage::{Contents, Survey};

/// Seconds after which e2fsck is stopped.
const SECONDS_MAX: &str = "60";
/// Bytes that e2fsck may say.
const SAID_MAX: u64 = 1 << 20;
/// Runs of `e2fsck -fy` after which an image is clean, or never will be.
const RUNS_MAX: u32 = 4;
/// What e2fsck 1.47.0 says where its own replay of fast commits has changed the superblock's counts
/// and left the checksum as it was: neither this run nor another gets any further.
const REOPENED: &str = "Superblock checksum does not match superblock while trying to re-open";

/// What e2fsck says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Says {
    /// It has no objection.
    Clean,
    /// It mentions something, and ends as if it were clean.
    Mentions,
    /// It objects; its first complaints.
    Objects(String),
    /// It crashed, or did not end.
    Nothing,
}

/// How a run of e2fsck ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    /// What it said, but for what it says of every image.
    said: Vec<String>,
}

/// Runs e2fsck on an image; it may complain for ever.
fn e2fsck(image: &Path, options: &str) -> Ended {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", SECONDS_MAX, "e2fsck", options]);
    command.arg(image).stdin(Stdio::null());
    let (reader, writer) = std::io::pipe().unwrap();
    command.stdout(writer.try_clone().unwrap()).stderr(writer);
    let mut child = command.spawn().unwrap();
    // With it the ends of the pipe that this process holds are closed.
    drop(command);
    let mut text = Vec::new();
    reader.take(SAID_MAX).read_to_end(&mut text).unwrap();
    let status = child.wait().unwrap();
    let is_stopped = text.len() as u64 == SAID_MAX;
    // 137 is what `timeout` ends with where it killed.
    let code = status.code().filter(|&code| code < 128);
    let text = String::from_utf8_lossy(&text);
    let path = image.display().to_string();
    let said = text.lines().map(|line| line.trim().replace(&path, "IMAGE"));
    Ended {
        code: if is_stopped { Some(4) } else { code },
        said: said.filter(|line| !is_frame(line)).collect(),
    }
}

/// Whether e2fsck says this of images without damage, too.
fn is_frame(line: &str) -> bool {
    let starts = [
        "exit status",
        "Pass ",
        "e2fsck 1",
        "Fix? no",
        "Warning: skipping journal recovery",
        "IMAGE: recovering journal",
        "IMAGE: Clearing orphaned inode",
        "IMAGE: Truncating orphaned inode",
        "IMAGE: clean,",
    ];
    let is_summary = line.starts_with("IMAGE: ") && line.contains(" files (");
    line.is_empty() || is_summary || starts.iter().any(|start| line.starts_with(start))
}

impl Ended {
    fn says(self) -> Says {
        let said = || self.said[..self.said.len().min(3)].join("; ");
        match self.code {
            Some(0) if self.said.is_empty() => Says::Clean,
            Some(0) => Says::Mentions,
            Some(_) => Says::Objects(said()),
            None => Says::Nothing,
        }
    }

    /// Whether it has left a superblock that it does not take itself.
    fn is_stale(&self) -> bool {
        self.said.iter().any(|line| line.contains(REOPENED))
    }
}

/// Asks e2fsck, in a file of its own.
#[derive(Debug)]
pub struct Oracle {
    file: NamedTempFile,
}

impl Default for Oracle {
    fn default() -> Self {
        Self::new()
    }
}

impl Oracle {
    /// With a file in memory, where there is room.
    #[track_caller]
    pub fn new() -> Self {
        let memory = Path::new("/dev/shm");
        let file = match memory.is_dir() {
            true => NamedTempFile::new_in(memory),
            false => NamedTempFile::new(),
        };
        Self {
            file: file.unwrap(),
        }
    }

    /// Where the image is that was written last.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// Writes an image, its zeroes as holes.
    #[track_caller]
    pub fn write(&self, image: &[u8]) {
        let file: &File = self.file.as_file();
        file.set_len(0).unwrap();
        file.set_len(image.len() as u64).unwrap();
        for (chunk, at) in image.chunks(1 << 16).zip((0..).step_by(1 << 16)) {
            if chunk.iter().any(|&byte| byte != 0) {
                file.write_all_at(chunk, at).unwrap();
            }
        }
    }

    /// Repairs the image in the file once. A checksum that e2fsck has made wrong itself is made
    /// right, and it runs again.
    fn mended(&self) -> Ended {
        let ended = e2fsck(self.path(), "-fy");
        if !ended.is_stale() || self.sum_superblock().is_none() {
            return ended;
        }
        e2fsck(self.path(), "-fy")
    }

    /// Makes the checksum of the superblock right, where fast commits may have been replayed.
    #[track_caller]
    fn sum_superblock(&self) -> Option<()> {
        let mut bytes = [0; 1024];
        let file = self.file.as_file();
        file.read_exact_at(&mut bytes, SUPERBLOCK_OFFSET).unwrap();
        let (sb, _) = SuperBlock::mut_from_prefix(&mut bytes).ok()?;
        if !sb.features().compat.contains(Compat::FAST_COMMIT) {
            return None;
        }
        sb.update_checksum();
        file.write_all_at(&bytes, SUPERBLOCK_OFFSET).unwrap();
        Some(())
    }

    /// What `e2fsck -fn` says of an image.
    #[track_caller]
    pub fn examined(&self, image: &[u8]) -> Says {
        self.write(image);
        e2fsck(self.path(), "-fn").says()
    }

    /// What e2fsck says once it has replayed the log and deleted the orphans, as every mount does
    /// before anything is read: with `-n` it leaves both, and finds what they would have completed.
    /// `None` if nothing is to be completed.
    #[track_caller]
    pub fn settled(&self, image: &[u8]) -> Option<Says> {
        let (sb, _) = SuperBlock::read_from_prefix(&image[1024..]).ok()?;
        let features = sb.features();
        let is_live = features.incompat.contains(Incompat::RECOVER)
            || features.ro_compat.contains(RoCompat::ORPHAN_PRESENT)
            || sb.s_last_orphan.get() != 0;
        if !is_live {
            return None;
        }
        self.write(image);
        let first = e2fsck(self.path(), "-p");
        let is_done = matches!(first.code, Some(0 | 1)) && first.said.is_empty();
        Some(match is_done {
            true => e2fsck(self.path(), "-fn").says(),
            // Its replay of fast commits has written descriptors and bitmaps anew, whatever they
            // and their copies in the log were: it says nothing of these.
            false if first.is_stale() => Says::Nothing,
            false => Says::Objects(first.said.join("; ")),
        })
    }

    /// Repairs an image by `e2fsck -fy`, with as many runs as it needs.
    #[track_caller]
    pub fn repaired(&self, image: &[u8]) -> Repaired {
        self.write(image);
        let is_clean = (0..RUNS_MAX).any(|_| {
            let ended = self.mended();
            ended.code == Some(0) || e2fsck(self.path(), "-fn").code == Some(0)
        });
        if !is_clean {
            return Repaired::Never;
        }
        // It may have written far behind the end, which makes the file long and is no part of it.
        let mut repaired = vec![0; image.len()];
        let file = File::open(self.path()).unwrap();
        file.read_exact_at(&mut repaired, 0).unwrap();
        match contents(repaired) {
            Ok(contents) => Repaired::Clean(contents),
            Err(why) => Repaired::Unread(why),
        }
    }
}

/// What `e2fsck -fy` makes of an image.
#[derive(Debug)]
pub enum Repaired {
    /// A clean image with these files.
    Clean(Contents),
    /// One that cannot be read by the survey of the tests; why.
    Unread(String),
    /// None that is clean.
    Never,
}

/// What the files of an image hold.
///
/// # Errors
/// The words of the panic, if the survey cannot read it.
pub fn contents(image: Vec<u8>) -> Result<Contents, String> {
    let contents = catch_unwind(|| Contents::new(&Survey::new(image)));
    contents.map_err(|panic| match panic.downcast_ref::<String>() {
        Some(words) => words.clone(),
        None => "the survey panicked".to_owned(),
    })
}
