//! Any bytes in the log: recovery ends, panics never, and yields only what it may.

use proptest::prelude::*;
use uext4_blockdev::BlockDevice;
use uext4_jbd2::{LogRun, older_copies, recover};
use uext4_ondisk::Pblk;
use uext4_ondisk::journal::JournalIncompat;
use zerocopy::big_endian::U32;

use crate::maker::{Kind, Maker, Place, all_kinds};

/// A log with everything in it.
fn rich(kind: Kind, start: u32) -> Maker {
    let mut log = Maker::new(Place::bare(), kind);
    log.start_at(start, u32::MAX - 1);
    for fill in 1..5u8 {
        log.blocks(&[(usize::from(fill), 1), (9, 0xE0), (10, fill)]);
        log.revoke(&[usize::from(fill), 3]);
        log.commit();
    }
    log.blocks(&[(20, 1)]);
    log.finish();
    log
}

/// Recovers and holds what comes out against what it may be.
fn exercise(log: &Maker) {
    let place = &log.place;
    let runs = &place.runs;
    let (device, count) = (&*place.device, place.blocks_count);
    if let Ok(copies) = older_copies(device, place.size, count, runs, &mut |_, _| true) {
        assert!(copies.iter().all(|copy| copy.home.0 < place.blocks_count));
        assert!(copies.is_sorted_by(|one, next| one.home < next.home));
    }
    let Ok(recovery) = log.recover() else {
        return;
    };
    let owns = |block: Pblk| {
        let mut runs = place.runs.iter();
        runs.any(|run| (run.start.0..run.start.0 + u64::from(run.len)).contains(&block.0))
    };
    assert!(recovery.transactions < 64);
    for block in recovery.replay.blocks() {
        assert!(block.home.0 < place.blocks_count && !owns(block.home));
        assert!(owns(block.log));
    }
    let homes = recovery.replay.blocks().windows(2);
    homes.for_each(|pair| assert!(pair[0].home < pair[1].home));
    let device = log.replayed(&recovery);
    let mut whole = vec![0; device.len() as usize];
    device.read_at(0, &mut whole).unwrap();
}

fn kinds() -> impl Strategy<Value = Kind> {
    let kinds = prop::sample::select(all_kinds());
    let more = [0, 4, 0x20, 0x24].map(JournalIncompat::from_bits_retain);
    (kinds, prop::sample::select(more.to_vec())).prop_map(|(kind, more)| kind.with(more))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Numbers anywhere in the log and its superblock are replaced; the superblock's sum is right,
    /// and often those of the other blocks too.
    #[test]
    fn edited_logs(
        kind in kinds(),
        start in 1u32..64,
        edits in prop::collection::vec((0u32..64, 0usize..256, any_word(), any::<bool>()), 1..6),
    ) {
        let mut log = rich(kind, start);
        for (at, word, value, sum) in edits {
            if at == 0 {
                edit_superblock(&mut log, word, value);
                continue;
            }
            let sb = log.sb;
            log.edit(at, |block| {
                block[word * 4..][..4].copy_from_slice(&U32::new(value).to_bytes());
                if sum {
                    crate::maker::update_tail(block, &sb);
                }
            });
        }
        exercise(&log);
    }

    #[test]
    fn numbers_of_the_superblock(
        kind in kinds(),
        edits in prop::collection::vec((3usize..24, any_word()), 1..4),
    ) {
        let mut log = rich(kind, 50);
        for (word, value) in edits {
            edit_superblock(&mut log, word, value);
        }
        exercise(&log);
    }

    /// Pieces that overlap, lie behind the device, are empty, or are far too many blocks.
    #[test]
    fn pieces_of_any_kind(
        runs in prop::collection::vec((any_place(), any_word()), 0..6),
        blocks_count in any_place(),
    ) {
        let log = rich(crate::maker::V3, 40);
        let place = &log.place;
        let pieces = runs.iter().map(|&(start, len)| LogRun { start: Pblk(start), len });
        let pieces: Vec<_> = pieces.collect();
        let _ = recover(&*place.device, place.size, blocks_count, &pieces);
        let mut pieces = place.runs.clone();
        pieces.extend(runs.iter().map(|&(start, len)| LogRun { start: Pblk(start), len }));
        let _ = recover(&*place.device, place.size, blocks_count, &pieces);
        let _ = recover(&*place.device, place.size, u64::MAX, &pieces);
    }
}

fn edit_superblock(log: &mut Maker, word: usize, value: u32) {
    use zerocopy::{FromBytes, IntoBytes};
    let mut bytes = [0; 1024];
    bytes.copy_from_slice(log.sb.as_bytes());
    bytes[word * 4..][..4].copy_from_slice(&U32::new(value).to_bytes());
    let edited = uext4_ondisk::journal::JournalSuperblock::read_from_bytes(&bytes);
    log.sb = edited.unwrap();
    let mut sb = log.sb;
    sb.update_checksum();
    log.edit(0, |block| block.copy_from_slice(sb.as_bytes()));
}

/// Numbers near what matters.
fn any_word() -> impl Strategy<Value = u32> {
    prop_oneof![
        0u32..70,
        any::<u32>(),
        Just(u32::MAX),
        Just(0x8000_0000),
        Just(uext4_ondisk::journal::JBD2_MAGIC),
        (0u32..32).prop_map(|bit| 1 << bit),
    ]
}

fn any_place() -> impl Strategy<Value = u64> {
    prop_oneof![
        0u64..1100,
        any::<u64>(),
        Just(u64::MAX),
        Just(u64::MAX >> 10)
    ]
}
