//! Real threads on few contents: nothing is used after it was freed, and the counts add up.

use std::thread;

use uext4_mbcache::{Options, Policy};

use crate::disk::Disk;

const THREADS: u64 = 4;
const INODES: usize = 16;
const STEPS: usize = 4000;

/// Steps of a generator of random numbers (xorshift).
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state >> 11
}

fn work(disk: &Disk, seed: u64, contents: u32) -> Vec<Option<u64>> {
    let mut random = seed * 0x9E37_79B9 + 1;
    let mut inodes = vec![None; INODES];
    for _ in 0..STEPS {
        let at = next(&mut random) as usize % INODES;
        let content = (next(&mut random) % u64::from(contents)) as u32;
        match next(&mut random) % 16 {
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
    for policy in Policy::ALL {
        for (contents, users_max) in [(2, 1024), (3, 5), (40, 1024)] {
            let options = Options {
                policy,
                users_max,
                max_entries: 16,
                bucket_bits: 2,
                ..Options::default()
            };
            let disk = Disk::new(&options, 2 * THREADS * INODES as u64, 1000);
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
            assert_eq!(disk.cache.count(), 0, "{policy}");
        }
    }
}
