//! How a file system is opened: what there is to choose, and how it is written behind `mount -o`.

use uext4_blockdev::Clock;
use uext4_buffer_cache::{BH_LRU_SIZE, BH_LRU_SIZE_MAX};
use uext4_extent_status::StatsMode;
use uext4_mballoc::Options as AllocatorOptions;
use uext4_mbcache::Options as MbcacheOptions;
use uext4_ondisk::BlockSize;
use uext4_ondisk::xattr::XATTR_REFCOUNT_MAX;
use uext4_tunables::{Subject, Tunable, TunableError, describe, number, set, shown};
use uext4_writeback::throttle::{BDI_TUNABLES, DOMAIN_TUNABLES};

use crate::base::disk::Disk;
use crate::base::error::{Error, Result};
use crate::base::policies::Policies;
use crate::journal::mount_limits::{self, MountLimits};
use crate::journal::xattr_shared::XattrSharing;
use crate::mount::writeback_options::WritebackOptions;

/// Which threads write old data back and commit, of a file system opened for writing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Background {
    /// Threads of its own, unless the clock is virtual.
    #[default]
    Auto,
    /// Threads of its own, whatever the clock.
    Threads,
    /// None: [`Volume::tick`](crate::Volume::tick) is called, or
    /// [`Volume::start_background`](crate::Volume::start_background) later.
    None,
}

/// How to open a file system. The default is right unless there is a reason.
///
/// ```
/// let mut options = uext4::OpenOptions::default();
/// options.memory = Some(64 << 20);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OpenOptions {
    /// Bytes of memory for all that is stored: data of files, metadata, extents, inodes, names.
    /// `None`: an eighth of what this process may take (of the machine's memory, or of the limit
    /// of its control group or its own), at most 1 GiB; for reading at most 64 MiB. At least 1 MiB.
    pub memory: Option<u64>,
    /// Bytes of metadata held in memory, at most, within `memory`.
    pub memory_max: usize,
    /// Bytes of file data held in memory, at most, within `memory`; at least 64 blocks. Only for
    /// writing.
    pub pages_max: u64,
    /// Metadata blocks that each thread finds without asking the shared table, 1 to 64.
    pub bh_lru_size: u32,
    /// Show a file system that was not unmounted as if its journal had been replayed, and one with
    /// a repair that was cut off as if that were finished. The device is not written. Without it
    /// such a file system is shown as it lies there.
    pub replay_journal: bool,
    /// Block of a backup superblock to use in place of the primary, for example 32768.
    pub superblock: Option<u64>,
    /// Block size, needed to find a backup if the primary superblock is unreadable; `None` tries
    /// all of them.
    pub block_size: Option<BlockSize>,
    /// Refuse what exceeds the limits of a user, group or project. Without it they are counted, and
    /// nothing is refused. Only for writing, and only where there is the feature `quota`.
    ///
    /// The owner of the file that is created or grows is charged, whoever makes the call; what
    /// belongs to id 0 is not limited.
    pub quota_limits: bool,
    /// When writers wait, how much may be dirty and for how long. Only for writing.
    pub writeback: WritebackOptions,
    /// How blocks are chosen: tunables of the allocator. Only for writing. Its `stripe` and
    /// `flex_groups` are those of the file system.
    pub allocator: AllocatorOptions,
    /// How many attributes that inodes may share are remembered. `None`: nothing is shared that is
    /// not yet. Only for writing. Seed and most users are those of the file system.
    pub mbcache: Option<MbcacheOptions>,
    /// How lookups of blocks of files, and scans of what is known of them, are counted. Only for
    /// writing.
    pub es_stats: StatsMode,
    /// Blocks of a full stripe of the RAID below; 0 for none. `None`: what the superblock says,
    /// if it fits a group.
    pub stripe: Option<u32>,
    /// Notify the device of freed blocks once their transaction is durable. `None`: as the
    /// superblock specifies (`tune2fs -o discard`).
    pub discard: Option<bool>,
    /// Commits, barriers, large directories, reserved blocks. Only for writing.
    pub limits: MountLimits,
    /// Which threads commit and write old data back. Only for writing.
    pub background: Background,
    /// Designs of subsystems in place of those that are shipped: for experiments.
    pub policies: Policies,
}

const ALLOCATION: &[Tunable<OpenOptions>] = &[
    Tunable::number(
        "stripe",
        0..=1 << 19,
        "blocks",
        "Full stripe of the RAID below; 0: none. Default: the superblock's",
        |options| options.stripe.map(u64::from),
        |options, blocks| options.stripe = blocks.try_into().ok(),
    ),
    Tunable::switch(
        "discard",
        "Discard freed blocks when their transaction is durable. Default: the superblock's",
        |options| options.discard.unwrap_or(false),
        |options, on| options.discard = Some(on),
    ),
];

const SHARING: &[Tunable<OpenOptions>] = &[Tunable::switch(
    "mbcache",
    "Inodes share equal attribute blocks and values. Also no_mbcache",
    |options| options.mbcache.is_some(),
    |options, on| options.mbcache = on.then(|| options.mbcache.unwrap_or_default()),
)];

const LOOKUPS: &[Tunable<OpenOptions>] = &[number!(
    "bh_lru_size",
    bh_lru_size,
    1..=BH_LRU_SIZE_MAX as u64,
    "blocks",
    "Metadata blocks that each thread finds without a shared lock",
)];

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            memory: None,
            memory_max: usize::MAX,
            pages_max: u64::MAX,
            bh_lru_size: BH_LRU_SIZE as u32,
            replay_journal: true,
            superblock: None,
            block_size: None,
            quota_limits: true,
            writeback: WritebackOptions::default(),
            allocator: AllocatorOptions::default(),
            mbcache: Some(MbcacheOptions::default()),
            es_stats: StatsMode::default(),
            stripe: None,
            discard: None,
            limits: MountLimits::default(),
            background: Background::default(),
            policies: Policies::default(),
        }
    }
}

