//! The options that the command itself knows; the engine has tables of its own.

use rustix::mount::MountFlags;
use uext4_fuse::owners::IdRange;
use uext4_fuse::writeback_cache::WritebackCache;
use uext4_fuse::{Placement, Transport};
use uext4_tunables::{Tunable, switch};

use crate::args::parse_size;
use crate::mount_options::options::{MountOptions, Xattrs};

type MountTunable = Tunable<MountOptions>;

/// The tables, each with its subject.
pub const ALL: [(&str, &[MountTunable]); 4] = [
    ("Every mount", MOUNT),
    ("The file system", FILE_SYSTEM),
    ("Owners", OWNERS),
    ("The program", PROGRAM),
];

/// An option that clears a flag, or with `no` before it sets the flag.
macro_rules! cleared {
    ($name:literal, $flag:ident, $help:literal) => {
        Tunable::switch(
            $name,
            $help,
            |options| !options.flags.contains(MountFlags::$flag),
            |options, on| options.flags.set(MountFlags::$flag, !on),
        )
    };
}

const MOUNT: &[MountTunable] = &[
    Tunable::flag(
        "ro",
        "Write nothing: a journal that must be replayed is replayed in memory",
        |options| options.set_read_only(true),
    ),
    Tunable::flag("rw", "Write, which is the default", |options| {
        options.set_read_only(false);
    }),
    Tunable::flag(
        "remount",
        "Change a mount: ro, rw and the switches of this section, by root",
        |options| options.remount = true,
    ),
    cleared!("suid", NOSUID, "Honor set-id bits; only root can allow it"),
    cleared!("dev", NODEV, "Honor device nodes; only root can allow it"),
    cleared!("exec", NOEXEC, "Execute programs"),
    Tunable::switch(
        "atime",
        "Note times of access, as relatime does",
        |options| !options.flags.contains(MountFlags::NOATIME),
        |options, on| set_times(options, if on { NO_FLAG } else { MountFlags::NOATIME }),
    ),
    Tunable::switch(
        "relatime",
        "Note the first access after a change, and one a day",
        |options| {
            !options
                .flags
                .intersects(TIMES.difference(MountFlags::RELATIME))
        },
        |options, on| set_times(options, if on { MountFlags::RELATIME } else { NO_FLAG }),
    ),
    Tunable::switch(
        "strictatime",
        "Note every access",
        |options| options.flags.contains(MountFlags::STRICTATIME),
        |options, on| set_times(options, if on { MountFlags::STRICTATIME } else { NO_FLAG }),
    ),
    cleared!(
        "diratime",
        NODIRATIME,
        "Note times of access of directories"
    ),
    Tunable::flag(
        "sync",
        "Every change is durable when the call returns",
        |options| options.flags.insert(MountFlags::SYNCHRONOUS),
    ),
    Tunable::flag(
        "async",
        "Changes are durable later, which is the default",
        |options| {
            options.flags.remove(MountFlags::SYNCHRONOUS);
        },
    ),
    Tunable::switch(
        "dirsync",
        "Changes of names are durable when the call returns",
        |options| options.flags.contains(MountFlags::DIRSYNC),
        |options, on| options.flags.set(MountFlags::DIRSYNC, on),
    ),
    Tunable::flag(
        "allow_other",
        "Users other than the one who mounts have access",
        |options| options.allow_other = true,
    ),
    Tunable::flag(
        "nonempty",
        "The directory may have entries, which are hidden",
        |options| {
            options.nonempty = true;
        },
    ),
];

const NO_FLAG: MountFlags = MountFlags::empty();
/// Flags of which at most one is set.
const TIMES: MountFlags = MountFlags::NOATIME
    .union(MountFlags::STRICTATIME)
    .union(MountFlags::RELATIME);

fn set_times(options: &mut MountOptions, flag: MountFlags) {
    options.flags.remove(TIMES);
    options.flags.insert(flag);
}

const FILE_SYSTEM: &[MountTunable] = &[
    Tunable::number(
        "sb",
        1..=u32::MAX as u64,
        "KiB",
        "Place of the superblock to read in place of the first; with ro",
        |options| options.superblock_kib,
        |options, kib| options.superblock_kib = Some(kib),
    ),
    Tunable::flag(
        "noload",
        "Ignore a journal that must be replayed",
        |options| {
            options.engine.replay_journal = false;
        },
    ),
    Tunable::flag("norecovery", "The same as noload", |options| {
        options.engine.replay_journal = false;
    }),
    Tunable::flag(
        "journal_checksum",
        "Refuse a file system whose journal has no checksums",
        |options| options.needs_log_checksums = true,
    ),
    Tunable::flag(
        "quota",
        "Enforce quotas; refuse a file system that has none",
        |options| {
            options.set_quota(Some("quota"));
        },
    ),
    Tunable::flag("usrquota", "The same as quota", |options| {
        options.set_quota(Some("usrquota"));
    }),
    Tunable::flag("grpquota", "The same as quota", |options| {
        options.set_quota(Some("grpquota"));
    }),
    Tunable::flag("prjquota", "The same as quota", |options| {
        options.set_quota(Some("prjquota"));
    }),
    Tunable::flag("noquota", "Count usage and enforce no limit", |options| {
        options.set_quota(None);
    }),
];

