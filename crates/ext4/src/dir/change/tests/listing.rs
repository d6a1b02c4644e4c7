//! Listings that continue while the directory changes.

use std::collections::BTreeSet;

use super::*;

/// One of the names that have the same hash and minor hash under TEA: TEA gives the same result
/// if the highest bits of two words of its key are both inverted.
fn colliding(base: u8, mask: usize) -> Vec<u8> {
    let mut name = vec![b'a' + base; 96];
    for bit in 0..12 {
        if mask >> bit & 1 == 1 {
            name[bit * 8] ^= 0x80;
            name[bit * 8 + 4] ^= 0x80;
        }
    }
    name
}

fn some_name(random: &mut SplitMix64, flags: &str) -> Vec<u8> {
    if flags.contains("hash 2") && random.index(3) > 0 {
        return colliding(random.index(3) as u8, random.index(60));
    }
    random_name(random, 40)
}

#[test]
fn names_of_one_hash() {
    for flags in [
        "-t ext4 -b 1024 hash 2",
        "-t ext4 -b 1024 -O ^metadata_csum hash 2 unsigned",
    ] {
        let mut world = World::new(flags, 16 << 10);
        let mut random = SplitMix64::new(77);
        for step in 0..1500 {
            let name = colliding(random.index(2) as u8, random.index(300));
            match random.index(5) {
                0 => world.delete(&name),
                1 => world.replace(&name, random.index(4)),
                2 => world.add(&random_name(&mut random, 30)),
                _ => world.add(&name),
            }
            if step % 500 == 499 {
                world.compare();
            }
        }
        world.finish();
    }
}

/// Reports `count` entries after `cookie`; answers the cookie to go on with, `None` at the end.
fn list(world: &World, cookie: u64, count: usize, reported: &mut Vec<Vec<u8>>) -> Option<u64> {
    let (mut left, mut next) = (count, None);
    read_from(&world.sbi, &world.dir, cookie, &mut |entry, cookie| {
        reported.push(entry.name.to_vec());
        next = Some(cookie);
        left -= 1;
        left > 0
    })
    .unwrap();
    next.filter(|_| left == 0)
}

#[test]
fn listings_go_on_while_names_come_and_go() {
    for (flags, seed) in [
        ("-t ext4 -b 1024 hash 2", 1),
        ("-t ext4 -b 1024", 2),
        ("-t ext4 -b 1024 -O ^metadata_csum hash 0", 3),
        ("-t ext4 -b 1024 -O ^dir_index", 4),
        ("-t ext2 -b 4096 -O ^dir_index", 5),
    ] {
        let mut random = SplitMix64::new(seed * 0x1234_5677);
        for round in 0..12 {
            let mut world = World::new(flags, 8 << 10);
            for _ in 0..[0, 5, 30, 400][round % 4] {
                world.add(&some_name(&mut random, flags));
            }
            let mut always: BTreeSet<Vec<u8>> = world.model.keys().cloned().collect();
            always.extend([b".".to_vec(), b"..".to_vec()]);
            let mut reported = Vec::new();
            let mut cookie = Some(0);
            while let Some(from) = cookie {
                cookie = list(&world, from, 1 + random.index(20), &mut reported);
                for _ in 0..random.index(12) {
                    match random.index(3) {
                        0 => {
                            let name = world.pick(&mut random).unwrap_or(b"x".to_vec());
                            // Names with equal hashes and minor hashes affect each other's
                            // cookies.
                            if !flags.contains("hash 2") || name.len() < 96 {
                                world.delete(&name);
                                always.remove(&name);
                            }
                        }
                        _ => {
                            let name = some_name(&mut random, flags);
                            if name.len() < 96 {
                                world.add(&name);
                            }
                        }
                    }
                }
            }
            let mut of_always: Vec<_> = reported
                .iter()
                .filter(|name| always.contains(*name))
                .collect();
            assert_eq!(of_always.len(), always.len(), "{flags} {round}");
            of_always.sort();
            of_always.dedup();
            assert_eq!(of_always.len(), always.len(), "{flags} {round}");
            world.compare();
            world.finish();
        }
    }
}

#[test]
fn any_cookie_may_be_given() {
    for flags in ["-t ext4 -b 1024", "-t ext4 -b 1024 -O ^dir_index"] {
        let mut world = World::new(flags, 8 << 10);
        let mut random = SplitMix64::new(9);
        for _ in 0..200 {
            world.add(&random_name(&mut random, 20));
        }
        let mut reported = Vec::new();
        assert_eq!(list(&world, u64::MAX, 10, &mut reported), None);
        assert_eq!(list(&world, u64::MAX >> 1, 10, &mut reported), None);
        for _ in 0..1000 {
            let cookie = random.next_u64() >> random.index(64);
            list(&world, cookie, 5, &mut reported);
        }
        let most: Vec<_> = (0..1)
            .map(|_| list(&world, 0, 500, &mut reported))
            .collect();
        assert_eq!(most, [None]);
    }
}
