//! The process that unmounts when a daemon in its sandbox is told to end.
//!
//! ```text
//! daemon  ──"end"──▶  uext4 umount --when-told DIR      mounts and unmounts, or has fusermount3 do it
//!         ◀── it ends: so did the mount                 reads no image
//! ```
//! A daemon that ends otherwise leaves it alone: it ends as well, and does nothing.

use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use uext4_fuse::mount::Mounted;

/// What tells `umount` to wait.
pub const FLAG: &str = "--when-told";
/// What it waits for.
const END: &[u8] = b"end";

/// What ends a mount.
#[derive(Debug)]
pub enum Unmounter {
    /// This process.
    Own(Mounted),
    /// The one beside it.
    Beside(Child),
}

impl Unmounter {
    /// The process beside this one.
    ///
    /// # Errors
    /// Those of starting it.
    pub fn beside(mounted: &Mounted) -> io::Result<Self> {
        let child = Command::new(std::env::current_exe()?)
            .args(["umount", FLAG, "--"])
            .arg(mounted.dir())
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // A signal from the terminal is not for it.
            .process_group(0)
            .spawn()?;
        Ok(Self::Beside(child))
    }

    /// Unmounts. Whoever still uses it gets errors from now on.
    pub fn end(&mut self) {
        match self {
            Self::Own(mounted) => _ = mounted.end(),
            Self::Beside(child) => {
                if let Some(mut stdin) = child.stdin.take() {
                    _ = stdin.write_all(END);
                }
                _ = child.wait();
            }
        }
    }
}

/// Waits for the word, and unmounts.
pub fn wait(dir: &Path) {
    // As it is now: by then another may be on top.
    let mounted = Mounted::at(dir);
    let mut told = Vec::new();
    let read = io::stdin()
        .take(END.len() as u64 + 1)
        .read_to_end(&mut told);
    if read.is_ok() && told == END {
        _ = mounted.end();
    }
}
