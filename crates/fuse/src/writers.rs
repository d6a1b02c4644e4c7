//! Writers, as throttling sees them: a thread of the kernel's side is a writer of its
//! own.
//!
//! Those that wrote lately are known; who has written nothing while many others did is
//! forgotten, and begins anew. Pages changed through mappings are written by no writer in
//! particular: those of a file have a writer of their own. So have those who write it from a pid
//! namespace that is not seen from here, of whom the kernel reports no number.
//!
//! Lock: one for the table, a leaf; one a writer, held while it writes.

use std::sync::Arc;

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use uext4::data::Writer;

/// Writers that are young before those that were young grow old, and the old are forgotten.
const YOUNG_MAX: usize = 512;

/// A writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Who {
    /// A thread of the kernel's side.
    Thread(u32),
    /// Mappings of the file with this node.
    Mapped(u64),
    /// Threads without a number, who write the file with this node.
    Unseen(u64),
}

impl Who {
    /// The writer of a file: the thread with this number, 0 if there is none.
    pub fn asks(pid: u32, node: u64) -> Self {
        match pid {
            0 => Self::Unseen(node),
            _ => Self::Thread(pid),
        }
    }
}

/// A writer of one thread, or of one file.
pub type Shared = Arc<Mutex<Writer>>;

#[derive(Debug, Default)]
struct Table {
    young: FxHashMap<Who, Shared>,
    old: FxHashMap<Who, Shared>,
}

/// The latest writers.
#[derive(Debug, Default)]
pub struct Writers(Mutex<Table>);

impl Writers {
    /// The writer that a thread is.
    pub fn of(&self, who: Who) -> Shared {
        let table = &mut *self.0.lock();
        if let Some(writer) = table.young.get(&who) {
            return Arc::clone(writer);
        }
        let writer = table.old.remove(&who).unwrap_or_default();
        if table.young.len() >= YOUNG_MAX {
            table.old = std::mem::take(&mut table.young);
        }
        table.young.insert(who, Arc::clone(&writer));
        writer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_writers_are_distinguished_by_their_data() {
        assert_eq!(Who::asks(7, 1), Who::asks(7, 2));
        assert_ne!(Who::asks(0, 1), Who::asks(0, 2));
        assert_ne!(Who::asks(0, 1), Who::Mapped(1));
    }

    #[test]
    fn a_writer_keeps_its_identity_and_memory_is_bounded() {
        let writers = Writers::default();
        let first = writers.of(Who::Thread(1));
        let mapped = writers.of(Who::Mapped(1));
        for pid in 2..10_000 {
            writers.of(Who::Thread(pid));
            assert!(Arc::ptr_eq(&writers.of(Who::Thread(1)), &first));
            assert!(Arc::ptr_eq(&writers.of(Who::Mapped(1)), &mapped));
        }
        assert!(!Arc::ptr_eq(&first, &mapped));
        assert!(!Arc::ptr_eq(&writers.of(Who::Mapped(2)), &mapped));
        let table = writers.0.lock();
        assert!(table.young.len() + table.old.len() <= 2 * YOUNG_MAX);
    }
}
