//! What stands behind `mount -o`: what every mount has, what ext4 calls its own, and ours. A name that is
//! none of them is refused, and so is one whose promise is not kept here, with the reason.

use std::path::PathBuf;

use rustix::mount::MountFlags;
use uext4::OpenOptions;
use uext4::tuning::AccessTimes;
use uext4_fuse::owners::{IdRange, Owners};
use uext4_fuse::session::PAYLOADS_MAX;
use uext4_fuse::{SyncPolicy, Transport};

use crate::args::parse_size;
use crate::failure::{Exit, Failure};

/// What was asked for.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Not one byte of the image is written.
    pub read_only: bool,
    /// What every mount has.
    pub flags: MountFlags,
    /// Others than who mounts may use it.
    pub allow_other: bool,
    /// What is mounted already is to be changed.
    pub remount: bool,
    /// What is in the directory may be hidden.
    pub nonempty: bool,
    /// Threads that read requests; `None`: as many as are right.
    pub threads: Option<usize>,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// Most bytes of what requests carry, and of data of writers that wait.
    pub payloads: usize,
    /// Where a superblock is read in place of the first, in units of 1 KiB.
    pub superblock_kib: Option<u64>,
    /// The log must have checksums.
    pub needs_log_checksums: bool,
    /// The option that asks for quotas, where one does.
    pub quota: Option<String>,
    /// Whose files are shown.
    pub owners: Owners,
    /// A file that is told what happens, every some seconds.
    pub metrics: Option<PathBuf>,
    /// The daemon gives up what it does not need.
    pub sandbox: bool,
    /// What the engine is told.
    pub engine: OpenOptions,
}

