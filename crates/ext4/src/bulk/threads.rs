//! Work that several threads share. Its results do not depend on how many there are.

use std::num::NonZeroUsize;
use std::thread;

use parking_lot::Mutex;
use uext4_ondisk::pack::PackError;
use uext4_ondisk::pack::directory::{DirShape, HashedNames, Plan};

/// Fewest names that are worth a thread.
const NAMES_MIN: u32 = 1 << 14;

/// The number of threads that this machine runs at the same time.
pub(super) fn available() -> NonZeroUsize {
    thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// Calls `work` for every item. The calling thread works too; if the system starts no more
/// threads, it does everything.
pub(super) fn for_each<T: Send>(
    threads: NonZeroUsize,
    items: impl Iterator<Item = T> + Send,
    work: impl Fn(T) + Sync,
) {
    let items = Mutex::new(items);
    let run = || {
        loop {
            // The lock is free again before the item is worked on.
            let item = items.lock().next();
            match item {
                Some(item) => work(item),
                None => return,
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.get() {
            if thread::Builder::new().spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
}

/// Plans a directory of `count` names; a large one by several threads.
pub(super) fn plan<'a>(
    shape: &DirShape,
    threads: NonZeroUsize,
    count: u32,
    name: impl Fn(u32) -> &'a [u8] + Sync,
) -> Result<Plan, PackError> {
    let threads = threads.get().min((count / NAMES_MIN) as usize);
    let threads = match NonZeroUsize::new(threads) {
        Some(threads) if threads > NonZeroUsize::MIN => threads,
        _ => return shape.plan(count, name),
    };
    if !shape.is_indexed(count, &name)? {
        return shape.plan(count, name);
    }
    let len = (count as usize).div_ceil(threads.get()) as u32;
    let ranges = (0..count).step_by(len as usize);
    let ranges = ranges.map(|first| first..count.min(first.saturating_add(len)));
    let mut parts: Vec<_> = ranges.map(|r| (r, HashedNames::default())).collect();
    for_each(threads, parts.iter_mut(), |(range, part)| {
        *part = shape.hash(range.clone(), &name);
    });
    let parts = parts.into_iter().map(|(_, part)| part).collect();
    shape.plan_indexed(parts, name)
}
