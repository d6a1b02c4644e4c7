//! Searches, users that come and go, and reclaim of several threads in many orders, as the model checker
//! `shuttle` chooses them. What [`disk`] asserts at each step: nothing that was found is freed or changed
//! until that ends, nothing gets a user after it was freed. At the end counts add up.
//! `UEXT4_LONG=1` tries many more.

#[path = "it/disk.rs"]
mod disk;

use std::sync::Arc;

use disk::Disk;
use parking_lot::Mutex;
use shuttle::thread;
use uext4_mbcache::{Cache, Created, Options, Policy};

/// Schedules for each test and policy.
fn schedules() -> usize {
    match std::env::var_os("UEXT4_LONG") {
        Some(_) => 20_000,
        None => 400,
    }
}

/// Tries random schedules, and some that switch at few unlikely places, on each policy.
fn check(test: impl Fn(Policy) + Send + Sync + Copy + 'static) {
    for policy in Policy::ALL {
        shuttle::check_random(move || test(policy), schedules());
        shuttle::check_pct(move || test(policy), schedules(), 3);
    }
}

fn disk(policy: Policy, users_max: u32) -> Arc<Disk> {
    let options = Options {
        policy,
        users_max,
        bucket_bits: 1,
        max_entries: 16,
        ..Options::default()
    };
    Arc::new(Disk::new(&options, 8, 2))
}

type Inode = Option<u64>;

/// An inode with this content.
fn inode(disk: &Disk, content: u32) -> Inode {
    let mut inode = None;
    disk.set(&mut inode, content);
    inode
}

fn spawn<R: Send + 'static>(
    disk: &Arc<Disk>,
    f: impl FnOnce(&Disk) -> R + Send + 'static,
) -> thread::JoinHandle<R> {
    let disk = Arc::clone(disk);
    thread::spawn(move || f(&disk))
}

fn join<R>(thread: thread::JoinHandle<R>) -> R {
    thread.join().unwrap()
}

/// The kernel's bug of 2022: a block is freed between the search that finds it and its reuse.
#[test]
fn what_is_found_is_not_freed() {
    check(|policy| {
        let disk = disk(policy, 1024);
        let last = inode(&disk, 7);
        let finder = spawn(&disk, |disk| inode(disk, 7));
        let freer = spawn(&disk, move |disk| {
            last.into_iter().for_each(|at| disk.release(at))
        });
        let shrinker = spawn(&disk, |disk| disk.cache.scan(4));
        let found = join(finder);
        join(freer);
        join(shrinker);
        disk.check(&[found], 8);
    });
}

/// The same with the block changed in place, and made anew by another.
#[test]
fn what_is_found_is_not_changed() {
    check(|policy| {
        let disk = disk(policy, 1024);
        let mut only = inode(&disk, 5);
        let finder = spawn(&disk, |disk| inode(disk, 5));
        let changer = spawn(&disk, move |disk| {
            disk.set(&mut only, 3);
            only.inspect(|&at| assert_eq!(disk.get(at), 3));
            only
        });
        let other = spawn(&disk, |disk| {
            let at = inode(disk, 3);
            at.inspect(|&at| assert_eq!(disk.get(at), 3));
            disk.cache.scan(1);
            at
        });
        let inodes = [join(finder), join(changer), join(other)];
        disk.check(&inodes, 8);
    });
}

/// An entry goes and comes back, because a user reads the block, while another is about to let go of it:
/// whoever becomes the last must not miss it.
#[test]
fn what_comes_back_while_it_is_let_go_of_is_not_freed() {
    check(|policy| {
        let disk = disk(policy, 2);
        let users = [inode(&disk, 7), inode(&disk, 7)];
        assert_eq!(users[0], users[1], "{policy}");
        disk.cache.scan(4);
        let [first, second] = users.map(|at| at.expect("a block"));
        let goer = spawn(&disk, move |disk| disk.release(first));
        let reader = spawn(&disk, move |disk| {
            disk.get(second);
            disk.release(second);
        });
        let finder = spawn(&disk, |disk| disk.share(7));
        let found = join(finder);
        join(goer);
        join(reader);
        disk.check(&[found], 8);
    });
}

/// Two let go of a thing that says it has one user, as on a damaged disk, while a third has found it:
/// they wait for him, not for each other.
#[test]
fn two_last_users_wait_for_neither() {
    check(|policy| {
        let options = Options {
            policy,
            bucket_bits: 1,
            max_entries: 16,
            ..Options::default()
        };
        let cache = Arc::new(Cache::new(&options).unwrap());
        let count = Arc::new(Mutex::new(()));
        let key = cache.key(1, b"x");
        assert_eq!(cache.created(key, 5, 1), Created::Inserted);
        let goers = [(); 2].map(|()| {
            let (cache, count) = (Arc::clone(&cache), Arc::clone(&count));
            thread::spawn(move || {
                loop {
                    let release = cache.release(key, 5);
                    let counting = count.lock();
                    let Err(in_use) = release.remove() else {
                        break;
                    };
                    drop(counting);
                    in_use.wait();
                }
            })
        });
        let finder = Arc::clone(&cache);
        let finder = thread::spawn(move || drop(finder.find(key)));
        goers.into_iter().for_each(join);
        join(finder);
        assert!(cache.find(key).is_none(), "{policy}");
        assert_eq!(cache.count(), 0, "{policy}");
    });
}

