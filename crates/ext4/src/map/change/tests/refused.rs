//! What cannot be done: requests without sense, damage, no space.

use uext4_ondisk::GroupNr;

use super::*;

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    for flags in ["-t ext4", "-t ext2"] {
        let mut fixture = Fixture::new(flags, 16_384, FileType::Regular, Credits::Plenty);
        fixture.insert(10, 5, 2000, false);
        let sbi = Arc::clone(&fixture.sbi);
        let inode = &mut fixture.inode;
        let handle = sbi.start(64).unwrap();
        let extent = |lblk: u32, len: u16, pblk: u64| Extent {
            lblk: Lblk(lblk),
            len,
            pblk: Pblk(pblk),
            unwritten: false,
        };
        let before = (inode.i_block, inode.blocks);
        let last = sbi.geometry().blocks_count;
        for wrong in [
            extent(10, 1, 100),
            extent(8, 3, 100),
            extent(14, 2, 100),
            extent(20, 0, 100),
            extent(20, 2, last - 1),
            extent(u32::MAX - 1, 2, 100),
            extent(u32::MAX, 1, 100),
        ] {
            assert!(insert(&handle, inode, wrong).is_err(), "{wrong:?}");
        }
        assert!(mark_unwritten(&handle, inode, Lblk(9), 2).is_err());
        for (run, by) in [(run(12, 9), -1), (run(0, 11), 3), (run(0, 20), -1)] {
            assert!(shift(&handle, inode, run, by).is_err());
        }
        let far = i64::from(u32::MAX) - 12;
        assert!(shift(&handle, inode, run(0, u32::MAX), far).is_err());
        assert_eq!((inode.i_block, inode.blocks), before);
        drop(handle);
        fixture.check();
        fixture.delete();
    }
}

#[test]
fn a_damaged_tree_frees_nothing_outside_the_file_system() {
    for flags in ["-t ext4 -b 1024", "-t ext2 -b 1024"] {
        for at in 0..15 {
            let mut fixture = Fixture::new(flags, 16_384, FileType::Regular, Credits::Plenty);
            scatter(&mut fixture, 400, |i| i * 2);
            let sbi = Arc::clone(&fixture.sbi);
            for wrong in [0xFFFF_FFF0u32, 3, 1] {
                let mut inode = fixture.inode.clone();
                inode.i_block[at * 4..at * 4 + 4].copy_from_slice(&wrong.to_le_bytes());
                let handle = sbi.start(200).unwrap();
                // Some of these numbers are right, or do not matter; most are not.
                _ = remove(&handle, &mut inode, Lblk(700), 10);
                _ = insert(
                    &handle,
                    &mut inode,
                    Extent {
                        lblk: Lblk(3),
                        len: 1,
                        pblk: Pblk(9000),
                        unwritten: false,
                    },
                );
                _ = remove(&handle, &mut inode, Lblk(0), u32::MAX);
                _ = mark_written(&handle, &mut inode, Lblk(4), 1);
                _ = shift(&handle, &mut inode, run(2, 900), 5);
            }
        }
    }
}

/// Blocks of the file's map, from a walk of its own.
fn map_nodes(fixture: &Fixture) -> Vec<Pblk> {
    let data: std::collections::BTreeSet<u64> = fixture.model.values().map(|b| b.0).collect();
    let sbi = &fixture.sbi;
    let mut nodes = Vec::new();
    let mut left = vec![fixture.inode.i_block.to_vec()];
    while let Some(bytes) = left.pop() {
        let children: Vec<u64> = if !fixture.inode.has(InodeFlags::EXTENTS) {
            let root = bytes.len() == 60;
            let numbers = bytes.chunks(4).skip(if root { 12 } else { 0 });
            let numbers = numbers.map(|n| u32::from_le_bytes(n.try_into().unwrap()));
            numbers.filter(|n| *n != 0).map(u64::from).collect()
        } else if let Ok(ExtentNode::Index { entries, .. }) = ExtentNode::parse(&bytes, None, None)
        {
            entries.iter().map(|e| e.leaf().0).collect()
        } else {
            Vec::new()
        };
        for child in children.into_iter().filter(|c| !data.contains(c)) {
            let mut bytes = vec![0; sbi.block_len()];
            let at = sbi.byte_offset(Pblk(child));
            fixture.device.read_at(at, &mut bytes).unwrap();
            nodes.push(Pblk(child));
            left.push(bytes);
        }
    }
    nodes
}

#[test]
fn any_damage_of_a_tree_is_an_error_at_worst() {
    for flags in [
        "-t ext4 -b 1024 -O ^metadata_csum",
        "-t ext2 -b 1024 -O ^dir_index",
    ] {
        let mut fixture = Fixture::new(flags, 16_384, FileType::Regular, Credits::Plenty);
        scatter(&mut fixture, 1200, |i| i * 3);
        crate::testing::close(&fixture.sbi);
        let nodes = map_nodes(&fixture);
        assert!(nodes.len() > 4);
        let good = fixture.device.to_bytes();
        let change = (any::<prop::sample::Index>(), 0..1024usize, any::<u8>());
        let wrong = prop::collection::vec((change, prop::bool::weighted(0.6)), 1..4);
        let ops = prop::collection::vec(op(4000), 1..12);
        let config = Config {
            cases: 24,
            failure_persistence: None,
            ..Config::default()
        };
        let result = TestRunner::new(config).run(&(wrong, ops), |(wrong, ops)| {
            let mut bytes = good.clone();
            for ((node, at, value), near) in &wrong {
                // Headers and first entries matter most.
                let at = if *near { at % 40 } else { *at };
                let block = node.get(&nodes).0 as usize;
                bytes[block * 1024 + at] = *value;
            }
            let sbi = mount(&Arc::new(MemoryDevice::from_bytes(bytes)));
            let mut inode = iget(&sbi, fixture.inode.ino).unwrap();
            let last = Op::Remove(0, u32::MAX);
            for op in ops.iter().chain([&last]) {
                let handle = sbi.start(200).unwrap();
                _ = try_op(&handle, &mut inode, op);
            }
            Ok(())
        });
        if let Err(error) = result {
            panic!("{error}");
        }
    }
}