/// Names that set or clear a flag.
const FLAGS: [(&str, MountFlags, bool); 12] = [
    ("suid", MountFlags::NOSUID, false),
    ("nosuid", MountFlags::NOSUID, true),
    ("dev", MountFlags::NODEV, false),
    ("nodev", MountFlags::NODEV, true),
    ("exec", MountFlags::NOEXEC, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("diratime", MountFlags::NODIRATIME, false),
    ("nodiratime", MountFlags::NODIRATIME, true),
    ("async", MountFlags::SYNCHRONOUS, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("dirsync", MountFlags::DIRSYNC, true),
    ("nodirsync", MountFlags::DIRSYNC, false),
];

/// Names that choose which times of access are noted, one of three.
const TIMES: [(&str, MountFlags); 6] = [
    ("noatime", MountFlags::NOATIME),
    ("strictatime", MountFlags::STRICTATIME),
    ("relatime", MountFlags::RELATIME),
    ("atime", MountFlags::empty()),
    ("norelatime", MountFlags::empty()),
    ("nostrictatime", MountFlags::empty()),
];

/// Names that say what is so anyway, or that concern only who calls us (fstab's, systemd's).
const AS_IT_IS: [&str; 47] = [
    "defaults",
    "auto",
    "noauto",
    "user",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "default_permissions",
    "user_xattr",
    "acl",
    "delalloc",
    "data=ordered",
    "dioread_nolock",
    "dioread_lock",
    "block_validity",
    "noblock_validity",
    "i_version",
    "iversion",
    "noiversion",
    "silent",
    "loud",
    // Times are as durable as everything else.
    "lazytime",
    "nolazytime",
    "nogrpid",
    "sysvgroups",
    "bsddf",
    "dax=never",
    "noinit_itable",
    "prefetch_block_bitmaps",
    "no_prefetch_block_bitmaps",
    "nomand",
    "dax=inode",
    "data_err=ignore",
    "nodioread_nolock",
    "nowarn_on_error",
    // Those the kernel's ext4 takes and ignores, too.
    "bh",
    "nobh",
    "oldalloc",
    "orlov",
    "mblk_io_submit",
    "nomblk_io_submit",
    "reservation",
    "noreservation",
    "check=none",
    "nocheck",
];

/// Names of ext4 whose promise is not kept here, and why.
const REFUSED: [(&str, &str); 35] = [
    (
        "data=writeback",
        "blocks are mapped only when their data is written; there is data=ordered",
    ),
    (
        "data=journal",
        "only metadata goes through the journal; there is data=ordered",
    ),
    (
        "nodelalloc",
        "blocks are chosen when data is written back, and promised before; there is delalloc",
    ),
    (
        "journal_async_commit",
        "a commit is written only behind what it commits",
    ),
    (
        "nojournal_checksum",
        "the log has checksums where the file system has (metadata_csum)",
    ),
    ("nouser_xattr", "attributes of users are always there"),
    ("noacl", "ACLs are always kept"),
    ("grpid", "set the set-group-id bit of directories instead"),
    (
        "bsdgroups",
        "set the set-group-id bit of directories instead",
    ),
    (
        "minixdf",
        "statfs does not count what the file system itself needs; there is bsddf",
    ),
    ("dax", "the image is no memory of the machine's"),
    ("dax=always", "the image is no memory of the machine's"),
    ("init_itable", "inode tables are written as they are used"),
    (
        "journal_dev",
        "a journal outside of the image is not written",
    ),
    (
        "journal_path",
        "a journal outside of the image is not written",
    ),
    ("auto_unmount", "the daemon unmounts when it is told to end"),
    (
        "data_err=abort",
        "a failed write of data is reported by fsync, and ends nothing; there is data_err=ignore",
    ),
    ("nouid32", "all 32 bits of owners are always stored"),
    ("abort", "`umount` ends the mount without harm"),
    ("debug", "`uext4 stats DIR` shows what a mount does"),
    (
        "debug_want_extra_isize",
        "inodes have what the superblock asks for (`s_want_extra_isize`)",
    ),
    ("warn_on_error", "errors go to the system's log"),
    (
        "journal_ioprio",
        "the daemon has the priority of its process: `ionice -p PID` changes it",
    ),
    ("journal", "the log is where the superblock says"),
    (
        "min_batch_time",
        "a commit takes those who wait when it begins, and waits for no others",
    ),
    (
        "max_batch_time",
        "a commit takes those who wait when it begins, and waits for no others",
    ),
    (
        "inode_readahead_blks",
        "inode tables are read as they are needed",
    ),
    ("mb_optimize_scan", "free runs are always found by an index"),
    (
        "usrjquota",
        "quotas are those of the feature: `tune2fs -O quota IMAGE`, then -o usrquota",
    ),
    (
        "grpjquota",
        "quotas are those of the feature: `tune2fs -O quota IMAGE`, then -o grpquota",
    ),
    (
        "jqfmt",
        "quotas are those of the feature, of the one format there is: `tune2fs -O quota IMAGE`",
    ),
    (
        "test_dummy_encryption",
        "encrypted files are shown as they are stored, and none is made",
    ),
    (
        "inlinecrypt",
        "encrypted files are shown as they are stored, and none is made",
    ),
    (
        "fc_debug_force",
        "fast commits are replayed, and none is written",
    ),
    (
        "fc_debug_max_replay",
        "fast commits are replayed whole, and none is written",
    ),
];

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
            payloads: PAYLOADS_MAX,
            superblock_kib: None,
            needs_log_checksums: false,
            quota: None,
            owners: Owners::default(),
            metrics: None,
            sandbox: true,
            engine: OpenOptions::default(),
        }
    }
}

/// A failure of the command line.
fn wrong<T>(option: &str, why: impl std::fmt::Display) -> Result<T, Failure> {
    Err(Failure::new(
        Exit::Usage,
        format_args!("-o {option}: {why}"),
    ))
}

