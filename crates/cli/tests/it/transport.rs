//! The two ways on which requests come to a mount, as a parameter of tests.

use std::fs;
use std::path::Path;

use crate::host::RingsAllowed;
use crate::served::can_serve;

/// How the kernel's requests come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// `/dev/fuse`.
    Dev,
    /// FUSE over io_uring.
    Rings,
    /// `/dev/fuse`, and the kernel gathers what is written.
    Gathering,
}

/// Makes tests of functions that take a transport: `dev::name` and `rings::name`.
macro_rules! over_each {
    ($($name:ident),* $(,)?) => {
        mod dev {
            $(
                #[test]
                fn $name() {
                    super::$name($crate::transport::Transport::Dev);
                }
            )*
        }
        mod rings {
            $(
                #[test]
                fn $name() {
                    super::$name($crate::transport::Transport::Rings);
                }
            )*
        }
    };
}
pub(crate) use over_each;

/// The same where the kernel gathers what is written: `gathering::name`.
macro_rules! gathering {
    ($($name:ident),* $(,)?) => {
        mod gathering {
            $(
                #[test]
                fn $name() {
                    super::$name($crate::transport::Transport::Gathering);
                }
            )*
        }
    };
}
pub(crate) use gathering;

/// Threads of a daemon whose names begin so.
pub fn threads(daemon: &str, prefix: &str) -> usize {
    let tasks = fs::read_dir(Path::new("/proc").join(daemon).join("task")).unwrap();
    let names = tasks
        .flatten()
        .map(|task| fs::read_to_string(task.path().join("comm")).unwrap_or_default());
    names.filter(|name| name.starts_with(prefix)).count()
}

impl Transport {
    /// True if mounts over it can be had; else says that the test is skipped.
    pub fn can_serve(self) -> bool {
        can_serve() && (self != Self::Rings || RingsAllowed::can_be_had())
    }

    /// The options, and the one that asks for it.
    pub fn with(self, options: &str) -> String {
        let name = match self {
            Self::Dev => "dev",
            Self::Rings => "io_uring",
            Self::Gathering => "dev,writeback_cache=on",
        };
        format!("{options},transport={name}")
    }

    /// Mounts. The machine's permission is held for so long only: a mount keeps its rings, and
    /// others who want it need not wait for the end of a test.
    pub fn mount<T>(self, mount: impl FnOnce() -> T) -> T {
        // OK to be none: then the option is refused, and the mount fails.
        let _allowed = (self == Self::Rings).then(RingsAllowed::new);
        mount()
    }

    /// What serves must do so over this.
    pub fn assert_serves(self, daemon: &str) {
        let queues = threads(daemon, "uext4-ring-");
        assert_eq!(queues > 0, self == Self::Rings, "{queues} queues");
    }
}
