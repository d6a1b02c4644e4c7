//! Options of a mount: the commit interval, flushes of the device, the maximum size of
//! directories, when new data is written, and which callers may use root's reserved blocks.

use std::time::Duration;

use uext4_ondisk::superblock::SuperBlock;
use uext4_tunables::{Tunable, number, switch};

use crate::base::caller::Caller;

/// `s_default_mount_opts`: new inodes get the group of their directory.
const DEFM_BSDGROUPS: u32 = 0x2;

/// Default for the maximum number of seconds until changes are committed.
const COMMIT_SECS: u32 = 5;
/// Largest allowed value for that.
const COMMIT_SECS_MAX: u64 = 86_400;

/// What a mount does when it finds damage: `errors=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnDamage {
    /// Damage is recorded, and operation continues. A change that damage left half-done still
    /// ends writing.
    Continue,
    /// Damage is recorded, and nothing is written any more.
    RemountReadOnly,
}

/// Options of a mount. Names, units and defaults are those of `mount -o` for ext4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MountLimits {
    /// `commit=`: seconds until changes are committed, 0 to 86400; 0 means 5.
    pub commit_secs: u32,
    /// `barrier`: flush the device where the order of writes or an fsync requires it. Without it
    /// the device is flushed only at unmount: if the host or the power fails, fsynced data may be
    /// lost, and the whole file system with it.
    pub barrier: bool,
    /// `auto_da_alloc`: the data of a file that replaces another one, or that was truncated to
    /// zero before it was written, is written to the device when the file is renamed or closed,
    /// so that a commit never makes the loss of the old contents durable without the new ones.
    pub auto_da_alloc: bool,
    /// `errors=`: what to do when damage is found; `None`: as the superblock specifies, and
    /// [`OnDamage::RemountReadOnly`] if it specifies nothing. `errors=panic` acts the same: a
    /// library stops writing, not the machine.
    pub errors: Option<OnDamage>,
    /// `max_dir_size_kb=`: directories of this size, in units of 1024 bytes, do not grow; 0: as
    /// large as the format allows.
    pub max_dir_size_kb: u32,
    /// `resuid=`: the user, in addition to root, that may use reserved blocks; `None`: as the
    /// superblock specifies.
    pub resuid: Option<u32>,
    /// `resgid=`: the group that may use reserved blocks; 0: none.
    pub resgid: Option<u32>,
    /// `grpid`: what is made belongs to the group of its directory, whatever the caller's; `None`:
    /// as the superblock specifies (`tune2fs -o bsdgroups`).
    pub grpid: Option<bool>,
}

impl Default for MountLimits {
    fn default() -> Self {
        Self {
            commit_secs: COMMIT_SECS,
            barrier: true,
            auto_da_alloc: true,
            errors: None,
            max_dir_size_kb: 0,
            resuid: None,
            resgid: None,
            grpid: None,
        }
    }
}

/// The options that users set by name.
pub(crate) const TUNABLES: &[Tunable<MountLimits>] = &[
    number!(
        "commit",
        commit_secs,
        0..=COMMIT_SECS_MAX,
        "seconds",
        "Time after which changes are committed, at the latest; 0: 5",
    ),
    switch!(
        "barrier",
        barrier,
        "Flush the device where the order of writes, or an fsync, needs it",
    ),
    switch!(
        "auto_da_alloc",
        auto_da_alloc,
        "Write data at a rename over a file, and at a close after truncation",
    ),
    Tunable::word(
        "errors",
        ERRORS,
        "After damage is found; panic acts as remount-ro. Default: the superblock's",
        |limits| match limits.errors? {
            OnDamage::Continue => Some("continue"),
            OnDamage::RemountReadOnly => Some("remount-ro"),
        },
        |limits, index| {
            limits.errors = Some(match index {
                0 => OnDamage::Continue,
                _ => OnDamage::RemountReadOnly,
            });
        },
    ),
    number!(
        "max_dir_size_kb",
        max_dir_size_kb,
        0..=u32::MAX as u64,
        "KiB",
        "Size from which on directories do not grow; 0: no limit",
    ),
    Tunable::number(
        "resuid",
        0..=u32::MAX as u64,
        "",
        "User who may use reserved blocks, like root. Default: the superblock's",
        |limits| limits.resuid.map(u64::from),
        |limits, id| limits.resuid = id.try_into().ok(),
    ),
    Tunable::number(
        "resgid",
        0..=u32::MAX as u64,
        "",
        "Group that may use reserved blocks; 0: none. Default: the superblock's",
        |limits| limits.resgid.map(u64::from),
        |limits, id| limits.resgid = id.try_into().ok(),
    ),
    Tunable::switch(
        "grpid",
        "New files get the group of their directory. Also [no]bsdgroups. Default: the superblock's",
        |limits| limits.grpid.unwrap_or(false),
        |limits, on| limits.grpid = Some(on),
    ),
];

