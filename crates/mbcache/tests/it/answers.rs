//! Any index against a map: an inode has the content that was set last, whatever is shared, dropped
//! or freed; by one thread, and by real threads on few contents.

use std::thread;

use proptest::prelude::*;
use uext4_mbcache::Created;
use uext4_testkit::SplitMix64;

use super::DESIGNS;
use super::disk::{Design, Disk, Limits};

/// With as many entries as the design has.
fn unlimited(users_max: u32) -> Limits {
    Limits {
        users_max,
        max_entries: 0,
    }
}

const INODES: usize = 24;
const CONTENTS: u32 = 8;

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(usize, u32),
    Get(usize),
    Clear(usize),
    Scan(usize),
    Limit(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..INODES, 0..CONTENTS).prop_map(|(inode, content)| Step::Set(inode, content)),
        4 => (0..INODES).prop_map(Step::Get),
        4 => (0..INODES).prop_map(Step::Clear),
        1 => (0..40usize).prop_map(Step::Scan),
        1 => (0..20usize).prop_map(Step::Limit),
    ]
}

fn run(design: &Design, users_max: u32, hashes: u32, steps: &[Step]) {
    let limits = Limits {
        users_max,
        max_entries: 16,
    };
    let disk = Disk::new(design, limits, 2 * INODES as u64, hashes);
    let (mut inodes, mut model) = ([None; INODES], [None; INODES]);
    for &step in steps {
        match step {
            Step::Set(at, content) => {
                disk.set(&mut inodes[at], content);
                model[at] = Some(content);
            }
            Step::Get(at) => assert_eq!(inodes[at].map(|block| disk.get(block)), model[at]),
            Step::Clear(at) => {
                inodes[at].take().inspect(|&block| disk.release(block));
                model[at] = None;
            }
            Step::Scan(nr) => {
                let before = disk.cache.count();
                let freed = disk.cache.scan(nr);
                assert!(freed <= nr);
                assert_eq!(disk.cache.count(), before - freed);
            }
            Step::Limit(entries) => disk.cache.set_limit(entries * disk.cache.entry_memory()),
        }
        let contents = inodes.map(|inode| inode.map(|block| disk.content(block)));
        assert_eq!(contents, model, "{}", design.name);
    }
    disk.check(&inodes, CONTENTS);
    for block in inodes.into_iter().flatten() {
        disk.release(block);
    }
    disk.check(&[], CONTENTS);
    assert_eq!(
        disk.cache.count(),
        0,
        "{}: entries of freed blocks",
        design.name
    );
}

proptest! {
    #[test]
    fn an_index_changes_the_cost_and_never_the_answer(
        steps in prop::collection::vec(step(), 0..150),
        users_max in 2..6u32,
        hashes in 1..=CONTENTS,
    ) {
        for design in DESIGNS {
            run(design, users_max, hashes, &steps);
        }
    }
}

/// With room for all, equal contents share blocks as far as these can be shared.
#[test]
fn as_few_blocks_as_can_be() {
    for design in DESIGNS {
        let disk = Disk::new(design, unlimited(16), 100, 3);
        let mut inodes = vec![None; 500];
        for (content, inode) in inodes.iter_mut().enumerate() {
            disk.set(inode, content as u32 % 5);
        }
        let blocks = disk.users().iter().filter(|&&users| users > 0).count();
        assert_eq!(blocks, 5 * 100_usize.div_ceil(16), "{}", design.name);
        disk.check(&inodes, 5);
    }
}

/// Ten thousand contents with one hash on disk: each is found, or is not, as any other.
#[test]
fn collisions_cost_time_only() {
    const CONTENTS: u64 = 10_000;
    for design in DESIGNS {
        let name = design.name;
        let cache = (design.cache)(Limits {
            users_max: 1024,
            max_entries: 65_536,
        });
        let key = |content: u64| cache.key(0xDEAD_BEEF, &content.to_le_bytes());
        for content in 0..CONTENTS {
            assert_eq!(cache.created(key(content), content, 1), Created::Inserted);
        }
        assert_eq!(cache.count() as u64, CONTENTS, "{name}");
        for content in [0, 5000, CONTENTS - 1, CONTENTS] {
            let mut next = cache.find(key(content));
            while let Some(candidate) = next.take() {
                if candidate.value() == content {
                    candidate.taken(2).unwrap();
                    break;
                }
                next = candidate.next();
            }
        }
        assert_eq!(cache.stats().reuse_ok, 3, "{name}");
        for content in 0..CONTENTS {
            cache.release(key(content), content).remove().unwrap();
        }
        assert_eq!(cache.count(), 0, "{name}");
    }
}

#[test]
fn without_memory_there_are_misses_and_no_errors() {
    for design in DESIGNS {
        let name = design.name;
        let disk = Disk::new(design, unlimited(4), 300, 1000);
        let mut inodes = [None; 200];
        disk.cache.set_limit(0);
        for (content, inode) in inodes.iter_mut().enumerate() {
            disk.set(inode, content as u32 % 50);
        }
        assert_eq!(disk.cache.count(), 0, "{name}");
        disk.check(&inodes, 50);
        assert!(disk.users().iter().all(|&users| users <= 1));
        // Room for ten.
        disk.cache.set_limit(10 * disk.cache.entry_memory());
        for (content, inode) in inodes.iter_mut().enumerate() {
            disk.set(inode, content as u32 % 50);
            assert!(disk.cache.count() <= 10, "{name}");
        }
        disk.check(&inodes, 50);
        assert!(disk.cache.stats().shrunk_pressure > 0, "{name}");
    }
}

const THREADS: u64 = 4;
const THREAD_INODES: usize = 16;
const STEPS: usize = 4000;

fn work(disk: &Disk, seed: u64, contents: u32) -> Vec<Option<u64>> {
    let mut random = SplitMix64::new(seed);
    let mut inodes = vec![None; THREAD_INODES];
    for _ in 0..STEPS {
        let at = random.index(THREAD_INODES);
        let content = random.below(contents.into()) as u32;
        match random.below(16) {
            0..=9 => disk.set(&mut inodes[at], content),
            10 | 11 => _ = inodes[at].map(|block| disk.get(block)),
            12..=14 => _ = inodes[at].take().inspect(|&block| disk.release(block)),
            _ => _ = disk.cache.scan(content as usize),
        }
    }
    inodes
}

#[test]
fn counts_add_up() {
    for design in DESIGNS {
        for (contents, users_max) in [(2, 1024), (3, 5), (40, 1024)] {
            let limits = Limits {
                users_max,
                max_entries: 16,
            };
            let disk = Disk::new(design, limits, 2 * THREADS * THREAD_INODES as u64, 1000);
            let inodes: Vec<_> = thread::scope(|scope| {
                let disk = &disk;
                let spawn = |seed| scope.spawn(move || work(disk, seed, contents));
                let threads: Vec<_> = (0..THREADS).map(spawn).collect();
                let join = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().unwrap();
                threads.into_iter().flat_map(join).collect()
            });
            disk.check(&inodes, contents);
            inodes.into_iter().flatten().for_each(|at| disk.release(at));
            disk.check(&[], contents);
            assert_eq!(disk.cache.count(), 0, "{}", design.name);
        }
    }
}
