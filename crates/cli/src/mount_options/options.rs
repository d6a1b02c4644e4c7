//! What `mount -o` sets.

use std::path::PathBuf;

use rustix::mount::MountFlags;
use uext4::OpenOptions;
use uext4::tuning::AccessTimes;
use uext4_fuse::owners::Owners;
use uext4_fuse::session::PAYLOADS_MAX;
use uext4_fuse::writeback_cache::WritebackCache;
use uext4_fuse::{Placement, SyncPolicy, Transport};

/// Whether extended attributes are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Xattrs {
    /// Always.
    #[default]
    Served,
    /// Never; an image that holds some is not mounted.
    Omitted,
    /// Unless the mount is read-only and the image is known to hold none.
    Auto,
    /// Never, whatever the image holds.
    Hidden,
}

/// What was asked for.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Not one byte of the image is written.
    pub read_only: bool,
    /// What every mount has.
    pub flags: MountFlags,
    /// Users other than the one who mounts may use it.
    pub allow_other: bool,
    /// What is mounted already is to be changed.
    pub remount: bool,
    /// What is in the directory may be hidden.
    pub nonempty: bool,
    /// Threads that read requests; `None`: as many as are right.
    pub threads: Option<usize>,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// Where requests are served.
    pub placement: Placement,
    /// Whether the kernel gathers what is written.
    pub writeback_cache: WritebackCache,
    /// The limit in bytes for the contents of requests and the data of waiting writers.
    pub payloads: usize,
    /// Where a superblock is read in place of the first, in units of 1 KiB.
    pub superblock_kib: Option<u64>,
    /// The log must have checksums.
    pub needs_log_checksums: bool,
    /// The option that asks for quotas, where one does.
    pub quota: Option<String>,
    /// Whose files are shown.
    pub owners: Owners,
    /// Whether extended attributes are served.
    pub xattrs: Xattrs,
    /// Whether opening a file is a request.
    pub opens: bool,
    /// A file that statistics are written to, every few seconds.
    pub metrics: Option<PathBuf>,
    /// The daemon gives up what it does not need.
    pub sandbox: bool,
    /// The directory is made if it is missing, with this mode.
    pub make_directory: Option<u32>,
    /// What to say of options that were taken and have no effect.
    pub notes: Vec<String>,
    /// Options of the engine.
    pub engine: OpenOptions,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            // As every FUSE mount has them: an image is untrusted input.
            flags: MountFlags::NOSUID | MountFlags::NODEV,
            allow_other: false,
            remount: false,
            nonempty: false,
            threads: None,
            transport: Transport::Auto,
            placement: Placement::Auto,
            writeback_cache: WritebackCache::Auto,
            payloads: PAYLOADS_MAX,
            superblock_kib: None,
            needs_log_checksums: false,
            quota: None,
            owners: Owners::default(),
            xattrs: Xattrs::default(),
            opens: true,
            metrics: None,
            sandbox: true,
            make_directory: None,
            notes: Vec::new(),
            engine: OpenOptions::default(),
        }
    }
}

impl MountOptions {
    pub(super) fn set_quota(&mut self, option: Option<&str>) {
        self.engine.quota_limits = option.is_some();
        self.quota = option.map(str::to_owned);
    }

    pub(super) fn set_read_only(&mut self, on: bool) {
        self.read_only = on;
        self.flags.set(MountFlags::RDONLY, on);
    }

    /// Which times of access are noted.
    pub fn access_times(&self) -> AccessTimes {
        match self.flags {
            flags if flags.contains(MountFlags::NOATIME) => AccessTimes::None,
            flags if flags.contains(MountFlags::STRICTATIME) => AccessTimes::Strict,
            _ => AccessTimes::Relative,
        }
    }

    /// What is durable before a program goes on.
    pub fn sync_policy(&self) -> SyncPolicy {
        match self.flags {
            flags if flags.contains(MountFlags::SYNCHRONOUS) => SyncPolicy::All,
            flags if flags.contains(MountFlags::DIRSYNC) => SyncPolicy::Names,
            _ => SyncPolicy::OnDemand,
        }
    }
}
