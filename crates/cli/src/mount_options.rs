//! What stands behind `mount -o`: what every mount has, what ext4 calls its own, and ours. A name that is
//! none of them is refused.

use rustix::mount::MountFlags;
use uext4::OpenOptions;
use uext4_fuse::{Durability, Transport};

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
    /// Threads that read requests; `None`: as many as are right.
    pub threads: Option<usize>,
    /// How requests come from the kernel.
    pub transport: Transport,
    /// What the engine is told.
    pub engine: OpenOptions,
}

/// Names that set or clear a flag.
const FLAGS: [(&str, MountFlags, bool); 15] = [
    ("suid", MountFlags::NOSUID, false),
    ("nosuid", MountFlags::NOSUID, true),
    ("dev", MountFlags::NODEV, false),
    ("nodev", MountFlags::NODEV, true),
    ("exec", MountFlags::NOEXEC, false),
    ("noexec", MountFlags::NOEXEC, true),
    ("atime", MountFlags::NOATIME, false),
    ("noatime", MountFlags::NOATIME, true),
    ("diratime", MountFlags::NODIRATIME, false),
    ("nodiratime", MountFlags::NODIRATIME, true),
    ("relatime", MountFlags::RELATIME, true),
    ("async", MountFlags::SYNCHRONOUS, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("dirsync", MountFlags::DIRSYNC, true),
    ("nodirsync", MountFlags::DIRSYNC, false),
];

/// Names that say what is so anyway, or that concern only who calls us (fstab's, systemd's).
const AS_IT_IS: [&str; 24] = [
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
    "barrier",
    "barrier=1",
    "delalloc",
    "data=ordered",
    "errors=remount-ro",
    "dioread_nolock",
    "dioread_lock",
    "block_validity",
    "noblock_validity",
    "i_version",
    "silent",
    "loud",
];

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            read_only: false,
            flags: MountFlags::empty(),
            allow_other: false,
            threads: None,
            transport: Transport::Auto,
            engine: OpenOptions::default(),
        }
    }
}

impl MountOptions {
    /// Reads lists of options, separated by commas; later ones win.
    ///
    /// # Errors
    /// Exit 2 for a name that is none, and for a value out of its range.
    pub fn parse(lists: &[String]) -> Result<Self, Failure> {
        let mut options = Self::default();
        let all = lists.iter().flat_map(|list| list.split(','));
        for option in all.filter(|option| !option.is_empty()) {
            options.set(option)?;
        }
        Ok(options)
    }

    fn set(&mut self, option: &str) -> Result<(), Failure> {
        if let Some((_, flag, on)) = FLAGS.iter().find(|(name, ..)| *name == option) {
            self.flags.set(*flag, *on);
            return Ok(());
        }
        if AS_IT_IS.contains(&option) || option.starts_with("x-") {
            return Ok(());
        }
        let wrong = |why: &dyn std::fmt::Display| {
            let what = format_args!("-o {option}: {why}");
            Err(Failure::new(Exit::Usage, what))
        };
        match option.split_once('=').unwrap_or((option, "")) {
            ("ro", "") => self.set_read_only(true),
            ("rw", "") => self.set_read_only(false),
            ("allow_other", "") => self.allow_other = true,
            ("noload" | "norecovery", "") => self.engine.replay_journal = false,
            ("quota" | "usrquota" | "grpquota" | "prjquota", "") => self.engine.quota_limits = true,
            ("noquota", "") => self.engine.quota_limits = false,
            ("memory", size) => match parse_size(size) {
                Ok(size) => self.engine.memory = Some(size),
                Err(error) => return wrong(&error),
            },
            ("transport", name) => match name.parse() {
                Ok(transport) => self.transport = transport,
                Err(error) => return wrong(&error),
            },
            ("threads", number) => match number.parse::<usize>() {
                Ok(number @ 1..=64) => self.threads = Some(number),
                _ => return wrong(&"not a number from 1 to 64"),
            },
            _ => {
                if let Err(error) = self.engine.option(option) {
                    return wrong(&error);
                }
            }
        }
        Ok(())
    }

    /// What is durable before a program goes on.
    pub fn durability(&self) -> Durability {
        match self.flags {
            flags if flags.contains(MountFlags::SYNCHRONOUS) => Durability::All,
            flags if flags.contains(MountFlags::DIRSYNC) => Durability::Names,
            _ => Durability::OnDemand,
        }
    }

    fn set_read_only(&mut self, on: bool) {
        self.read_only = on;
        self.flags.set(MountFlags::RDONLY, on);
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
        assert_eq!(options.flags, MountFlags::NOATIME);
        let options = parse("ro,noload,memory=64M,threads=3").unwrap();
        assert!(options.read_only && !options.engine.replay_journal);
        assert_eq!(options.flags, MountFlags::RDONLY);
        assert_eq!(
            (options.engine.memory, options.threads),
            (Some(64 << 20), Some(3))
        );
    }

    #[test]
    fn transports_by_name() {
        assert_eq!(parse("rw").unwrap().transport, Transport::Auto);
        let options = parse("transport=dev,transport=io_uring").unwrap();
        assert_eq!(options.transport, Transport::Uring);
    }

    #[test]
    fn how_much_is_durable_at_once() {
        for (list, durability) in [
            ("rw", Durability::OnDemand),
            ("dirsync", Durability::Names),
            ("dirsync,sync", Durability::All),
            ("dirsync,sync,async,nodirsync", Durability::OnDemand),
        ] {
            assert_eq!(parse(list).unwrap().durability(), durability, "{list}");
        }
    }

    #[test]
    fn the_engines_options_are_handed_on() {
        let options = parse("discard,stripe=16,dirty_ratio=30").unwrap();
        assert!(options.engine.discard);
        assert_eq!(options.engine.stripe, Some(16));
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
            "sb=32768",
            "data=writeback",
            "stripe=x",
        ] {
            let Err(Failure::Told { exit, what, .. }) = parse(option) else {
                panic!("{option} was taken");
            };
            assert_eq!(exit, Exit::Usage);
            assert!(what.starts_with(&format!("-o {option}: ")), "{what}");
        }
    }
}
