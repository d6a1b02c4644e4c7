//! How many queues there are, and how much each has.

use crate::init::{IO_MAX, IO_MIN};

/// Fewest entries of a queue before payloads become smaller.
const DEPTH_FEW: usize = 4;
/// Fewest entries of a queue: others are added where their requests are answered late.
const DEPTH_MIN: usize = 2;
/// Most entries that a queue begins with.
const DEPTH_MAX: usize = 64;

/// The sizes of all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Queues: the CPUs there may be, as the kernel counts them.
    pub queues: u16,
    /// Entries that each begins with, and as many are free of requests that are answered late.
    pub depth: usize,
    /// Entries of each that may hold more than a page of memory.
    pub resident: usize,
    /// Bytes of each entry's payload: the largest write and read.
    pub io_max: u32,
}

impl Sizes {
    /// Those that are right for this machine, where payloads may take so many bytes, and whether
    /// so few are enough. `None` where it does not report how many CPUs it has: with a queue less
    /// than that, the kernel would wait for it for ever.
    pub fn of_machine(payloads: usize) -> Option<(Self, bool)> {
        let count = |list| {
            let path = format!("/sys/devices/system/cpu/{list}");
            cpus_in(&std::fs::read_to_string(path).ok()?)
        };
        let possible = count("possible")?;
        let online = count("online").unwrap_or(possible);
        Some(Self::of(possible, online.clamp(1, possible), payloads))
    }

    /// With so many possible CPUs, of which so many are there.
    fn of(possible: u16, online: u16, payloads: usize) -> (Self, bool) {
        let online = usize::from(online);
        let mut io_max = IO_MAX;
        while online * DEPTH_FEW * io_max as usize > payloads && io_max > IO_MIN {
            io_max /= 2;
        }
        let fitting = payloads / (online * io_max as usize);
        let resident = fitting.max(DEPTH_MIN);
        let sizes = Self {
            queues: possible,
            depth: resident.min(DEPTH_MAX),
            resident,
            io_max,
        };
        (sizes, fitting >= DEPTH_MIN)
    }
}

/// CPUs in a list such as `0-3,8`; `None` for what is no such list.
fn cpus_in(list: &str) -> Option<u16> {
    list.trim().split(',').try_fold(0u16, |sum, range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<u16>().ok()?, last.parse::<u16>().ok()?);
        sum.checked_add(last.checked_sub(first)?.checked_add(1)?)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_cpus() {
        for (list, count) in [("0\n", 1), ("0-1\n", 2), ("0-3,8,10-11", 7)] {
            assert_eq!(cpus_in(list), Some(count), "{list}");
        }
        for list in ["", "x-y", "3-1", "0,", "0-70000", "0-65535"] {
            assert_eq!(cpus_in(list), None, "{list}");
        }
        assert!(Sizes::of_machine(64 << 20).is_some());
    }

    #[test]
    fn memory_is_bounded_on_every_machine_and_by_every_budget() {
        for payloads in [1 << 20, 2 << 20, 8 << 20, 100 << 20, 512 << 20] {
            for online in 1..=1024u16 {
                let (sizes, fits) = Sizes::of(2048, online, payloads);
                let all = usize::from(online) * sizes.resident * sizes.io_max as usize;
                assert_eq!(all <= payloads, fits, "{sizes:?}");
                assert!(sizes.depth <= sizes.resident && sizes.depth >= DEPTH_MIN);
                assert!(sizes.io_max >= IO_MIN && sizes.queues == 2048);
            }
        }
        let at = |online, mib: usize| {
            let (sizes, fits) = Sizes::of(online, online, mib << 20);
            fits.then_some((sizes.depth, sizes.io_max >> 10))
        };
        assert_eq!(at(2, 512), Some((DEPTH_MAX, 1024)));
        assert_eq!(at(64, 512), Some((8, 1024)));
        assert_eq!(at(1024, 512), Some((4, 128)));
        assert_eq!(at(2, 2), Some((4, 256)));
        assert_eq!(at(8, 2), Some((2, 128)));
        assert_eq!(at(9, 2), None);
    }
}
