//! What one request costs on this machine: an empty file system is mounted for a moment, and asked
//! for a name that it does not have, with the server on the caller's CPU and on another one.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::mount::MountFlags;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::abi::{Attr, InitIn};
use crate::answer::Answer;
use crate::errno::{Errno, Result};
use crate::init::{self, Negotiated};
use crate::mount;
use crate::pending_reply::Channel;
use crate::reply::{Out, Validity};
use crate::request::{Operation, Request};
use crate::scheduling;
use crate::serve::Serve;
use crate::session::{How, Session};
use crate::transport::{Placement, Transport};

/// Requests that are timed.
const ROUNDS: usize = 1000;
/// How long they may take all together.
const LIMIT: Duration = Duration::from_millis(300);
const DIRECTORY: u32 = 0o040_555;

/// Medians of the time from the call of stat(2) to its return over `/dev/fuse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    /// Caller and server on one CPU.
    pub one_cpu: Duration,
    /// On two; `None` where this process may use one alone.
    pub two_cpus: Option<Duration>,
}

/// Measures them, in less than a second. The place of the mount is made in the directory for
/// temporary files and removed afterwards.
///
/// # Errors
/// Those of mounting, as for any mount of this user; of starting threads, of placing them.
pub fn round_trips() -> io::Result<RoundTrips> {
    let all = sched_getaffinity(None)?;
    let mut cpus = (0..CpuSet::MAX_CPU).filter(|cpu| all.is_set(*cpu));
    let none = || io::Error::from(io::ErrorKind::Unsupported);
    let first = cpus.next().ok_or_else(none)?;
    Ok(RoundTrips {
        one_cpu: measured(first, first)?,
        two_cpus: cpus
            .next()
            .map(|other| measured(first, other))
            .transpose()?,
    })
}

/// By a thread of its own, which places itself: the median with caller and server on these CPUs.
fn measured(caller: usize, server: usize) -> io::Result<Duration> {
    let measure = move || -> io::Result<Duration> {
        let dir = std::env::temp_dir().join(format!("uext4-cost-{}", std::process::id()));
        fs::create_dir(&dir)?;
        let result = mounted(&dir, caller, server);
        fs::remove_dir(&dir)?;
        result
    };
    let measured = thread::Builder::new().spawn(measure)?.join();
    measured.unwrap_or_else(|_| Err(io::Error::other("the measurement panicked")))
}

fn mounted(dir: &Path, caller: usize, server: usize) -> io::Result<Duration> {
    let pin = |cpu| match scheduling::only(cpu) {
        Some(one) => Ok(sched_setaffinity(None, &one)?),
        None => Err(io::Error::from(io::ErrorKind::Unsupported)),
    };
    let options = mount::Options {
        source: "uext4-cost".into(),
        flags: MountFlags::NOSUID | MountFlags::NODEV | MountFlags::RDONLY,
        allow_other: false,
        kernel_decides: false,
        nonempty: false,
    };
    let (fd, mounted) = mount::mount(dir, &options).map_err(io::Error::other)?;
    let how = How {
        threads: 1,
        transport: Transport::Dev,
        placement: Placement::Spread,
        ..How::default()
    };
    // Threads of the session run where this one does when it starts them.
    let begun = pin(server).and_then(|()| Session::begin(Arc::new(Empty::default()), fd, how));
    let times = begun.and_then(|session| Ok((session, pin(caller).map(|()| times(dir))?)));
    mounted.end().map_err(io::Error::other)?;
    let (session, mut times) = times?;
    session.wait().map_err(io::Error::other)?;
    times.sort_unstable();
    let median = times.get(times.len() / 2).copied();
    median.ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))
}

fn times(dir: &Path) -> Vec<Duration> {
    let end = Instant::now() + LIMIT;
    let names = (0..ROUNDS).map(|number| dir.join(number.to_string()));
    let until = names.take_while(|_| Instant::now() < end);
    until
        .map(|missing| {
            let begun = Instant::now();
            // It is not there.
            _ = fs::symlink_metadata(missing);
            begun.elapsed()
        })
        .collect()
}

/// A directory without a name in it.
#[derive(Debug, Default)]
struct Empty {
    negotiated: OnceLock<Negotiated>,
    validity: Validity,
}

impl Empty {
    fn greet(&self, asked: &InitIn, out: &mut Out<'_>) -> Result<()> {
        let (reply, negotiated) = init::agree(asked, init::Wishes::default())?;
        if let Some(negotiated) = negotiated {
            _ = self.negotiated.set(negotiated);
        }
        out.put(&reply)
    }
}

impl Serve for Empty {
    fn handle(
        self: &Arc<Self>,
        request: &Request<'_>,
        out: &mut Out<'_>,
        _: &Arc<dyn Channel>,
    ) -> Answer {
        match request.operation {
            Operation::Init(asked) => self.greet(&asked, out).into(),
            // An error, which the kernel does not remember.
            Operation::Lookup(_) => Answer::Now(Err(Errno::ENOENT)),
            Operation::Getattr(_) => {
                let attr = Attr {
                    ino: 1,
                    mode: DIRECTORY,
                    nlink: 2,
                    ..Attr::default()
                };
                out.put(&self.validity.attr(attr)).into()
            }
            Operation::Forget(_) | Operation::BatchForget(_) | Operation::Interrupt(_) => {
                Answer::Never
            }
            _ => Answer::Now(Err(Errno::ENOSYS)),
        }
    }

    fn negotiated(&self) -> Option<&Negotiated> {
        self.negotiated.get()
    }

    fn finish(&self) -> uext4::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_trip_takes_some_time_and_leaves_nothing() {
        if !rustix::process::geteuid().is_root() || !Path::new("/dev/fuse").exists() {
            println!("skipped: needs root and /dev/fuse");
            return;
        }
        let before = sched_getaffinity(None).unwrap();
        let found = round_trips().unwrap();
        assert!(found.one_cpu > Duration::ZERO);
        assert_eq!(found.two_cpus.is_some(), before.count() > 1);
        assert_eq!(sched_getaffinity(None).unwrap(), before);
        let dir = std::env::temp_dir().join(format!("uext4-cost-{}", std::process::id()));
        assert!(!dir.exists());
    }
}
