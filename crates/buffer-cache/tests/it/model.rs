//! Random calls against a cache far too small, compared with a plain vector of blocks.

use std::sync::Arc;

use proptest::prelude::*;
use uext4_buffer_cache::{Buffer, VerifyTag};
use uext4_ondisk::Pblk;

use crate::device::TestDevice;
use crate::{SIZE, cache};

const BLOCKS: u64 = 96;

#[derive(Clone, Debug)]
enum Op {
    Read(u64, u64),
    Modify(u64, u8),
    Zero(u64),
    Readahead(u64, u32),
    Pin(u64),
    Unpin,
    Forget(u64),
    Scan(usize),
    Write,
}

fn op() -> impl Strategy<Value = Op> {
    let block = 0..BLOCKS;
    prop_oneof![
        6 => (block.clone(), 0..3u64).prop_map(|(b, t)| Op::Read(b, t)),
        4 => (block.clone(), any::<u8>()).prop_map(|(b, v)| Op::Modify(b, v)),
        1 => block.clone().prop_map(Op::Zero),
        1 => (block.clone(), 0..40u32).prop_map(|(b, n)| Op::Readahead(b, n)),
        1 => block.clone().prop_map(Op::Pin),
        1 => Just(Op::Unpin),
        1 => block.prop_map(Op::Forget),
        1 => (0..30usize).prop_map(Op::Scan),
        1 => Just(Op::Write),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn answers_are_those_of_a_vector(ops in prop::collection::vec(op(), 1..300)) {
        let device = Arc::new(TestDevice::new(BLOCKS));
        let cache = cache(device.clone(), 16);
        let mut now: Vec<u8> = (0..BLOCKS).map(|b| b as u8).collect();
        let mut written = now.clone();
        let mut dirty = vec![false; BLOCKS as usize];
        let mut pins: Vec<Buffer> = Vec::new();
        for op in ops {
            match op {
                Op::Read(b, tag) => {
                    let buffer = cache.bread(Pblk(b), VerifyTag(tag), |_| Ok(())).unwrap();
                    prop_assert_eq!(&buffer.data()[..], &[now[b as usize]; SIZE]);
                    prop_assert_eq!(buffer.is_dirty(), dirty[b as usize]);
                }
                Op::Modify(b, value) => {
                    let buffer = cache.bread(Pblk(b), VerifyTag(0), |_| Ok(())).unwrap();
                    let before = buffer.data();
                    buffer.modify(|data| data.fill(value));
                    prop_assert_eq!(&before[..], &[now[b as usize]; SIZE]);
                    (now[b as usize], dirty[b as usize]) = (value, true);
                }
                Op::Zero(b) => {
                    cache.getblk_zeroed(Pblk(b));
                    (now[b as usize], dirty[b as usize]) = (0, true);
                }
                Op::Readahead(b, n) => cache.readahead(Pblk(b), n),
                Op::Pin(b) => pins.push(cache.bread(Pblk(b), VerifyTag(0), |_| Ok(())).unwrap()),
                Op::Unpin => drop(pins.pop()),
                // Forgetting is for blocks no thread uses any more.
                Op::Forget(b) => if pins.iter().all(|pin| pin.block() != Pblk(b)) {
                    cache.forget(Pblk(b));
                    (now[b as usize], dirty[b as usize]) = (written[b as usize], false);
                },
                Op::Scan(nr) => prop_assert!(cache.scan(nr) <= nr),
                Op::Write => {
                    cache.write_dirty().unwrap();
                    written.clone_from(&now);
                    dirty.fill(false);
                }
            }
            for pin in &pins {
                prop_assert_eq!(pin.data()[0], now[pin.block().0 as usize]);
            }
            prop_assert_eq!(cache.dirty_count(), dirty.iter().filter(|d| **d).count());
        }
        let bytes = device.memory.to_bytes();
        for (block, value) in bytes.chunks(SIZE).zip(&written) {
            prop_assert_eq!(block, &[*value; SIZE]);
        }
    }
}