#[test]
fn no_block_gets_too_many_users() {
    check(|policy| {
        let disk = disk(policy, 2);
        let first = inode(&disk, 1);
        let threads = [(); 3].map(|()| spawn(&disk, |disk| inode(disk, 1)));
        let mut inodes = vec![first];
        inodes.extend(threads.map(join));
        disk.check(&inodes, 8);
    });
}

/// The kernel's bug of November 2022: the mark of use and the mark of room shared a word, and one of two
/// updates was lost; a block with room was never found again, or one without for ever.
#[test]
fn marks_are_not_lost() {
    check(|policy| {
        let disk = disk(policy, 3);
        let (first, second) = (inode(&disk, 1), inode(&disk, 1));
        // One comes and makes it full while another goes.
        let comer = spawn(&disk, |disk| disk.share(1));
        let goer = spawn(&disk, move |disk| {
            second.into_iter().for_each(|at| disk.release(at))
        });
        let came = join(comer);
        join(goer);
        assert_eq!(came, first, "{policy}");
        disk.check(&[first, came], 8);
        assert_eq!(disk.share(1), first, "{policy}: a block with room is found");
    });
}

/// The bug of 2022 within the cache: an entry goes before it is on the list of all.
#[test]
fn entries_that_go_at_birth_leave_nothing() {
    check(|policy| {
        let disk = disk(policy, 1024);
        let maker = spawn(&disk, |disk| inode(disk, 6));
        let taker = spawn(&disk, |disk| {
            let shared = disk.share(6);
            shared.inspect(|&at| disk.release(at));
        });
        let shrinker = spawn(&disk, |disk| disk.cache.scan(2));
        let made = join(maker);
        join(taker);
        join(shrinker);
        disk.check(&[made], 8);
        made.inspect(|&at| disk.release(at));
        disk.check(&[], 8);
        assert_eq!(disk.cache.count(), 0, "{policy}");
        assert_eq!(disk.cache.scan(8), 0, "{policy}");
    });
}

/// Everybody at once on one block, so that `mb1` sleeps and wakes.
#[test]
fn all_who_wait_are_woken() {
    check(|policy| {
        let disk = disk(policy, 1024);
        let first = inode(&disk, 2);
        let threads = [2, 2, 4].map(|content| {
            spawn(&disk, move |disk| {
                let mut at = inode(disk, 2);
                disk.set(&mut at, content);
                at
            })
        });
        let mut inodes = vec![first];
        inodes.extend(threads.map(join));
        disk.check(&inodes, 8);
    });
}

/// A block whose count is gathered: some come and go, which share its lock, while the others leave, and the last of
/// them changes it in place.
#[test]
fn who_comes_and_who_goes_share_a_count() {
    check(|policy| {
        let disk = disk(policy, 5);
        let users = [(); 3].map(|()| inode(&disk, 7));
        assert!(users.iter().all(|at| *at == users[0]), "{policy}");
        let comer = spawn(&disk, |disk| disk.share(7));
        let passer = spawn(&disk, |disk| {
            disk.share(7).inspect(|&at| disk.release(at));
        });
        let [first, second, mut third] = users;
        let goer = spawn(&disk, move |disk| {
            [first, second]
                .into_iter()
                .flatten()
                .for_each(|at| disk.release(at));
        });
        let changer = spawn(&disk, move |disk| {
            disk.set(&mut third, 4);
            third.inspect(|&at| assert_eq!(disk.get(at), 4));
            third
        });
        let came = join(comer);
        join(passer);
        join(goer);
        disk.check(&[came, join(changer)], 8);
    });
}

/// Two make equal things at once: both come in; with one donor, one of them is a spare.
#[test]
fn equal_things_made_at_once() {
    check(|policy| {
        let options = Options {
            policy,
            bucket_bits: 1,
            max_entries: 16,
            ..Options::default()
        };
        let cache = Arc::new(Cache::new(&options).unwrap());
        let threads = [10, 11].map(|value| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || cache.created(cache.key(1, b"x"), value, 1))
        });
        let created = threads.map(|thread| thread.join().unwrap());
        assert_eq!(created, [Created::Inserted; 2], "{policy}");
        assert_eq!(cache.count(), 2, "{policy}");
        // Each gives when the other has nothing to give.
        let found: Vec<_> = std::iter::successors(cache.find(cache.key(1, b"x")), |found| {
            found.is_full();
            cache.find(cache.key(1, b"x"))
        })
        .take(2)
        .map(|candidate| candidate.value())
        .collect();
        assert!(policy != Policy::OneDonor || found.len() == 2, "{found:?}");
    });
}
