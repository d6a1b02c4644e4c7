//! The commands that write, and a mount that programs write to.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use rustix::fs::{XattrFlags, setxattr};
use uext4_testkit::{is_root, said, unmount_lazily, while_busy};

/// How long a command, or all that is done to a mount, may take.
const SECONDS_MAX: u64 = 20;

/// A command that writes.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// Its words; `IMAGE` stands for the image, `FILE` and `SCRIPT` for files of the host.
    words: &'static [&'static str],
    /// The files that it changes or takes away.
    pub changes: &'static [&'static str],
}

const fn writer(words: &'static [&'static str], changes: &'static [&'static str]) -> Writer {
    Writer { words, changes }
}

/// What `script` does in one opening of the image.
pub const SCRIPT: &str = "mkdir \"/a directory\"\n\
    mv \"/files/file 15\" \"/a directory/moved\"\n\
    ln \"/files/file 18\" /linked\n\
    truncate -s 10 \"/files/file 16\"\n\
    chmod 600 \"/files/file 19\"\n\
    setfattr -n user.new -v value /large\n\
    rm \"/files/file 14\"\n\
    touch /touched\n\
    sync\n\
    mv /touched \"/a directory/touched\"\n";

/// What both `script` and the programs of a mount change or take away.
const CHANGED: &[&str] = &["/files/file 14", "/files/file 16"];

pub const WRITERS: &[Writer] = &[
    writer(&["put", "IMAGE", "FILE", "/put"], &[]),
    writer(&["rm", "IMAGE", "/files/file 14"], &["/files/file 14"]),
    writer(&["mkdir", "IMAGE", "/made"], &[]),
    writer(&["mv", "IMAGE", "/files/file 15", "/moved"], &[]),
    writer(
        &["truncate", "-s", "10", "IMAGE", "/files/file 16"],
        &["/files/file 16"],
    ),
    writer(&["grow", "IMAGE", "+2M"], &[]),
    writer(&["shrink", "IMAGE", "--min"], &[]),
    writer(&["tune", "-L", "other", "IMAGE"], &[]),
    writer(
        &[
            "quota", "-u", "--set", "1000", "900M", "1G", "0", "0", "IMAGE",
        ],
        &[],
    ),
    writer(&["dedup-xattrs", "IMAGE"], &[]),
    writer(&["trim", "IMAGE"], &[]),
    writer(
        &["put", "--overwrite", "IMAGE", "FILE", "/files/file 17"],
        &["/files/file 17"],
    ),
    writer(
        &["rm", "-r", "IMAGE", "/deep/a/directory 5"],
        &["/deep/a/directory 5/file", "/deep/a/directory 5"],
    ),
    writer(&["mount", "IMAGE", "POINT"], CHANGED),
    writer(
        &["script", "--keep-going", "-f", "SCRIPT", "IMAGE"],
        CHANGED,
    ),
];

impl Writer {
    /// What it is called.
    pub fn name(&self) -> String {
        self.words.join(" ")
    }

    /// Whether this machine can run it.
    pub fn is_possible(&self) -> bool {
        self.words[0] != "mount" || is_root() && Path::new("/dev/fuse").exists()
    }

    /// Runs it within its limits, on files of this directory.
    ///
    /// # Errors
    /// What it said if it crashed or did not end.
    pub fn write(&self, dir: &Path) -> Result<(), String> {
        let mut command = Command::new("timeout");
        let seconds = SECONDS_MAX.to_string();
        command.args(["-s", "KILL", &seconds]);
        command.args(["prlimit", "--data=1073741824", "--core=0"]);
        command.arg(env!("CARGO_BIN_EXE_uext4"));
        for word in self.words {
            match *word {
                "IMAGE" | "FILE" | "SCRIPT" | "POINT" => command.arg(dir.join(word)),
                word => command.arg(word),
            };
        }
        let output = command.output().unwrap();
        sound(&output)?;
        match self.words[0] {
            "mount" if output.status.success() => use_mount(&dir.join("POINT")),
            _ => Ok(()),
        }
    }
}

/// Whether a command came to an end by itself.
fn sound(output: &Output) -> Result<(), String> {
    match output.status.code() {
        None | Some(101 | 124 | 134 | 137) => Err(said(output)),
        _ => Ok(()),
    }
}

/// Unmounted when dropped, whatever became of it.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        unmount_lazily(self.0);
    }
}

/// Does to a mount what programs do, and unmounts it.
fn use_mount(point: &Path) -> Result<(), String> {
    let guard = Mounted(point);
    let start = Instant::now();
    for done in [
        fs::write(point.join("made"), vec![0x5A; 30_000]),
        fs::create_dir(point.join("a directory")),
        fs::rename(point.join("files/file 15"), point.join("a directory/moved")),
        fs::hard_link(point.join("files/file 18"), point.join("linked")),
        truncate(&point.join("files/file 16")),
        fs::set_permissions(point.join("files/file 19"), Permissions::from_mode(0o600)),
        setxattr(
            point.join("large"),
            "user.new",
            b"value",
            XattrFlags::empty(),
        )
        .map_err(io::Error::from),
        fs::remove_file(point.join("files/file 14")),
        walk(point, 0),
        fs::rename(point.join("made"), point.join("a directory/made")),
    ] {
        // Errors are those of the image, but for the one of a server that is gone.
        if let Err(error) = done
            && error.kind() == io::ErrorKind::NotConnected
        {
            return Err(format!("the daemon is gone: {error}"));
        }
    }
    let umount = &mut Command::new(env!("CARGO_BIN_EXE_uext4"));
    sound(&while_busy(umount.arg("umount").arg(point)))?;
    drop(guard);
    let elapsed = start.elapsed();
    match elapsed < Duration::from_secs(SECONDS_MAX) {
        true => Ok(()),
        false => Err(format!("{elapsed:?}")),
    }
}

fn truncate(path: &Path) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.set_len(10)?;
    file.sync_all()
}

/// Reads a tree, as far as it can be read.
fn walk(dir: &Path, depth: u32) -> io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten().take(1000) {
        let path = entry.path();
        match entry.file_type()? {
            kind if kind.is_dir() && depth < 8 => _ = walk(&path, depth + 1),
            kind if kind.is_file() => _ = fs::read(&path),
            _ => {}
        }
    }
    Ok(())
}
