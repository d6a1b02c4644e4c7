//! Numbers that many threads add to and that are seldom read: statistics.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::PerThread;

/// `N` numbers that only grow, each with a part in every slot.
#[derive(Debug)]
pub struct Tally<const N: usize>(PerThread<[AtomicU64; N]>);

impl<const N: usize> Default for Tally<N> {
    fn default() -> Self {
        Self(PerThread::new(|| [const { AtomicU64::new(0) }; N]))
    }
}

impl<const N: usize> Tally<N> {
    /// Adds to the number at `index`, which is less than `N`.
    #[inline]
    pub fn add(&self, index: usize, more: u64) {
        self.0.get()[index].fetch_add(more, Relaxed);
    }

    /// The number at `index`, which is less than `N`: one read of each slot.
    pub fn sum(&self, index: usize) -> u64 {
        self.0.iter().map(|part| part[index].load(Relaxed)).sum()
    }
}

/// Declares counters once: as the numbers of a [`Tally`], and as the snapshot with what each means.
/// Fields of the snapshot that are no counters come first, and are 0 in what `snapshot` returns.
///
/// ```
/// uext4_support::counters! {
///     /// What was done so far.
///     pub struct Stats { /// Things there are now.
///         pub things: u64, }
///     pub(crate) enum Counter;
///     /// Things that came.
///     creates Creates,
/// }
/// let tally = Tally::default();
/// tally.add(Counter::Creates as usize, 2);
/// let stats = Stats { things: 1, ..snapshot(&tally) };
/// assert_eq!(stats, Stats { things: 1, creates: 2 });
/// assert_eq!(stats.each().collect::<Vec<_>>(), [("things", 1), ("creates", 2)]);
/// ```
#[macro_export]
macro_rules! counters {
    (
        $(#[$stats_doc:meta])*
        pub struct $stats:ident { $($(#[$plain_doc:meta])* pub $plain:ident: u64,)* }
        $visible:vis enum $counter:ident;
        $($(#[$doc:meta])* $field:ident $name:ident,)*
    ) => {
        $(#[$stats_doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $stats {
            $($(#[$plain_doc])* pub $plain: u64,)*
            $($(#[$doc])* pub $field: u64,)*
        }

        impl $stats {
            /// Each number under the name of its field.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [
                    $((stringify!($plain), self.$plain),)*
                    $((stringify!($field), self.$field),)*
                ]
                .into_iter()
            }
        }

        #[derive(Clone, Copy, Debug)]
        $visible enum $counter {
            $($name,)*
        }

        /// The numbers of all counters.
        type Tally = $crate::Tally<{ [$($counter::$name),*].len() }>;

        /// The counters' fields.
        fn snapshot(tally: &Tally) -> $stats {
            $stats {
                $($plain: 0,)*
                $($field: tally.sum($counter::$name as usize),)*
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::Tally;

    #[test]
    fn what_all_threads_add_is_summed() {
        let tally = Tally::<2>::default();
        thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| (0..100).for_each(|more| tally.add(1, more)));
            }
        });
        assert_eq!((tally.sum(0), tally.sum(1)), (0, 40 * 4950));
    }
}