impl MountOptions {
    /// Reads lists of options, separated by commas; later ones win.
    ///
    /// # Errors
    /// A wrong command line: a name that is none, or is refused, a value out of its range, two options
    /// that do not go together.
    pub fn parse(lists: &[String]) -> Result<Self, Failure> {
        let mut options = Self::default();
        let all = lists.iter().flat_map(|list| list.split(','));
        options.remount = all.clone().any(|option| option == "remount");
        for option in all.filter(|option| !option.is_empty()) {
            options.set(option)?;
        }
        if options.owners.fakeroot && options.allow_other {
            return wrong("fakeroot", "with allow_other everybody could do everything");
        }
        if options.superblock_kib.is_some() && !options.read_only {
            return wrong(
                "sb",
                "only with ro: a lost superblock is for e2fsck to repair",
            );
        }
        Ok(options)
    }

    fn set_quota(&mut self, asked_by: Option<&str>) {
        self.engine.quota_limits = asked_by.is_some();
        self.quota = asked_by.map(str::to_owned);
    }

    /// Which times of access are noted.
    pub fn access_times(&self) -> AccessTimes {
        match self.flags {
            flags if flags.contains(MountFlags::NOATIME) => AccessTimes::None,
            flags if flags.contains(MountFlags::STRICTATIME) => AccessTimes::Strict,
            _ => AccessTimes::Relative,
        }
    }

    fn set(&mut self, option: &str) -> Result<(), Failure> {
        if let Some((_, flag, on)) = FLAGS.iter().find(|(name, ..)| *name == option) {
            self.flags.set(*flag, *on);
            return Ok(());
        }
        if let Some((_, flag)) = TIMES.iter().find(|(name, _)| *name == option) {
            TIMES
                .iter()
                .for_each(|(_, other)| self.flags.remove(*other));
            self.flags.insert(*flag);
            return Ok(());
        }
        if AS_IT_IS.contains(&option) || option.starts_with("x-") {
            return Ok(());
        }
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let refused = REFUSED
            .iter()
            .find(|(known, _)| [option, name].contains(known));
        if let Some((_, why)) = refused {
            return wrong(option, why);
        }
        match (name, value) {
            ("ro", "") => self.set_read_only(true),
            ("rw", "") => self.set_read_only(false),
            ("remount", "") => {}
            // What the kernel shows of a mount, which mount(8) repeats.
            ("user_id" | "group_id" | "max_read" | "blksize", _) if self.remount => {}
            ("allow_other", "") => self.allow_other = true,
            ("nonempty", "") => self.nonempty = true,
            ("sandbox", "") => self.sandbox = true,
            ("nosandbox", "") => self.sandbox = false,
            ("noload" | "norecovery", "") => self.engine.replay_journal = false,
            ("journal_checksum", "") => self.needs_log_checksums = true,
            ("quota" | "usrquota" | "grpquota" | "prjquota", "") => self.set_quota(Some(name)),
            ("noquota", "") => self.set_quota(None),
            ("fakeroot", "") => self.owners.fakeroot = true,
            ("uid", id) => self.owners.user = Some(number(option, id, 0..=u32::MAX - 1)?),
            ("gid", id) => self.owners.group = Some(number(option, id, 0..=u32::MAX - 1)?),
            ("idmap", ranges) => self.map(option, ranges)?,
            ("sb", kib) => self.superblock_kib = Some(number(option, kib, 1..=u32::MAX)?.into()),
            ("metrics", path) if !path.is_empty() => self.metrics = Some(path.into()),
            ("memory", size) => match parse_size(size) {
                Ok(size) => self.engine.memory = Some(size),
                Err(error) => return wrong(option, error),
            },
            ("transport", name) => match name.parse() {
                Ok(transport) => self.transport = transport,
                Err(error) => return wrong(option, error),
            },
            // OK to widen: 64 at most.
            ("threads", threads) => self.threads = Some(number(option, threads, 1..=64)? as usize),
            _ => {
                let set = self.engine.option(option);
                if let Err(uext4::Error::UnknownOption { .. }) = set {
                    return wrong(option, "no such option; `uext4 mount --help` lists them");
                }
                if let Err(error) = set {
                    return wrong(option, error);
                }
            }
        }
        Ok(())
    }

