//! The first words between the kernel and us: what both can do.

use zerocopy::{FromBytes, IntoBytes};

use crate::abi::flags::init;
use crate::abi::{FUSE_KERNEL_MINOR_VERSION, FUSE_KERNEL_VERSION, InitIn, InitOut, MINOR_MIN};
use crate::errno::{Errno, Result};

/// Most bytes of a write, and of a read: what the kernel allows by default (256 pages of 4 KiB).
pub const IO_MAX: u32 = 1 << 20;
/// Fewest bytes of a payload: a name and the largest extended attribute have less.
pub const IO_MIN: u32 = 128 << 10;
/// Pages of a request without `MAX_PAGES`.
const PAGES_DEFAULT: u32 = 32;
/// Requests no thread waits for that may be under way at once, readahead above all.
const BACKGROUND_MAX: u16 = 64;

/// What we want where the kernel has it.
///
/// `ASYNC_DIO` is not among it. With it, the kernel does not drop the pages that buffered readers
/// load while an asynchronous direct write is under way, so they read old data for good; and it
/// turns a direct write of which only a part fits into `EIO`.
const WANTED: u64 = init::ASYNC_READ
    | init::ATOMIC_O_TRUNC
    | init::EXPORT_SUPPORT
    | init::BIG_WRITES
    | init::DONT_MASK
    | init::HAS_IOCTL_DIR
    | init::DO_READDIRPLUS
    | init::READDIRPLUS_AUTO
    | init::PARALLEL_DIROPS
    | init::POSIX_ACL
    | init::ABORT_ERROR
    | init::MAX_PAGES
    | init::CACHE_SYMLINKS
    | init::NO_OPENDIR_SUPPORT
    | init::EXPLICIT_INVAL_DATA
    | init::HANDLE_KILLPRIV_V2
    | init::SETXATTR_EXT
    | init::INIT_EXT
    | init::OVER_IO_URING;

/// What was agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// The flags both have.
    pub flags: u64,
    /// The minor version spoken.
    pub minor: u32,
    /// The one that the kernel knows.
    pub kernel_minor: u32,
}

impl Negotiated {
    /// Whether all of these were agreed on.
    pub fn has(&self, flags: u64) -> bool {
        self.flags & flags == flags
    }
}

/// What the transport can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// The bits of what it cannot do.
    pub without: u64,
    /// Most bytes of a write, and of a read.
    pub io_max: u32,
}

impl Default for Terms {
    /// Those of `/dev/fuse`.
    fn default() -> Self {
        Self {
            without: init::OVER_IO_URING,
            io_max: IO_MAX,
        }
    }
}

impl Terms {
    /// Those of `/dev/fuse` where so many threads, each with a request and a reply, may take so
    /// many bytes.
    pub fn of_device(threads: usize, payloads: usize) -> Self {
        let each = payloads / (2 * threads.max(1));
        let mut terms = Self::default();
        while terms.io_max as usize > each && terms.io_max > IO_MIN {
            terms.io_max /= 2;
        }
        terms
    }

    /// Takes what the transport cannot do from what the kernel asks for.
    pub fn narrow(&self, asked: &mut InitIn) {
        // OK to truncate: the halves.
        asked.flags &= !(self.without as u32);
        asked.flags2 &= !((self.without >> 32) as u32);
    }

    /// Bounds what an answer to INIT allows.
    pub fn limit(&self, answer: &mut [u8]) {
        if let Ok((mut reply, _)) = InitOut::read_from_prefix(answer) {
            let page = reply.max_write / u32::from(reply.max_pages).max(1);
            reply.max_write = reply.max_write.min(self.io_max);
            // OK to truncate: no more than there were.
            reply.max_pages = (reply.max_write / page.max(1)) as u16;
            _ = reply.write_to_prefix(answer);
        }
    }
}

/// What a file system asks for, beyond what every one does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wishes {
    /// Further flags that are wanted where the kernel has them.
    pub flags: u64,
    /// The steps of times, in nanoseconds.
    pub time_gran: u32,
    /// Bytes of a page of the machine, which the protocol counts in.
    pub page: u32,
}

impl Default for Wishes {
    /// Nothing more, of a file system with nanoseconds.
    fn default() -> Self {
        Self {
            flags: 0,
            time_gran: 1,
            page: 4096,
        }
    }
}