const OWNERS: &[MountTunable] = &[
    Tunable::flag(
        "fakeroot",
        "The user who mounts may do everything; new files belong to root",
        |options| options.owners.fakeroot = true,
    ),
    Tunable::number(
        "uid",
        0..=u32::MAX as u64 - 1,
        "",
        "Everything is shown as this user's",
        |options| options.owners.user.map(u64::from),
        |options, id| options.owners.user = id.try_into().ok(),
    ),
    Tunable::number(
        "gid",
        0..=u32::MAX as u64 - 1,
        "",
        "Everything is shown as this group's",
        |options| options.owners.group.map(u64::from),
        |options, id| options.owners.group = id.try_into().ok(),
    ),
    Tunable::text(
        "idmap",
        "[u:|g:]INSIDE:OUTSIDE:COUNT",
        "Map ids of the image to ids here, of users and groups; repeatable",
        map,
    ),
];

/// `[u:|g:]INSIDE:OUTSIDE:COUNT`, of users and groups where it does not say which.
fn map(options: &mut MountOptions, text: &str) -> Result<(), String> {
    const FORM: &str = "must be of the form [u:|g:]INSIDE:OUTSIDE:COUNT";
    let (users, groups, text) = match (text.strip_prefix("u:"), text.strip_prefix("g:")) {
        (Some(text), _) => (true, false, text),
        (_, Some(text)) => (false, true, text),
        _ => (true, true, text),
    };
    let numbers: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
    let Ok(&[inside, outside, count]) = numbers.as_deref() else {
        return Err(FORM.to_owned());
    };
    let range = IdRange::new(inside, outside, count)?;
    let owners = &mut options.owners;
    match (!users || owners.map_users(range)) && (!groups || owners.map_groups(range)) {
        true => Ok(()),
        false => Err("some of these ids stand for others already".to_owned()),
    }
}

/// In the order of [`TRANSPORTS`].
const TRANSPORT_NAMES: &[&str] = &["auto", "dev", "io_uring"];
const TRANSPORTS: [Transport; 3] = [Transport::Auto, Transport::Dev, Transport::Uring];

/// In the order of [`PLACEMENTS`].
const PLACEMENT_NAMES: &[&str] = &["auto", "spread"];
const PLACEMENTS: [Placement; 2] = [Placement::Auto, Placement::Spread];

/// In the order of [`WRITEBACK_CACHES`]. The option alone is the second word.
const WRITEBACK_CACHE_NAMES: &[&str] = &["auto", "on", "off"];
const WRITEBACK_CACHES: [WritebackCache; 3] = [
    WritebackCache::Auto,
    WritebackCache::On,
    WritebackCache::Off,
];

/// In the order of [`XATTRS`].
const XATTR_NAMES: &[&str] = &["no", "yes", "auto", "force"];
const XATTRS: [Xattrs; 4] = [
    Xattrs::Served,
    Xattrs::Omitted,
    Xattrs::Auto,
    Xattrs::Hidden,
];

const PROGRAM: &[MountTunable] = &[
    Tunable::text(
        "memory",
        "SIZE",
        "Memory of the mount. Default: an eighth of what there is, up to 1G",
        |options, size| {
            options.engine.memory = Some(parse_size(size)?);
            Ok(())
        },
    ),
    Tunable::number(
        "threads",
        1..=64,
        "threads",
        "Threads that read requests. Default: by the number of processors",
        // OK to widen.
        |options| options.threads.map(|threads| threads as u64),
        |options, threads| options.threads = threads.try_into().ok(),
    ),
    Tunable::word(
        "transport",
        TRANSPORT_NAMES,
        "How requests come from the kernel; auto: io_uring where it is allowed",
        |options| {
            let at = TRANSPORTS
                .iter()
                .position(|known| *known == options.transport);
            TRANSPORT_NAMES.get(at?).copied()
        },
        |options, index| options.transport = TRANSPORTS.get(index).copied().unwrap_or_default(),
    ),
    Tunable::word(
        "placement",
        PLACEMENT_NAMES,
        "Where requests are served; auto: those of a single stream on its caller's processor",
        |options| {
            let at = PLACEMENTS
                .iter()
                .position(|known| *known == options.placement);
            PLACEMENT_NAMES.get(at?).copied()
        },
        |options, index| options.placement = PLACEMENTS.get(index).copied().unwrap_or_default(),
    ),
    Tunable::word(
        "writeback_cache",
        WRITEBACK_CACHE_NAMES,
        "The kernel gathers what is written; alone: on, auto: off; see docs/durability.md",
        |options| {
            let at = WRITEBACK_CACHES
                .iter()
                .position(|known| *known == options.writeback_cache);
            WRITEBACK_CACHE_NAMES.get(at?).copied()
        },
        |options, index| {
            let chosen = WRITEBACK_CACHES.get(index).copied();
            options.writeback_cache = chosen.unwrap_or_default();
        },
    ),
    Tunable::text(
        "metrics",
        "FILE",
        "Write statistics to this file every 10 s, as Prometheus reads them",
        |options, path| match path {
            "" => Err("must be a path".to_owned()),
            path => {
                options.metrics = Some(path.into());
                Ok(())
            }
        },
    ),
    Tunable::word(
        "noxattr",
        XATTR_NAMES,
        "Serve no extended attributes; alone: yes, refused where the image holds some",
        |options| {
            let at = XATTRS.iter().position(|known| *known == options.xattrs);
            XATTR_NAMES.get(at?).copied()
        },
        |options, index| options.xattrs = XATTRS.get(index).copied().unwrap_or_default(),
    ),
    switch!(
        "open",
        opens,
        "Opening a file is a request; without it, see docs/fuse.md"
    ),
    switch!(
        "sandbox",
        sandbox,
        "The daemon gives up what it does not need"
    ),
];
