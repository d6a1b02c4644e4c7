//! How many queues there are, and how much each has.

use crate::init::IO_MAX;

/// Most bytes of the payloads of all entries. They take memory only once they were all needed at the
/// same time.
const PAYLOADS_MAX: usize = 512 << 20;
/// Fewest entries of a queue: of those, some may be answered late.
const DEPTH_MIN: usize = 4;
/// Most entries of a queue.
const DEPTH_MAX: usize = 32;
/// Fewest bytes of a payload: a name and the largest extended attribute have less.
const IO_MIN: u32 = 128 << 10;

/// The sizes of all queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Queues: the CPUs there may be, as the kernel counts them.
    pub queues: u16,
    /// Entries of each.
    pub depth: usize,
    /// Bytes of each entry's payload: the largest write and read.
    pub io_max: u32,
}

impl Sizes {
    /// Those that are right for this machine; `None` where it does not tell how many CPUs it has: with a
    /// queue less than that, the kernel would wait for it for ever.
    pub fn of_machine() -> Option<Self> {
        let count = |list| {
            let path = format!("/sys/devices/system/cpu/{list}");
            cpus_in(&std::fs::read_to_string(path).ok()?)
        };
        let possible = count("possible")?;
        let online = count("online").unwrap_or(possible);
        Some(Self::of(possible, online.clamp(1, possible)))
    }

    /// With so many possible CPUs, of which so many are there.
    fn of(possible: u16, online: u16) -> Self {
        let online = usize::from(online);
        let mut io_max = IO_MAX;
        while online * DEPTH_MIN * io_max as usize > PAYLOADS_MAX && io_max > IO_MIN {
            io_max /= 2;
        }
        let depth = PAYLOADS_MAX / (online * io_max as usize);
        Self {
            queues: possible,
            depth: depth.clamp(DEPTH_MIN, DEPTH_MAX),
            io_max,
        }
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
        assert!(Sizes::of_machine().is_some());
    }

    #[test]
    fn memory_is_bounded_on_every_machine() {
        assert_eq!(Sizes::of(2, 2).depth, DEPTH_MAX);
        for online in 1..=1024u16 {
            let sizes = Sizes::of(2048, online);
            let all = usize::from(online) * sizes.depth * sizes.io_max as usize;
            assert!(all <= PAYLOADS_MAX, "{sizes:?}");
            assert!(sizes.depth >= DEPTH_MIN && sizes.io_max >= IO_MIN);
            assert_eq!(sizes.queues, 2048);
        }
        assert_eq!(Sizes::of(64, 64).io_max, IO_MAX);
    }
}
