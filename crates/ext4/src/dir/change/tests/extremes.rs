//! Directories of maximum size, on a full file system, and with damage.

use super::*;

/// Long names, so that a few of them need many blocks.
fn long_name(i: u32) -> Vec<u8> {
    let mut name = format!("{i:08}").into_bytes();
    name.resize(250, b'n');
    name
}

fn levels(world: &World) -> u8 {
    htree::root_info(&world.sbi, &world.dir)
        .unwrap()
        .indirect_levels
}

#[test]
fn trees_grow_to_three_levels() {
    let mut world = World::new("-t ext4 -b 1024 -O large_dir", 64 << 10);
    let mut i = 0;
    while levels_or_0(&world) < 2 || i % 500 != 0 {
        world.add(&long_name(i));
        i += 1;
        assert!(i < 60_000);
    }
    world.compare();
    for j in 0..i {
        if j % 3 != 0 {
            world.delete(&long_name(j));
        }
    }
    for j in 0..2000 {
        world.add(&long_name(i + j));
    }
    world.compare();
    world.finish();
}

fn levels_or_0(world: &World) -> u8 {
    match is_dx(&world.sbi, &world.dir) {
        true => levels(world),
        false => 0,
    }
}

#[test]
fn a_full_tree_says_so_and_stays_whole() {
    let mut world = World::new("-t ext4 -b 1024", 64 << 10);
    for i in 0.. {
        assert!(i < 60_000);
        let ino = world.dir.ino;
        let name = long_name(i);
        let full = world.change(|handle, dir| {
            let blocks = (dir.size, dir.blocks);
            let before = handle.credits();
            let result = add(handle, dir, &name, ino, FileType::Regular);
            if result.is_err() {
                assert_eq!(blocks, (dir.size, dir.blocks));
                assert_eq!(before, handle.credits());
                return result;
            }
            delete(handle, dir, &name).map(|_| ())
        });
        match full {
            Ok(()) => world.add(&name),
            Err(Error::DirectoryFull { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    assert_eq!(levels(&world), 1);
    world.compare();
    world.finish();
}

#[test]
fn without_space_nothing_is_changed() {
    for flags in [
        "-t ext4 -b 1024 -O ^has_journal",
        "-t ext2 -b 1024",
        "-t ext4 -b 1024 -O ^has_journal,^dir_index",
    ] {
        let mut world = World::new(flags, 320);
        let mut i = 0;
        loop {
            let name = long_name(i);
            let file = world.files[0].ino;
            let result =
                world.change(|handle, dir| add(handle, dir, &name, file, FileType::Regular));
            i += 1;
            match result {
                Ok(()) => {
                    world.files[0].links += 1;
                    world.model.insert(name, 0);
                }
                Err(Error::NoSpace { .. }) => break,
                Err(error) => panic!("{error}"),
            }
        }
        assert!(i > 100, "{flags}: {i}");
        world.compare();
        for name in world.model.clone().into_keys().step_by(2) {
            world.delete(&name);
            world.add(&name);
        }
        world.compare();
        world.finish();
    }
}

/// All operations terminate, whatever the bytes of a directory are.
#[test]
fn damage_is_reported() {
    let mut random = SplitMix64::new(4711);
    for round in 0..150 {
        let flags = [
            "-t ext4 -b 1024 -O ^metadata_csum",
            "-t ext2 -b 1024 -O ^dir_index",
        ];
        let mut world = World::new(flags[round % 2], 2 << 10);
        for i in 0..[30, 300][round / 2 % 2] {
            let name = random_name(&mut random, 1 + i % 30);
            if world.model.contains_key(&name) {
                continue;
            }
            world.add(&name);
        }
        let mut cursor = DirCursor::new(&world.sbi, &world.dir).unwrap();
        let sbi = Arc::clone(&world.sbi);
        let handle = sbi.start(100).unwrap();
        while let Some(next) = cursor.next_buffer(&sbi, &world.dir) {
            let (lblk, buffer) = next.unwrap();
            let times = if random.index(3) == 0 || lblk.0 == 0 {
                1 + random.index(4)
            } else {
                0
            };
            handle.change(&buffer, owner(&world.dir, lblk), |bytes| {
                for _ in 0..times {
                    let near = if random.index(2) == 0 {
                        48
                    } else {
                        bytes.len()
                    };
                    bytes[random.index(near)] = random.next_u64() as u8;
                }
            });
        }
        drop(handle);
        let dir = &mut world.dir;
        for entry in read_dir(&sbi, dir).unwrap() {
            _ = entry;
        }
        let mut reported = 0;
        _ = read_from(&sbi, dir, 0, &mut |_, _| {
            reported += 1;
            reported < 100_000
        });
        assert!(reported < 100_000);
        _ = is_empty(&sbi, dir);
        for name in world.model.into_keys() {
            _ = lookup(&sbi, dir, &name);
            let Ok(handle) = sbi.start(60) else { break };
            match random.index(4) {
                0 => _ = delete(&handle, dir, &name),
                1 => _ = replace(&handle, dir, &name, Ino(11), FileType::Socket),
                _ => {
                    _ = add(
                        &handle,
                        dir,
                        &random_name(&mut random, 255),
                        Ino(11),
                        FileType::Fifo,
                    )
                }
            }
        }
    }
}

#[test]
fn names_that_cannot_be() {
    let mut world = World::new("-t ext4", 8 << 10);
    let ino = world.dir.ino;
    for (name, why) in [
        (&b""[..], "Invalid"),
        (b".", "Invalid"),
        (b"..", "Invalid"),
        (b"a/b", "Invalid"),
        (b"a\0b", "Invalid"),
        (&[b'n'; 256], "NameTooLong"),
    ] {
        let added = world.change(|handle, dir| add(handle, dir, name, ino, FileType::Regular));
        assert!(format!("{:?}", added.unwrap_err()).starts_with(why));
        let deleted = world.change(|handle, dir| delete(handle, dir, name));
        assert!(format!("{:?}", deleted.unwrap_err()).starts_with(why));
    }
    world.add(&[b'n'; 255]);
    world.compare();
    world.finish();
}

#[test]
fn dotdot_is_replaced() {
    for names in [0, 2000] {
        let mut world = World::new("-t ext4", 16 << 10);
        (0..names).for_each(|i| world.add(&long_name(i)));
        let moved =
            world.change(|handle, dir| replace(handle, dir, b"..", Ino(11), FileType::Directory));
        assert_eq!(moved.unwrap(), Ino::ROOT);
        assert_eq!(lookup(&world.sbi, &world.dir, b"..").unwrap(), Ino(11));
        let back =
            world.change(|handle, dir| replace(handle, dir, b"..", Ino::ROOT, FileType::Directory));
        assert_eq!(back.unwrap(), Ino(11));
        world.compare();
        world.finish();
    }
}
