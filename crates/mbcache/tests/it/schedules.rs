//! Searches, users that come and go, and reclaim by several threads in many orders, as the model
//! checker `shuttle` chooses them. [`Disk`] asserts at each step: nothing that was found is freed
//! or changed until that ends, nothing gets a user after it was freed. At the end counts add up.
//! `UEXT4_LONG=1` tries many more.

use std::sync::Arc;

use parking_lot::Mutex;
use shuttle::thread;
use uext4_mbcache::Created;

use super::DESIGNS;
use super::disk::{Design, Disk, Limits};

/// Schedules for each test and design.
fn schedules() -> usize {
    match std::env::var_os("UEXT4_LONG") {
        Some(_) => 20_000,
        None => 400,
    }
}

/// Tries random schedules, and some that switch at few unlikely places, on each design.
fn check(test: impl Fn(&Design) + Send + Sync + Copy + 'static) {
    for design in DESIGNS {
        shuttle::check_random(move || test(design), schedules());
        shuttle::check_pct(move || test(design), schedules(), 3);
    }
}

fn limits(users_max: u32) -> Limits {
    Limits {
        users_max,
        max_entries: 16,
    }
}

fn disk(design: &Design, users_max: u32) -> Arc<Disk> {
    Arc::new(Disk::new(design, limits(users_max), 8, 2))
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
fn a_found_block_is_not_freed() {
    check(|design| {
        let disk = disk(design, 1024);
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

/// A block that was found changes in place meanwhile, and is made anew by another thread.
#[test]
fn a_found_block_is_not_changed() {
    check(|design| {
        let disk = disk(design, 1024);
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

/// An entry goes and comes back, because a user reads the block, while another releases it: the
/// thread that becomes the last user must not miss it.
#[test]
fn what_comes_back_while_it_is_released_is_not_freed() {
    check(|design| {
        let disk = disk(design, 2);
        let users = [inode(&disk, 7), inode(&disk, 7)];
        assert_eq!(users[0], users[1], "{}", design.name);
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

/// Two threads release a thing that says it has one user, as on a damaged disk, while a third has
/// found it: they wait for that one, not for each other.
#[test]
fn two_last_users_do_not_wait_for_each_other() {
    check(|design| {
        let cache = Arc::new((design.cache)(limits(1024)));
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
        assert!(cache.find(key).is_none(), "{}", design.name);
        assert_eq!(cache.count(), 0, "{}", design.name);
    });
}

#[test]
fn no_block_gets_too_many_users() {
    check(|design| {
        let disk = disk(design, 2);
        let first = inode(&disk, 1);
        let threads = [(); 3].map(|()| spawn(&disk, |disk| inode(disk, 1)));
        let mut inodes = vec![first];
        inodes.extend(threads.map(join));
        disk.check(&inodes, 8);
    });
}

/// The kernel's bug of November 2022: the mark of use and the mark of room shared a word, and one
/// of two updates was lost; a block with room was never found again, or one without for ever.
#[test]
fn marks_are_not_lost() {
    check(|design| {
        let disk = disk(design, 3);
        let (first, second) = (inode(&disk, 1), inode(&disk, 1));
        // One comes and makes it full while another goes.
        let comer = spawn(&disk, |disk| disk.share(1));
        let goer = spawn(&disk, move |disk| {
            second.into_iter().for_each(|at| disk.release(at))
        });
        let came = join(comer);
        join(goer);
        assert_eq!(came, first, "{}", design.name);
        disk.check(&[first, came], 8);
        assert_eq!(
            disk.share(1),
            first,
            "{}: a block with room is found",
            design.name
        );
    });
}

/// The bug of 2022 within the cache: an entry goes before it is on the list of all.
#[test]
fn entries_that_go_at_birth_leave_nothing() {
    check(|design| {
        let disk = disk(design, 1024);
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
        assert_eq!(disk.cache.count(), 0, "{}", design.name);
        assert_eq!(disk.cache.scan(8), 0, "{}", design.name);
    });
}

/// All at once on one block, so that an index with handles sleeps and wakes.
#[test]
fn all_waiters_are_woken() {
    check(|design| {
        let disk = disk(design, 1024);
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

/// A block whose count is in memory: some users come and go, which share its lock, while the others
/// leave, and the last of them changes it in place.
#[test]
fn users_that_come_and_go_share_a_count() {
    check(|design| {
        let disk = disk(design, 5);
        let users = [(); 3].map(|()| inode(&disk, 7));
        assert!(users.iter().all(|at| *at == users[0]), "{}", design.name);
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

/// Two threads make equal things at once: both come in.
#[test]
fn equal_things_made_at_once() {
    check(|design| {
        let cache = Arc::new((design.cache)(limits(1024)));
        let threads = [10, 11].map(|value| {
            let cache = Arc::clone(&cache);
            thread::spawn(move || cache.created(cache.key(1, b"x"), value, 1))
        });
        let created = threads.map(|thread| thread.join().unwrap());
        assert_eq!(created, [Created::Inserted; 2], "{}", design.name);
        assert_eq!(cache.count(), 2, "{}", design.name);
    });
}