impl OpenOptions {
    /// Sets one option as `mount -o` takes it; [`OpenOptions::describe`] lists them. After
    /// `nombcache`, `mb_max_entries=` has no effect.
    ///
    /// # Errors
    /// [`crate::Error::UnknownOption`] if there is none of this name; [`crate::Error::Option`]
    /// for a value out of its range, which the error names.
    pub fn option(&mut self, option: &str) -> Result<()> {
        // The kernel knows both spellings.
        let option = match option {
            "no_mbcache" => "nombcache",
            "bsdgroups" => "grpid",
            "nobsdgroups" | "sysvgroups" => "nogrpid",
            option => option,
        };
        let mut is_known = self.writeback.tunables.set(option)?
            || set(mount_limits::TUNABLES, &mut self.limits, option)?
            || set(uext4_mballoc::TUNABLES, &mut self.allocator, option)?
            || set(uext4_extent_status::TUNABLES, &mut self.es_stats, option)?;
        for table in [ALLOCATION, SHARING, LOOKUPS] {
            is_known = is_known || set(table, self, option)?;
        }
        let mut off = MbcacheOptions::default();
        let mbcache = self.mbcache.as_mut().unwrap_or(&mut off);
        match is_known || set(uext4_mbcache::TUNABLES, mbcache, option)? {
            true => Ok(()),
            false => Err(Error::UnknownOption {
                message: format!("{}: no such option", shown(option)),
            }),
        }
    }

    /// All that [`OpenOptions::option`] takes, with the defaults, by subject.
    pub fn describe() -> Vec<Subject> {
        let defaults = Self::default();
        let tunables = &defaults.writeback.tunables;
        let mut allocation = describe(ALLOCATION, &defaults);
        allocation.extend(describe(uext4_mballoc::TUNABLES, &defaults.allocator));
        let mut sharing = describe(SHARING, &defaults);
        sharing.extend(describe(
            uext4_mbcache::TUNABLES,
            &MbcacheOptions::default(),
        ));
        let mut writeback = describe(DOMAIN_TUNABLES, tunables);
        writeback.extend(describe(BDI_TUNABLES, tunables));
        let mut lookups = describe(LOOKUPS, &defaults);
        lookups.extend(describe(uext4_extent_status::TUNABLES, &defaults.es_stats));
        let limits = describe(mount_limits::TUNABLES, &defaults.limits);
        [
            ("Commits, damage and limits", limits),
            ("Allocation", allocation),
            ("Dirty data and writeback", writeback),
            ("Shared attributes", sharing),
            ("Lookups of metadata", lookups),
        ]
        .map(|(title, rows)| Subject { title, rows })
        .into()
    }

    /// The same for several, separated by commas, as behind `mount -o`.
    ///
    /// # Errors
    /// That of the first that cannot be set; those before it are.
    pub fn options(&mut self, list: &str) -> Result<()> {
        let mut each = list.split(',').filter(|option| !option.is_empty());
        each.try_for_each(|option| self.option(option))?;
        self.check()
    }

    /// Whether the options agree with each other.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option): `min_ratio` above `max_ratio`, or a number that was
    /// set as a field is out of its range.
    pub fn check(&self) -> Result<()> {
        Ok(self.writeback.tunables.check()?)
    }

    /// Whether freed blocks are discarded on this file system.
    pub(crate) fn discards(&self, disk: &Disk) -> bool {
        /// `s_default_mount_opts`: freed blocks are discarded.
        const DEFM_DISCARD: u32 = 0x400;
        let defaults = disk.superblock().s_default_mount_opts.get();
        self.discard.unwrap_or(defaults & DEFM_DISCARD != 0)
    }

    /// The allocator's options on this file system.
    pub(crate) fn for_allocator(&self, disk: &Disk) -> Result<AllocatorOptions> {
        let geometry = disk.geometry();
        let group = geometry.blocks_per_group.get();
        // Made for a device of other shape, or wrong: never a reason not to open.
        let of_superblock =
            Some(disk.superblock().s_raid_stripe_width.get()).filter(|s| *s <= group);
        let options = AllocatorOptions {
            stripe: self.stripe.or(of_superblock).unwrap_or(0),
            flex_groups: 1u32
                .checked_shl(geometry.log_groups_per_flex.into())
                .unwrap_or(u32::MAX),
            ..self.allocator
        };
        match options.stripe > group {
            true => Err(TunableError::new(
                &format!("stripe={}", options.stripe),
                format_args!("must be 0 to {group} blocks, at most a group"),
            ))?,
            false => Ok(options),
        }
    }

    /// What inodes may share, of this file system.
    pub(crate) fn for_sharing(&self, disk: &Disk, clock: &dyn Clock) -> Result<XattrSharing> {
        let (sec, nsec) = clock.now();
        // The same on the same clock; not known to a caller that only knows the image.
        let seed = u64::from(nsec) << 32 ^ sec as u64;
        let options = self.mbcache.map(|options| {
            let options = MbcacheOptions { seed, ..options };
            options.for_blocks(disk.geometry().blocks_count)
        });
        XattrSharing::new(options, XATTR_REFCOUNT_MAX, &self.policies)
    }

    /// The same with the budget as a number: `memory`, or what `default` says.
    pub(crate) fn with_budget(&self, default: impl FnOnce() -> u64) -> (Self, u64) {
        let memory = self.memory.unwrap_or_else(default);
        let most = usize::try_from(memory).unwrap_or(usize::MAX);
        let options = Self {
            memory_max: self.memory_max.min(most),
            ..self.clone()
        };
        (options, memory)
    }
}