    /// `idmap=[u:|g:]INSIDE:OUTSIDE:COUNT`, of users and groups where it does not say which.
    fn map(&mut self, option: &str, text: &str) -> Result<(), Failure> {
        const FORM: &str = "not of the form [u:|g:]INSIDE:OUTSIDE:COUNT";
        let (users, groups, text) = match (text.strip_prefix("u:"), text.strip_prefix("g:")) {
            (Some(text), _) => (true, false, text),
            (_, Some(text)) => (false, true, text),
            _ => (true, true, text),
        };
        let numbers: Result<Vec<u32>, _> = text.split(':').map(str::parse).collect();
        let Ok(&[inside, outside, count]) = numbers.as_deref() else {
            return wrong(option, FORM);
        };
        let range = match IdRange::new(inside, outside, count) {
            Ok(range) => range,
            Err(why) => return wrong(option, why),
        };
        let fits =
            (!users || self.owners.map_users(range)) && (!groups || self.owners.map_groups(range));
        match fits {
            true => Ok(()),
            false => wrong(option, "some of these ids stand for others already"),
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

    fn set_read_only(&mut self, on: bool) {
        self.read_only = on;
        self.flags.set(MountFlags::RDONLY, on);
    }
}

fn number(option: &str, value: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, Failure> {
    match value.parse() {
        Ok(number) if range.contains(&number) => Ok(number),
        _ => wrong(
            option,
            format_args!("not a number from {} to {}", range.start(), range.end()),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str) -> Result<MountOptions, Failure> {
        MountOptions::parse(&[list.to_owned()])
    }

    #[test]
    fn later_options_win() {
        let options =
            parse("defaults,ro,noatime,nodev,rw,dev,allow_other,x-systemd.automount").unwrap();
        assert!(!options.read_only && options.allow_other);
        assert_eq!(options.flags, MountFlags::NOATIME | MountFlags::NOSUID);
        let options = parse("ro,noload,memory=64M,threads=3").unwrap();
        assert!(options.read_only && !options.engine.replay_journal);
        let not_trusted = MountFlags::NOSUID | MountFlags::NODEV;
        assert_eq!(options.flags, MountFlags::RDONLY | not_trusted);
        assert_eq!(
            (options.engine.memory, options.threads),
            (Some(64 << 20), Some(3))
        );
        let options = parse("suid,dev").unwrap();
        assert!(!options.flags.intersects(not_trusted));
    }

    #[test]
    fn every_option_of_the_kernels_ext4_has_its_answer() {
        let taken = "bsddf nogrpid sysvgroups resgid=0 resuid=0 errors=remount-ro errors=continue \
             errors=panic auto_da_alloc oldalloc orlov \
             user_xattr acl noload norecovery bh nobh commit=5 journal_checksum data=ordered \
             data_err=ignore quota noquota usrquota grpquota prjquota barrier nobarrier barrier=1 \
             i_version dax=inode dax=never stripe=0 delalloc lazytime nolazytime nowarn_on_error \
             mblk_io_submit nomblk_io_submit block_validity noblock_validity noauto_da_alloc \
             dioread_nolock nodioread_nolock dioread_lock discard nodiscard noinit_itable \
             max_dir_size_kb=0 nombcache no_mbcache no_prefetch_block_bitmaps check=none nocheck \
             reservation noreservation";
        for option in taken.split_whitespace() {
            assert!(parse(option).is_ok(), "{option}");
        }
        let refused = "minixdf grpid bsdgroups nouid32 debug noacl \
             nouser_xattr min_batch_time=0 max_batch_time=0 journal_dev=8 journal_path=/x journal=update \
             nojournal_checksum journal_async_commit abort data=journal data=writeback data_err=abort \
             usrjquota=aquota.user grpjquota=aquota.group jqfmt=vfsv1 dax dax=always \
             debug_want_extra_isize=32 nodelalloc warn_on_error inode_readahead_blks=32 \
             journal_ioprio=3 init_itable init_itable=10 test_dummy_encryption inlinecrypt \
             test_dummy_encryption=v2 mb_optimize_scan=1 fc_debug_force fc_debug_max_replay=1";
        for option in refused.split_whitespace() {
            let Err(Failure::Told { what, .. }) = parse(option) else {
                panic!("{option} was taken");
            };
            assert!(!what.contains("no such option"), "{what}");
        }
    }

    #[test]
    fn transports_by_name() {
        assert_eq!(parse("rw").unwrap().transport, Transport::Auto);
        let options = parse("transport=dev,transport=io_uring").unwrap();
        assert_eq!(options.transport, Transport::Uring);
    }

    #[test]
    fn how_much_is_durable_at_once() {
        for (list, sync_policy) in [
            ("rw", SyncPolicy::OnDemand),
            ("dirsync", SyncPolicy::Names),
            ("dirsync,sync", SyncPolicy::All),
            ("dirsync,sync,async,nodirsync", SyncPolicy::OnDemand),
        ] {
            assert_eq!(parse(list).unwrap().sync_policy(), sync_policy, "{list}");
        }
    }

    #[test]
    fn the_engines_options_are_handed_on() {
        let options = parse("discard,stripe=16,dirty_ratio=30,commit=30,nobarrier").unwrap();
        assert!(options.engine.discard);
        assert_eq!(options.engine.stripe, Some(16));
        assert!(!options.engine.limits.barrier && options.engine.limits.commit_secs == 30);
        assert!(options.engine.limits.auto_da_alloc);
        let options = parse("auto_da_alloc,noauto_da_alloc").unwrap();
        assert!(!options.engine.limits.auto_da_alloc);
        let options = parse("ro,sb=131072,nosandbox,nonempty,metrics=/x").unwrap();
        assert!(options.nonempty && !options.sandbox);
        assert_eq!(options.superblock_kib, Some(131_072));
        assert!(!parse("discard,nodiscard").unwrap().engine.discard);
        assert!(parse("nodiscard,discard").unwrap().engine.discard);
    }

    #[test]
    fn what_is_none_is_refused_by_name() {
        for option in [
            "nonsense",
            "memory=x",
            "threads=0",
            "transport=splice",
            "data=writeback",
            "data=journal",
            "errors=retry",
            "nodelalloc",
            "journal_dev=8",
            "stripe=x",
            "commit=-1",
            "sb=0",
            "uid=4294967295",
            "gid=root",
            "idmap=0:1",
            "idmap=0:1:0",
            "idmap=x:0:1:1",
            "metrics=",
            "noatime=1",
        ] {
            let Err(Failure::Told { exit, what, .. }) = parse(option) else {
                panic!("{option} was taken");
            };
            assert_eq!(exit, Exit::Usage);
            assert!(what.starts_with(&format!("-o {option}: ")), "{what}");
        }
        for list in [
            "fakeroot,allow_other",
            "sb=131072",
            "idmap=0:1:2,idmap=u:1:5:1",
        ] {
            assert!(parse(list).is_err(), "{list}");
        }
    }

    #[test]
    fn one_of_three_times_of_access() {
        let times = |list| parse(list).unwrap().access_times();
        assert_eq!(times(""), AccessTimes::Relative);
        assert_eq!(times("noatime,relatime"), AccessTimes::Relative);
        assert_eq!(times("strictatime"), AccessTimes::Strict);
        assert_eq!(times("strictatime,noatime"), AccessTimes::None);
        assert_eq!(times("noatime,atime,nodiratime"), AccessTimes::Relative);
    }

    #[test]
    fn owners_in_every_form() {
        let options = parse("uid=5,gid=6,fakeroot,idmap=u:0:1000:1,idmap=g:0:100:5").unwrap();
        assert_eq!(
            (options.owners.user, options.owners.group),
            (Some(5), Some(6))
        );
        assert!(options.owners.fakeroot);
        assert_eq!(options.owners.stored_user(1000), Ok(0));
        assert_eq!(options.owners.stored_group(104), Ok(4));
        let both = parse("idmap=0:1000:2").unwrap().owners;
        assert_eq!(
            (both.stored_user(1001), both.stored_group(1001)),
            (Ok(1), Ok(1))
        );
    }
}