/// The words of `errors=`.
const ERRORS: &[&str] = &["continue", "remount-ro", "panic"];

impl MountLimits {
    /// Time after which changes are committed, at the latest.
    pub(crate) fn commit_interval(&self) -> Duration {
        let secs = match self.commit_secs {
            0 => COMMIT_SECS,
            secs => secs,
        };
        Duration::from_secs(secs.into())
    }

    /// The policy when damage is found.
    pub(crate) fn on_damage(&self, superblock: &SuperBlock) -> OnDamage {
        /// The value of `s_errors` for this policy.
        const CONTINUE: u16 = 1;
        self.errors.unwrap_or(match superblock.s_errors.get() {
            CONTINUE => OnDamage::Continue,
            _ => OnDamage::RemountReadOnly,
        })
    }

    /// Whether a directory of this many bytes may not grow.
    pub(crate) fn is_full(&self, dir_size: u64) -> bool {
        self.max_dir_size_kb > 0 && dir_size >> 10 >= u64::from(self.max_dir_size_kb)
    }

    /// Whether what is made belongs to the group of its directory.
    pub(crate) fn takes_group_of_directory(&self, superblock: &SuperBlock) -> bool {
        let defaults = superblock.s_default_mount_opts.get();
        self.grpid.unwrap_or(defaults & DEFM_BSDGROUPS != 0)
    }

    /// Reserved blocks that the caller must leave free.
    pub(crate) fn reserved_from(&self, caller: Caller, superblock: &SuperBlock) -> u64 {
        let user = self.resuid.unwrap_or(superblock.s_def_resuid.get().into());
        let group = self.resgid.unwrap_or(superblock.s_def_resgid.get().into());
        let is_of_group = group != 0 && caller.gid == group;
        match caller.uid == 0 || caller.uid == user || is_of_group {
            true => 0,
            false => superblock.reserved_blocks_count(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_set_by_name() {
        let mut limits = MountLimits::default();
        let mut set = |option: &str| {
            let is_set = uext4_tunables::set(TUNABLES, &mut limits, option)?;
            assert!(is_set, "{option}");
            Ok::<_, uext4_tunables::TunableError>(limits)
        };
        for option in ["nobarrier", "max_dir_size_kb=64", "resuid=7", "resgid=8"] {
            set(option).unwrap();
        }
        let limits = set("commit=30").unwrap();
        assert_eq!(limits.commit_interval(), Duration::from_secs(30));
        assert!(!limits.barrier && limits.is_full(65_536) && !limits.is_full(65_535));
        assert_eq!((limits.resuid, limits.resgid), (Some(7), Some(8)));
        assert!(set("barrier").unwrap().barrier && !set("barrier=0").unwrap().barrier);
        let errors = set("errors=panic").unwrap().errors;
        assert_eq!(errors, Some(OnDamage::RemountReadOnly));
        let errors = set("errors=continue").unwrap().errors;
        assert_eq!(errors, Some(OnDamage::Continue));
        assert!(!set("noauto_da_alloc").unwrap().auto_da_alloc);
        assert!(set("auto_da_alloc=1").unwrap().auto_da_alloc);
        let interval = set("commit=0").unwrap().commit_interval();
        assert_eq!(interval, Duration::from_secs(5));
        let error = set("commit=86401").unwrap_err().to_string();
        assert_eq!(error, "commit=86401: must be 0 to 86400 seconds");
        let error = set("errors=retry").unwrap_err().to_string();
        assert_eq!(error, "errors=retry: must be continue, remount-ro or panic");
        assert_eq!(set("grpid").unwrap().grpid, Some(true));
        assert_eq!(set("nogrpid").unwrap().grpid, Some(false));
        assert!(set("resuid=x").is_err() && set("commit").is_err());
    }
}