/// Whatever becomes of it.
fn try_op(handle: &Handle<'_>, inode: &mut Inode, op: &Op) -> Result<Progress> {
    match *op {
        Op::Insert(lblk, len, goal, unwritten) => {
            let extent = Extent {
                lblk: Lblk(lblk),
                len: len as u16,
                pblk: Pblk(goal % 17_000),
                unwritten,
            };
            insert(handle, inode, extent).map(|()| Progress::Done)
        }
        Op::Remove(lblk, len) => remove(handle, inode, Lblk(lblk), len),
        Op::Mark(lblk, len, true) => mark_unwritten(handle, inode, Lblk(lblk), len),
        Op::Mark(lblk, len, false) => mark_written(handle, inode, Lblk(lblk), len),
        Op::Shift(lblk, by) => shift(handle, inode, run(lblk, u32::MAX), by.into()),
    }
}

#[test]
fn without_space_to_split_an_extent_nothing_is_changed() {
    let flags = "-t ext4 -b 1024";
    let mut fixture = Fixture::new(flags, 2048, FileType::Regular, Credits::Plenty);
    for i in 0..4 {
        fixture.insert(i * 20, 10, 700 + 20 * u64::from(i), false);
    }
    let sbi = Arc::clone(&fixture.sbi);
    let handle = sbi.start(64).unwrap();
    let mut taken = Vec::new();
    while let Ok(block) = handle.take_block(Pblk(0)) {
        taken.push(block);
    }
    let inode = &mut fixture.inode;
    let before = (inode.i_block, inode.blocks);
    let refused = [
        remove(&handle, inode, Lblk(25), 2),
        mark_unwritten(&handle, inode, Lblk(42), 3),
        shift(&handle, inode, run(5, u32::MAX), 100),
    ];
    for result in refused {
        assert!(matches!(result, Err(Error::NoSpace { .. })), "{result:?}");
    }
    assert_eq!((inode.i_block, inode.blocks), before);
    for block in taken {
        handle.free_blocks(block, 1).unwrap();
    }
    drop(handle);
    // At an edge nothing has to be split.
    fixture.remove(25, 12);
    fixture.check();
    fixture.delete();
}

#[test]
fn without_space_for_the_map_nothing_is_changed() {
    for flags in ["-t ext4 -b 1024", "-t ext2 -b 1024"] {
        let mut fixture = Fixture::new(flags, 2048, FileType::Regular, Credits::Plenty);
        for i in 0..12 {
            fixture.insert(i * 2, 1, 700 + 2 * u64::from(i), false);
        }
        let sbi = Arc::clone(&fixture.sbi);
        let mut taken = Vec::new();
        let handle = sbi.start(64).unwrap();
        while let Ok(block) = handle.take_block(Pblk(0)) {
            taken.push(block);
        }
        let inode = &mut fixture.inode;
        let before = (inode.i_block, inode.blocks);
        let mut used = 0;
        let refused = loop {
            let extent = Extent {
                lblk: Lblk(100_000 + used * 2000),
                len: 1,
                pblk: taken[used as usize * 2],
                unwritten: false,
            };
            let before = (inode.i_block, inode.blocks);
            match insert(&handle, inode, extent) {
                Ok(()) => used += 1,
                Err(error) => {
                    assert_eq!((inode.i_block, inode.blocks), before);
                    break error;
                }
            }
        };
        assert!(matches!(refused, Error::NoSpace { .. }), "{refused}");
        assert!(used > 0 || before == (inode.i_block, inode.blocks));
        for (i, block) in taken.iter().enumerate() {
            if i % 2 == 1 || i / 2 >= used as usize {
                handle.free_blocks(*block, 1).unwrap();
            }
        }
        drop(handle);
        let journal = &sbi.rw().unwrap().journal;
        journal.commit_now(&*sbi).unwrap();
        fixture.remove(100_000, u32::MAX);
        fixture.check();
        fixture.delete();
    }
}

#[test]
fn metadata_is_not_freed_as_blocks_of_a_file() {
    for flags in ["-t ext4 -b 1024", "-t ext2 -b 1024"] {
        let fixture = Fixture::new(flags, 16_384, FileType::Regular, Credits::Plenty);
        let sbi = Arc::clone(&fixture.sbi);
        let desc = sbi.writable().unwrap().groups.desc(GroupNr(1)).unwrap();
        let table = desc.inode_table;
        let copies = sbi.geometry().group_start(GroupNr(1));
        let descriptors = Pblk(copies.0 + 1);
        let handle = sbi.start(64).unwrap();
        let last = Pblk(table.0 + u64::from(sbi.geometry().itable_blocks()) - 1);
        for block in [
            copies,
            descriptors,
            desc.block_bitmap,
            desc.inode_bitmap,
            table,
            last,
        ] {
            let result = handle.free_blocks(block, 1);
            assert!(
                matches!(result, Err(Error::Corrupt(_))),
                "{flags} {block}: {result:?}"
            );
            assert!(handle.are_used(block, 1).unwrap(), "{flags} {block}");
        }
        drop(handle);
        fixture.check();
        fixture.delete();
    }
}
