//! How bytes come from the kernel and go back: `/dev/fuse`, or a ring for each CPU.

pub mod dev;
mod trials;
pub mod uring;

/// Which way is gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// Over io_uring where the kernel allows it, else over `/dev/fuse`.
    #[default]
    Auto,
    /// `/dev/fuse`.
    Dev,
    /// io_uring, or not at all.
    Uring,
}

/// On which CPU requests are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Placement {
    /// Those of a single stream on that of their caller.
    #[default]
    Auto,
    /// Over `/dev/fuse` wherever the scheduler puts the thread that reads them; a ring's thread on
    /// its own, from which the caller may be moved.
    Spread,
}

impl Transport {
    /// Whether a mount that begins now may serve over io_uring.
    #[must_use]
    pub fn may_use_rings(self) -> bool {
        self != Self::Dev && uring::is_allowed()
    }

    /// Whether what is wanted is there, as far as can be reported before a mount.
    ///
    /// # Errors
    /// `NO_RINGS` where io_uring must be and is not allowed.
    pub fn check(self) -> Result<(), &'static str> {
        match self {
            Self::Uring if !uring::is_allowed() => Err(NO_RINGS),
            _ => Ok(()),
        }
    }
}

/// Why a mount over io_uring is refused.
pub const NO_RINGS: &str = "the kernel does not offer FUSE over io_uring";
