//! The subjects that are measured: file systems that can be mounted on a directory, each with an
//! image or a tree of its own on tmpfs.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Resource;
use tempfile::TempDir;

/// The command that is measured.
const UEXT4: &str = env!("CARGO_BIN_EXE_uext4");
/// Bytes of the images, which are sparse.
const IMAGE: &str = "12G";
/// The budget that ours is given: what it takes by itself from 8 GiB of memory on.
pub const BUDGET_MIB: f64 = 1024.0;

/// How the kernel and a daemon talk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Dev,
    Ring,
}

impl Transport {
    /// What `-o transport=` calls it.
    fn name(self) -> &'static str {
        match self {
            Self::Dev => "dev",
            Self::Ring => "io_uring",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Kernel,
    Ours(Transport),
    /// Over `/dev/fuse`, with the kernel's write-back cache.
    OursGathering,
    Ceiling(Transport),
    CeilingGathering,
    Passthrough(Transport),
    Fuse2fs,
}

pub const ALL: [Subject; 10] = [
    Subject::Kernel,
    Subject::Ours(Transport::Dev),
    Subject::Ours(Transport::Ring),
    Subject::OursGathering,
    Subject::Ceiling(Transport::Dev),
    Subject::Ceiling(Transport::Ring),
    Subject::CeilingGathering,
    Subject::Passthrough(Transport::Dev),
    Subject::Passthrough(Transport::Ring),
    Subject::Fuse2fs,
];

impl Subject {
    pub fn name(self) -> &'static str {
        match self {
            Self::Kernel => "kernel",
            Self::Ours(Transport::Dev) => "uext4-dev",
            Self::Ours(Transport::Ring) => "uext4-ring",
            Self::OursGathering => "uext4-gathering",
            Self::CeilingGathering => "ceiling-gathering",
            Self::Ceiling(Transport::Dev) => "ceiling-dev",
            Self::Ceiling(Transport::Ring) => "ceiling-ring",
            Self::Passthrough(Transport::Dev) => "passthrough-dev",
            Self::Passthrough(Transport::Ring) => "passthrough-ring",
            Self::Fuse2fs => "fuse2fs",
        }
    }

    /// Why it cannot be measured here, if so.
    pub fn missing(self) -> Option<String> {
        let transport = match self {
            Self::Kernel | Self::Fuse2fs | Self::OursGathering | Self::CeilingGathering => {
                Transport::Dev
            }
            Self::Ours(transport) | Self::Ceiling(transport) | Self::Passthrough(transport) => {
                transport
            }
        };
        let switch = "/sys/module/fuse/parameters/enable_uring";
        let is_on = fs::read_to_string(switch).is_ok_and(|text| text.trim() == "Y");
        if transport == Transport::Ring && !is_on {
            return Some(format!("{switch} is not Y"));
        }
        let program = self.program()?;
        let found = Command::new(&program)
            .arg("--help")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .stdin(Stdio::null())
            .status();
        found.is_err().then(|| format!("no {}", program.display()))
    }

    /// The server, if it is not the kernel.
    fn program(self) -> Option<PathBuf> {
        match self {
            Self::Kernel => None,
            Self::Ours(_) | Self::OursGathering => Some(UEXT4.into()),
            Self::Ceiling(_) | Self::CeilingGathering => {
                Some(Path::new(UEXT4).with_file_name("examples/ceiling"))
            }
            Self::Passthrough(_) => {
                let named = std::env::var_os("UEXT4_PASSTHROUGH_HP");
                Some(named.unwrap_or_else(|| "passthrough_hp".into()).into())
            }
            Self::Fuse2fs => Some("fuse2fs".into()),
        }
    }

    /// Whether it keeps an image, which e2fsck can judge.
    pub fn has_image(self) -> bool {
        matches!(
            self,
            Self::Kernel | Self::Ours(_) | Self::OursGathering | Self::Fuse2fs
        )
    }

    /// How many files it can have. Passthrough keeps a descriptor open for each that the kernel
    /// knows.
    pub fn most_files(self) -> usize {
        match self {
            Self::Passthrough(_) => {
                let limit = rustix::process::getrlimit(Resource::Nofile).maximum;
                limit.map_or(usize::MAX, |limit| (limit as usize).saturating_sub(100))
            }
            _ => usize::MAX,
        }
    }

