//! Who writes, as throttling sees it: a thread of the kernel's side is a writer of its own.
//!
//! Those that wrote of late are known; who has written nothing while many others did is forgotten, and
//! begins anew. Pages changed through mappings are written by nobody in particular: writer 0.
//!
//! Lock: one for the table, a leaf; one a writer, held while it writes.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use uext4::Writer;

/// Writers that are young before those that were young grow old, and the old are forgotten.
const YOUNG_MAX: usize = 512;

/// A writer of one thread.
pub type Shared = Arc<Mutex<Writer>>;

#[derive(Debug, Default)]
struct Table {
    young: FxHashMap<u32, Shared>,
    old: FxHashMap<u32, Shared>,
}

/// The writers of late.
#[derive(Debug, Default)]
pub struct Writers(Mutex<Table>);

impl Writers {
    /// The writer that a thread is.
    pub fn of(&self, pid: u32) -> Shared {
        let table = &mut *self.0.lock();
        if let Some(writer) = table.young.get(&pid) {
            return Arc::clone(writer);
        }
        let writer = table.old.remove(&pid).unwrap_or_default();
        if table.young.len() >= YOUNG_MAX {
            table.old = std::mem::take(&mut table.young);
        }
        table.young.insert(pid, Arc::clone(&writer));
        writer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_writes_stays_the_same_writer_and_memory_is_bounded() {
        let writers = Writers::default();
        let first = writers.of(1);
        for pid in 2..10_000 {
            writers.of(pid);
            assert!(Arc::ptr_eq(&writers.of(1), &first));
        }
        let table = writers.0.lock();
        assert!(table.young.len() + table.old.len() <= 2 * YOUNG_MAX);
    }
}