/// Answers INIT. Gives no negotiated protocol where the kernel speaks a newer major version: it
/// receives ours, and comes again.
///
/// # Errors
/// `EPROTO` for a kernel too old to be understood.
pub fn agree(asked: &InitIn, wishes: Wishes) -> Result<(InitOut, Option<Negotiated>)> {
    let Wishes {
        time_gran, page, ..
    } = wishes;
    let ours = InitOut {
        major: FUSE_KERNEL_VERSION,
        minor: FUSE_KERNEL_MINOR_VERSION,
        ..InitOut::default()
    };
    if asked.major > FUSE_KERNEL_VERSION {
        return Ok((ours, None));
    }
    if asked.major < FUSE_KERNEL_VERSION || asked.minor < MINOR_MIN {
        return Err(Errno::EPROTO);
    }
    let mut offered = u64::from(asked.flags);
    if offered & init::INIT_EXT != 0 {
        offered |= u64::from(asked.flags2) << 32;
    }
    let flags = offered & (WANTED | wishes.flags);
    let negotiated = Negotiated {
        flags,
        minor: asked.minor.min(FUSE_KERNEL_MINOR_VERSION),
        kernel_minor: asked.minor,
    };
    // Reads are bounded by the same number of pages, and by the option `max_read`.
    let pages = IO_MAX / page.clamp(1, IO_MAX);
    let pages = match negotiated.has(init::MAX_PAGES) {
        true => pages,
        false => pages.min(PAGES_DEFAULT),
    };
    let max_write = pages.saturating_mul(page).min(IO_MAX);
    let reply = InitOut {
        minor: negotiated.minor,
        max_readahead: asked.max_readahead,
        // OK to truncate: the halves.
        flags: flags as u32,
        flags2: (flags >> 32) as u32,
        max_background: BACKGROUND_MAX,
        congestion_threshold: BACKGROUND_MAX / 4 * 3,
        max_write,
        time_gran,
        // OK to truncate: pages have 4 KiB at least.
        max_pages: pages as u16,
        ..ours
    };
    Ok((reply, Some(negotiated)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wishes(page: u32) -> Wishes {
        Wishes {
            page,
            ..Wishes::default()
        }
    }

    #[test]
    fn only_what_was_offered_is_agreed_on() {
        let offered = init::INIT_EXT | init::MAX_PAGES | init::WRITEBACK_CACHE | init::POSIX_ACL;
        let asked = InitIn {
            major: 7,
            minor: 45,
            max_readahead: 131_072,
            flags: offered as u32,
            flags2: u32::MAX,
            ..InitIn::default()
        };
        let (reply, negotiated) = agree(&asked, wishes(4096)).unwrap();
        let negotiated = negotiated.unwrap();
        let agreed = offered & !init::WRITEBACK_CACHE;
        assert_eq!(negotiated.flags, agreed | init::OVER_IO_URING);
        assert_eq!(u64::from(reply.flags), agreed);
        assert_eq!(
            (reply.major, reply.minor, reply.flags2),
            (7, FUSE_KERNEL_MINOR_VERSION, 1 << 9)
        );
        assert_eq!((reply.max_write, reply.max_pages), (1 << 20, 256));
        assert!(!negotiated.has(init::SETXATTR_EXT));
    }

    #[test]
    fn direct_writes_stay_synchronous() {
        let asked = InitIn {
            major: 7,
            minor: 45,
            flags: u32::MAX,
            ..InitIn::default()
        };
        let negotiated = agree(&asked, wishes(4096)).unwrap().1.unwrap();
        assert!(negotiated.has(init::ASYNC_READ));
        assert!(!negotiated.has(init::ASYNC_DIO));
    }

    #[test]
    fn negotiation_takes_offered_features_within_limits() {
        let mut asked = InitIn {
            major: 7,
            minor: 45,
            flags: u32::MAX,
            flags2: u32::MAX,
            ..InitIn::default()
        };
        Terms::default().narrow(&mut asked);
        assert_eq!((asked.flags, asked.flags2), (u32::MAX, !(1 << 9)));
        let (reply, negotiated) = agree(&asked, wishes(4096)).unwrap();
        assert!(!negotiated.unwrap().has(init::OVER_IO_URING));
        let mut answer = reply.as_bytes().to_vec();
        let terms = Terms {
            without: 0,
            io_max: 256 << 10,
        };
        terms.limit(&mut answer);
        let limited = InitOut::read_from_bytes(&answer).unwrap();
        assert_eq!((limited.max_write, limited.max_pages), (256 << 10, 64));
        assert_eq!(limited.flags, reply.flags);
        terms.limit(&mut answer[..10]);
    }

    #[test]
    fn threads_share_the_memory_of_requests() {
        let io_max = |threads, mib: usize| Terms::of_device(threads, mib << 20).io_max;
        assert_eq!(io_max(4, 512), IO_MAX);
        assert_eq!(io_max(4, 8), IO_MAX);
        assert_eq!(io_max(4, 2), 256 << 10);
        assert_eq!(io_max(64, 2), IO_MIN);
    }

    #[test]
    fn pages_are_those_of_the_machine() {
        let with = |flags: u64, page| {
            let asked = InitIn {
                major: 7,
                minor: 45,
                flags: flags as u32,
                ..InitIn::default()
            };
            let reply = agree(&asked, wishes(page)).unwrap().0;
            (reply.max_write, reply.max_pages)
        };
        assert_eq!(with(init::MAX_PAGES, 4096), (1 << 20, 256));
        assert_eq!(with(init::MAX_PAGES, 16_384), (1 << 20, 64));
        assert_eq!(with(init::MAX_PAGES, 65_536), (1 << 20, 16));
        assert_eq!(with(0, 4096), (128 << 10, 32));
        // 32 of these would be more than fits in our memory for one.
        assert_eq!(with(0, 65_536), (1 << 20, 16));
    }

    #[test]
    fn old_and_new_kernels() {
        let of = |major, minor| InitIn {
            major,
            minor,
            ..InitIn::default()
        };
        assert_eq!(agree(&of(7, 30), wishes(4096)), Err(Errno::EPROTO));
        assert_eq!(agree(&of(6, 99), wishes(4096)), Err(Errno::EPROTO));
        let (reply, negotiated) = agree(&of(8, 0), wishes(4096)).unwrap();
        assert_eq!((reply.major, negotiated), (7, None));
        let (reply, negotiated) = agree(&of(7, 31), wishes(4096)).unwrap();
        assert_eq!((reply.minor, reply.max_write), (31, 128 << 10));
        assert_eq!(negotiated.unwrap().minor, 31);
    }
}