    /// The command that serves it until it is unmounted; none if the kernel does.
    fn serve(self, image: &str, tree: &str, point: &str) -> Option<Command> {
        let mut command = Command::new(self.program()?);
        match self {
            Self::Kernel => return None,
            Self::Ours(transport) => {
                let transport = transport.name();
                let options = format!("rw,memory={BUDGET_MIB}M,transport={transport}");
                command.args(["mount", "-f", "-o", &options, image, point]);
            }
            Self::OursGathering => {
                let options = format!("rw,memory={BUDGET_MIB}M,transport=dev,writeback_cache=on");
                command.args(["mount", "-f", "-o", &options, image, point]);
            }
            Self::Ceiling(transport) => _ = command.args([point, transport.name()]),
            Self::CeilingGathering => {
                command.args([point, "dev", "auto", "writeback_cache"]);
            }
            Self::Passthrough(transport) => {
                command.args(["--foreground", tree, point]);
                if transport == Transport::Ring {
                    command.args(["-o", "io_uring"]);
                }
            }
            Self::Fuse2fs => _ = command.args(["-f", "-o", "rw", image, point]),
        }
        Some(command)
    }
}

/// Runs a command that must succeed, and hands on what it printed.
pub fn run(program: &str, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.lines().next().unwrap_or_default();
        return Err(format!("{program} {}: {said}", args.join(" ")));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A fresh file system, mounted; unmounted and judged by [`Mounted::end`].
pub struct Mounted {
    subject: Subject,
    daemon: Option<Child>,
    is_mounted: bool,
    dir: TempDir,
}

impl Mounted {
    pub fn new(subject: Subject) -> Result<Self, String> {
        let dir = tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string())?;
        let mut mounted = Self {
            subject,
            daemon: None,
            is_mounted: false,
            dir,
        };
        for name in ["mnt", "tree"] {
            let made = fs::create_dir(mounted.dir.path().join(name));
            made.map_err(|error| error.to_string())?;
        }
        let (image, point) = (mounted.text("image"), mounted.text("mnt"));
        if subject.has_image() {
            run("mke2fs", &["-q", "-F", "-t", "ext4", &image, IMAGE])?;
        }
        match subject.serve(&image, &mounted.text("tree"), &point) {
            None => _ = run("mount", &["-t", "ext4", "-o", "loop", &image, &point])?,
            Some(mut command) => {
                command.stdin(Stdio::null()).stdout(Stdio::null());
                let daemon = command.spawn();
                let named = |error| format!("{}: {error}", subject.name());
                mounted.daemon = Some(daemon.map_err(named)?);
                mounted.wait_until_served()?;
            }
        }
        mounted.is_mounted = true;
        Ok(mounted)
    }

    fn text(&self, name: &str) -> String {
        let path = self.dir.path().join(name);
        path.to_str().unwrap().to_owned()
    }

    /// Where it is mounted.
    pub fn point(&self) -> PathBuf {
        self.dir.path().join("mnt")
    }

    fn wait_until_served(&mut self) -> Result<(), String> {
        let above = fs::metadata(self.dir.path()).map_err(|error| error.to_string())?;
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            let point = fs::metadata(self.point());
            if point.is_ok_and(|point| point.dev() != above.dev()) {
                return Ok(());
            }
            if let Some(daemon) = &mut self.daemon
                && let Ok(Some(status)) = daemon.try_wait()
            {
                return Err(format!("ended at once: {status}"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Err("not mounted after 10 s".to_owned())
    }

    /// The most memory that was resident so far, MiB; none if the kernel does it.
    pub fn peak_mib(&self) -> Option<f64> {
        let status = format!("/proc/{}/status", self.daemon.as_ref()?.id());
        let status = fs::read_to_string(status).ok()?;
        let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
        let kib: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib / 1024.0)
    }

    fn unmount(&mut self) -> Result<(), String> {
        if !self.is_mounted {
            return Ok(());
        }
        run("umount", &[&self.text("mnt")])?;
        self.is_mounted = false;
        if let Some(mut daemon) = self.daemon.take() {
            // It ends when all is written.
            let status = daemon.wait().map_err(|error| error.to_string())?;
            // fuse2fs ends with what FUSE's loop returned.
            if !status.success() && self.subject != Subject::Fuse2fs {
                return Err(format!("ended with {status}"));
            }
        }
        Ok(())
    }

    /// Unmounts, and returns how long it took until everything was written; the image must be
    /// clean.
    pub fn end(mut self) -> Result<f64, String> {
        let begun = Instant::now();
        self.unmount()?;
        let seconds = begun.elapsed().as_secs_f64();
        if self.subject.has_image() {
            run("e2fsck", &["-f", "-n", &self.text("image")])?;
        }
        Ok(seconds)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Nothing can be done about what fails here.
        if self.unmount().is_err() && self.is_mounted {
            // In use: else it stays with its memory and its loop device.
            _ = run("umount", &["-l", &self.text("mnt")]);
        }
        if let Some(daemon) = &mut self.daemon {
            _ = daemon.kill();
            _ = daemon.wait();
        }
    }
}
