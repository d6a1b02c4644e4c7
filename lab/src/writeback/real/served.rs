//! A mount of ours in a process of its own, with any design of throttling.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use uext4_testkit::try_run;

use super::disk::Disk;
use super::events::{Event, NAMES, our_events};

/// How long mounting and unmounting may take.
const PATIENCE: Duration = Duration::from_secs(60);
/// Where root's mounts have their sockets.
const SOCKETS: &str = "/run/uext4";

/// The mount; unmounted when dropped.
#[derive(Debug)]
pub struct Served {
    child: Child,
    dir: PathBuf,
    trace: PathBuf,
    /// About when the clock of its trace began.
    pub began: Instant,
}

fn text(error: impl ToString) -> String {
    error.to_string()
}

fn device_of(dir: &Path) -> Result<u64, String> {
    Ok(fs::metadata(dir).map_err(text)?.dev())
}

impl Served {
    /// Mounts a disk with this design of throttling, above `limit` bytes of dirty data. Its trace
    /// is written to the file `trace`.
    ///
    /// # Errors
    /// Why it is not mounted: what the process printed.
    pub fn new(disk: &Disk, policy: &str, limit: u64, trace: &Path) -> Result<Self, String> {
        let before = device_of(disk.dir())?;
        let began = Instant::now();
        let child = Command::new(std::env::current_exe().map_err(text)?)
            .args(["mount", "--policy", &format!("writeback={policy}")])
            .args(["--trace", &NAMES.join(",")])
            .args(["-o", &format!("dirty_bytes={limit}")])
            .args(["-o", &format!("dirty_background_bytes={}", limit / 2)])
            .args([disk.device(), disk.dir()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(trace).map_err(text)?)
            .spawn();
        let mut served = Self {
            child: child.map_err(text)?,
            dir: disk.dir().to_owned(),
            trace: trace.to_owned(),
            began,
        };
        disk.enter(served.child.id())?;
        while device_of(&served.dir)? == before {
            let has_ended = !matches!(served.child.try_wait(), Ok(None));
            if has_ended || began.elapsed() > PATIENCE {
                return Err(format!("not mounted: {}", served.printed()));
            }
            thread::sleep(Duration::from_millis(2));
        }
        Ok(served)
    }

    fn printed(&self) -> String {
        let bytes = fs::read(&self.trace).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// Where it is asked how it does.
    ///
    /// # Errors
    /// Why the mount cannot be looked at.
    pub fn socket(&self) -> Result<PathBuf, String> {
        let device = device_of(&self.dir)?;
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        Ok(Path::new(SOCKETS).join(format!("{major}:{minor}")))
    }

    /// Unmounts, waits until everything is written, and returns what it traced.
    ///
    /// # Errors
    /// How unmounting failed, or what the mount reported at its end.
    pub fn end(mut self) -> Result<Vec<Event>, String> {
        try_run("umount", [&self.dir])?;
        let began = Instant::now();
        loop {
            match self.child.try_wait().map_err(text)? {
                Some(status) if status.success() => return Ok(our_events(&self.printed())),
                Some(status) => return Err(format!("{status}: {}", self.printed())),
                None if began.elapsed() > PATIENCE => return Err("it does not end".to_owned()),
                None => thread::sleep(Duration::from_millis(2)),
            }
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            _ = try_run("umount", ["-l".as_ref(), self.dir.as_os_str()]);
            _ = self.child.kill();
        }
        _ = self.child.wait();
    }
}

/// Bytes that the mount behind a socket has dirty or under writeback.
///
/// # Errors
/// Why it did not answer.
pub fn dirty_bytes(socket: &Path) -> Result<u64, String> {
    let mut stream = UnixStream::connect(socket).map_err(text)?;
    stream.write_all(b"metrics\n").map_err(text)?;
    let mut page = String::new();
    stream.read_to_string(&mut page).map_err(text)?;
    let value = |line: &str| {
        let rest = line.strip_prefix("uext4_page_bytes{state=\"")?;
        let (state, value) = rest.split_once("\"} ")?;
        let is_unwritten = matches!(state, "dirty" | "writeback");
        is_unwritten
            .then(|| value.trim().parse::<f64>().ok())
            .flatten()
    };
    let values: Vec<f64> = page.lines().filter_map(value).collect();
    match values.len() {
        2 => Ok(values.iter().sum::<f64>() as u64),
        _ => Err(format!(
            "{}: no dirty pages among its metrics",
            socket.display()
        )),
    }
}
