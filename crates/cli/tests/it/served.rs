//! A mount whose daemon is a child of the test: it can be killed, and what it ends with is seen.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use crate::host::{UEXT4, text, unmount, unmount_lazily};
use crate::transport::Transport;

/// True if images can be mounted with FUSE and by the kernel; else says that the test is skipped.
pub fn can_serve() -> bool {
    let possible = crate::host::can_mount() && Path::new("/dev/fuse").exists();
    if !possible {
        println!("skipped: needs /dev/fuse");
    }
    possible
}

/// The process in the background that serves an image.
pub fn daemon_of(image: &Path) -> String {
    let found = fs::read_dir("/proc").unwrap().flatten().find(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("--in-background") && line.contains(text(image))
    });
    found.unwrap().file_name().into_string().unwrap()
}

/// Unmounted when dropped.
pub struct Served {
    child: Option<Child>,
    dir: PathBuf,
}

impl Served {
    /// Mounts on a directory over a transport, and returns when it is mounted.
    pub fn over(transport: Transport, image: &Path, dir: &Path, options: &str) -> Self {
        let options = transport.with(options);
        let served = transport.mount(|| Self::new(image, dir, &options));
        let daemon = served.child.as_ref().unwrap().id();
        transport.assert_serves(&daemon.to_string());
        served
    }

    /// Mounts on a directory, and returns when it is mounted.
    pub fn new(image: &Path, dir: &Path, options: &str) -> Self {
        let mut command = Command::new(UEXT4);
        command.args(["mount", "-f", "-o", options, text(image), text(dir)]);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let mut served = Self {
            child: Some(child),
            dir: dir.to_owned(),
        };
        let outside = fs::metadata(dir.parent().unwrap()).unwrap().dev();
        let end = Instant::now() + Duration::from_secs(60);
        while fs::metadata(dir).map_or(outside, |found| found.dev()) == outside {
            let ended = served.child.as_mut().unwrap().try_wait().unwrap();
            assert!(
                ended.is_none() && Instant::now() < end,
                "not mounted: {ended:?}"
            );
            std::thread::sleep(Duration::from_millis(2));
        }
        served
    }

    /// The daemon's number.
    pub fn daemon(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    /// Kills the daemon, as it is; the mount stays, and answers nothing.
    pub fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Unmounts, and returns how the daemon ended.
    pub fn end(mut self) -> ExitStatus {
        unmount("umount", &[text(&self.dir)]);
        self.child.take().unwrap().wait().unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // Nothing can be done about what fails here.
        if let Some(child) = &mut self.child {
            _ = child.kill();
            _ = child.wait();
        }
        unmount_lazily(&self.dir);
    }
}
