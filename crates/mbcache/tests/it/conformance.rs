//! All policies against a map: whoever sets a content has it, whatever is shared, dropped or freed.

use proptest::prelude::*;
use uext4_mbcache::{Options, Policy};

use crate::disk::Disk;

const INODES: usize = 24;
const CONTENTS: u32 = 8;

#[derive(Clone, Copy, Debug)]
enum Step {
    Set(usize, u32),
    Get(usize),
    Clear(usize),
    Scan(usize),
    Work,
    Limit(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..INODES, 0..CONTENTS).prop_map(|(inode, content)| Step::Set(inode, content)),
        4 => (0..INODES).prop_map(Step::Get),
        4 => (0..INODES).prop_map(Step::Clear),
        1 => (0..40usize).prop_map(Step::Scan),
        1 => Just(Step::Work),
        1 => (0..20usize).prop_map(Step::Limit),
    ]
}

fn run(policy: Policy, users_max: u32, hashes: u32, steps: &[Step]) {
    let options = Options {
        policy,
        users_max,
        bucket_bits: 1,
        max_entries: 16,
        ..Options::default()
    };
    let disk = Disk::new(&options, 2 * INODES as u64, hashes);
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
            Step::Work => _ = disk.cache.work(),
            Step::Limit(entries) => disk.cache.set_limit(entries * disk.cache.entry_memory()),
        }
        let contents = inodes.map(|inode| inode.map(|block| disk.content(block)));
        assert_eq!(contents, model, "{policy}");
    }
    disk.check(&inodes, CONTENTS);
    for block in inodes.into_iter().flatten() {
        disk.release(block);
    }
    disk.check(&[], CONTENTS);
    assert_eq!(disk.cache.count(), 0, "{policy}: entries of freed blocks");
}

proptest! {
    #[test]
    fn a_policy_changes_the_cost_and_never_the_answer(
        steps in prop::collection::vec(step(), 0..150),
        users_max in 2..6u32,
        hashes in 1..=CONTENTS,
    ) {
        for policy in Policy::ALL {
            run(policy, users_max, hashes, &steps);
        }
    }
}

/// With room for all, equal contents share blocks as far as these can be shared.
#[test]
fn as_few_blocks_as_can_be() {
    for policy in Policy::ALL {
        let options = Options {
            policy,
            users_max: 16,
            ..Options::default()
        };
        let disk = Disk::new(&options, 100, 3);
        let mut inodes = vec![None; 500];
        for (content, inode) in inodes.iter_mut().enumerate() {
            disk.set(inode, content as u32 % 5);
        }
        let blocks = disk.users().iter().filter(|&&users| users > 0).count();
        assert_eq!(blocks, 5 * 100_usize.div_ceil(16), "{policy}");
        disk.check(&inodes, 5);
    }
}
