//! The budget over subsystems that are numbers.

use super::*;
use proptest::prelude::*;

/// So many bytes, of which some cannot go.
#[derive(Default)]
struct Toy {
    memory: AtomicU64,
    pinned: AtomicU64,
    limit: AtomicU64,
    scanned: AtomicU64,
}

impl Shrinker for Toy {
    fn memory(&self) -> u64 {
        self.memory.load(Relaxed)
    }

    fn count(&self) -> u64 {
        self.memory() - self.pinned.load(Relaxed)
    }

    fn scan(&self, bytes: u64) -> u64 {
        self.scanned.fetch_add(1, Relaxed);
        let freed = bytes.min(self.count());
        self.memory.fetch_sub(freed, Relaxed);
        freed
    }

    fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Relaxed);
    }
}

const MIB: u64 = 1 << 20;

/// A budget of 64 MiB and subsystems that take so many MiB.
fn toys(taken: [u64; CACHES]) -> (Memory, [Toy; CACHES]) {
    let toys = taken.map(|taken| Toy {
        memory: AtomicU64::new(taken * MIB),
        ..Toy::default()
    });
    (Memory::new(64 * MIB), toys)
}

fn caches(toys: &[Toy; CACHES]) -> Caches<'_> {
    toys.each_ref().map(|toy| toy as &dyn Shrinker)
}

fn taken(toys: &[Toy; CACHES]) -> [u64; CACHES] {
    toys.each_ref().map(|toy| toy.memory() / MIB)
}

/// Whether all take so many MiB together; each subsystem's share is rounded up.
fn is_about(memory: &Memory, toys: &[Toy; CACHES], mib: u64) -> bool {
    let total = memory.usage(&caches(toys)).total();
    (mib * MIB - 8..=mib * MIB).contains(&total)
}

proptest! {
    #[test]
    fn shares_are_in_proportion(want: u64, counts in prop::array::uniform4(prop_oneof![
        Just(0u64), 1..1000u64, any::<u64>(),
    ])) {
        let got = shares(want, counts);
        let all: u128 = counts.iter().copied().map(u128::from).sum();
        let sum: u128 = got.iter().copied().map(u128::from).sum();
        let least = u128::from(want).min(all);
        prop_assert!((least..least + 4).contains(&sum));
        for (share, count) in got.into_iter().zip(counts) {
            prop_assert!(share <= count);
            let exact = least * u128::from(count);
            prop_assert!(u128::from(share) * all >= exact);
            prop_assert!(u128::from(share).saturating_sub(1) * all <= exact);
        }
    }
}

#[test]
fn a_sixteenth_is_left_free_and_the_large_give_most() {
    let (memory, toys) = toys([0, 2, 2, 0, 20, 40, 0]);
    assert!(!memory.look(&caches(&toys)));
    // From 64 to 56, an eighth of each.
    let left = toys.each_ref().map(Toy::memory);
    assert_eq!(left.map(|left| left * 4 / MIB), [0, 7, 7, 0, 70, 140, 0]);
    assert_eq!(left.iter().sum::<u64>(), 56 * MIB);
    // Between the marks nothing is done.
    toys[1].memory.fetch_add(3 * MIB, Relaxed);
    assert!(!memory.look(&caches(&toys)));
    assert_eq!(toys[5].scanned.load(Relaxed), 1);
    let usage = memory.usage(&caches(&toys));
    assert_eq!((usage.direct_reclaims, usage.reclaimed), (1, 8 * MIB));
    assert_eq!(usage.total(), 59 * MIB);
    // The thread goes on to the low mark.
    assert!(!memory.background(&caches(&toys)));
    assert!(is_about(&memory, &toys, 52));
}

#[test]
fn pinned_blocks_are_reported_and_not_scanned_again() {
    let (memory, toys) = toys([0, 1, 1, 0, 61, 1, 0]);
    toys[4].pinned.store(61 * MIB, Relaxed);
    assert!(memory.look(&caches(&toys)));
    assert_eq!(taken(&toys), [0, 0, 0, 0, 61, 0, 0]);
    let scans = || toys.each_ref().map(|toy| toy.scanned.load(Relaxed));
    let before = scans();
    for _ in 0..10 {
        assert!(memory.look(&caches(&toys)));
    }
    assert_eq!(scans(), before);
    // It grows: worth another try, which gets what is new.
    toys[1].memory.fetch_add(2 * MIB, Relaxed);
    assert!(memory.look(&caches(&toys)));
    assert_eq!(taken(&toys), [0, 0, 0, 0, 61, 0, 0]);
    // Something was written: it can go now.
    toys[4].pinned.store(0, Relaxed);
    assert!(memory.look(&caches(&toys)));
    memory.drained();
    assert!(!memory.look(&caches(&toys)));
    assert_eq!(taken(&toys), [0, 0, 0, 0, 56, 0, 0]);
}

#[test]
fn caches_grow_into_free_memory() {
    let (memory, toys) = toys([0, 1, 1, 0, 10, 8, 0]);
    memory.look(&caches(&toys));
    let limits = || toys.each_ref().map(|toy| toy.limit.load(Relaxed) / MIB);
    assert_eq!(limits(), [40, 41, 41, 40, 50, 48, 40]);
    toys[5].memory.store(48 * MIB, Relaxed);
    memory.look(&caches(&toys));
    // Full; but a sixteenth of the limit is every user's.
    assert_eq!(limits(), [4, 4, 4, 4, 10, 48, 4]);
}

#[test]
fn looks_are_left_out_only_where_much_is_free() {
    let toys = toys([0, 1, 1, 0, 10, 8, 0]).1;
    let memory = Memory::new(1024 * MIB);
    let limit = || toys[5].limit.load(Relaxed) / MIB;
    memory.look(&caches(&toys));
    let before = limit();
    toys[4].memory.store(900 * MIB, Relaxed);
    assert!(!memory.look(&caches(&toys)));
    assert_eq!(limit(), before, "a look right after another is left out");
    for _ in 0..SPARED_MAX {
        memory.look(&caches(&toys));
    }
    assert!(limit() < before);
    // Now little is free, and each look sees what was taken meanwhile.
    toys[4].memory.store(1020 * MIB, Relaxed);
    memory.look(&caches(&toys));
    assert!(memory.usage(&caches(&toys)).total() <= 896 * MIB);
}

#[test]
fn pressure_lowers_what_may_be_taken() {
    let (memory, toys) = toys([0, 0, 0, 0, 20, 30, 0]);
    let text = |avg10: &str| format!("some avg10={avg10} avg60=0.00 avg300=0.00 total=1\n");
    assert!(!memory.look(&caches(&toys)));
    assert_eq!(taken(&toys), [0, 0, 0, 0, 20, 30, 0]);
    for _ in 0..20 {
        memory.pressed(Some(&text("25.00")));
    }
    assert_eq!(memory.limit(), 16 * MIB);
    assert!(!memory.look(&caches(&toys)));
    assert!(is_about(&memory, &toys, 14));
    // Where the kernel does not report, it rises again.
    memory.pressed(None);
    assert_eq!(memory.limit(), 17 * MIB);
    for _ in 0..100 {
        memory.pressed(Some(&text("0.00")));
    }
    assert_eq!(memory.limit(), 64 * MIB);
}

#[test]
fn a_budget_is_never_too_small_for_one_operation() {
    assert_eq!(Memory::new(0).limit(), MIB);
}
