//! How the pages of files are written back, as it is chosen when a file system is opened.

use std::sync::Arc;

use uext4_blockdev::Clock;
use uext4_ondisk::BlockSize;
use uext4_writeback::throttle::{NewPolicy, Tunables};
use uext4_writeback::{DirtyLimits, Options, PageCache};

use crate::base::error::{Error, Result};

/// Flushers of a device that does not seek, where nothing else is asked for.
const FLUSHERS_MAX: usize = 4;

/// When writers wait, how much may be dirty and for how long.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct WritebackOptions {
    /// The tunables, with the kernel's names, units and defaults: `tunables.set("dirty_ratio=30")`.
    pub tunables: Tunables,
    /// Limits that are shared with other file systems, so that a slow device next to a fast one
    /// leaves it its part; policy, ratios, bytes and times are theirs. `None`: its own.
    pub limits: Option<Arc<DirtyLimits>>,
}

impl WritebackOptions {
    /// Pages for a file system opened so, of `memory` bytes at most. The policy is that of the
    /// shared limits, if there are any.
    pub(crate) fn page_cache(
        &self,
        policy: Option<NewPolicy>,
        block_size: BlockSize,
        memory: u64,
        clock: &Arc<dyn Clock>,
    ) -> Result<PageCache<Error>> {
        let options = Options {
            tunables: self.tunables,
            ..Options::with_memory(block_size, memory)
        };
        let clock = Arc::clone(clock);
        let limits = match (&self.limits, policy) {
            (Some(limits), _) => Arc::clone(limits),
            (None, Some(policy)) => DirtyLimits::with_policy(policy, &self.tunables)?,
            (None, None) => DirtyLimits::new(&self.tunables)?,
        };
        Ok(PageCache::with_limits(options, clock, &limits)?)
    }
}

/// How many flushers a device gets: as many as are asked for, or one where it seeks, and else as
/// many as there are processors, four at most.
pub(crate) fn flushers(asked: u32, is_rotational: bool) -> usize {
    match asked {
        0 if is_rotational => 1,
        0 => std::thread::available_parallelism().map_or(1, |count| count.get().min(FLUSHERS_MAX)),
        // Fits: at most 64.
        count => count as usize,
    }
}
