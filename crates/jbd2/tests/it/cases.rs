//! Logs that are as they should be: what counts in them.

use uext4_jbd2::Error;
use uext4_ondisk::journal::JournalIncompat;
use uext4_ondisk::superblock::{EXT4_SUPER_MAGIC, SuperBlock};
use uext4_ondisk::{Damage, Pblk};
use zerocopy::{FromZeros, IntoBytes};

use crate::judge::Verdict::{self, LessThanKernel, Refused, Replays};
use crate::judge::{judge, judge_kinds};
use crate::maker::{Maker, Place, V2, V3, all_kinds, content};

#[test]
fn an_empty_log_replays_nothing() {
    judge(|log| {
        log.transaction(&[(0, 1)]);
        log.sb.s_start = 0.into();
        Replays(0)
    });
    judge(|_| Replays(0));
}

#[test]
fn transactions_replay_and_the_last_copy_counts() {
    judge(|log| {
        log.transaction(&[(0, 1), (3, 2), (63, 3)]);
        log.transaction(&[(3, 4), (1, 5), (3, 6)]);
        log.transaction(&[]);
        log.blocks(&[(1, 7), (2, 8)]);
        log.blocks(&[(5, 9)]);
        log.commit();
        log.expect(&[(0, 1), (63, 3), (3, 6), (1, 7), (2, 8), (5, 9)]);
        Replays(4)
    });
}

#[test]
fn escaped_blocks_get_their_magic_back() {
    judge(|log| {
        log.transaction(&[(0, 0xE0), (1, 1), (2, 0xE2)]);
        log.transaction(&[(1, 0xE1), (2, 2)]);
        log.expect(&[(0, 0xE0), (1, 0xE1), (2, 2)]);
        Replays(2)
    });
}

#[test]
fn tags_may_all_carry_a_uuid() {
    judge(|log| {
        let data: Vec<_> = (0u8..9)
            .map(|i| (log.home(i.into()), content(log.place.size, i + 1)))
            .collect();
        log.data(&data, true);
        log.commit();
        log.expected.extend(data);
        Replays(1)
    });
}

#[test]
fn a_full_descriptor_needs_no_last_tag() {
    judge(|log| {
        let tag = log.sb.tag_len();
        let most = (1024 - 12 - 16 - log.sb.tail_len()) / tag;
        // The bare journal has no room for the blocks of so many tags.
        if most > 60 && log.sb.s_maxlen.get() == 64 {
            return Replays(0);
        }
        let data = (0..most).map(|i| {
            let home = log.home(i % 64);
            (home, content(log.place.size, i as u8))
        });
        let data: Vec<_> = data.collect();
        let at = log.data(&data, false);
        // Only while no sum guards it.
        if log.sb.checksum_version() == 0 {
            log.edit(at, |block| block[12 + 16 + (most - 1) * tag + 7] &= !8);
        }
        log.commit();
        log.expected.extend(data);
        Replays(1)
    });
}

/// Every way the end of the ring may fall into two transactions.
#[test]
fn the_ring_wraps_anywhere() {
    let kinds = all_kinds();
    for before_end in 1..=8 {
        let kinds = if before_end == 3 {
            &*kinds
        } else {
            &kinds[3..4]
        };
        judge_kinds(kinds, |log| {
            let end = log.sb.log_end();
            log.start_at(end - before_end, 900);
            log.transaction(&[(0, 1), (1, 2), (2, 3)]);
            log.revoke(&[1]);
            log.transaction(&[(3, 0xE4)]);
            log.expect(&[(0, 1), (2, 3), (3, 0xE4)]);
            Replays(2)
        });
    }
}

#[test]
fn a_ring_may_be_full_to_the_last_block() {
    // One transaction that takes all of the bare ring, wherever it starts.
    for (start, kind) in [1, 2, 40, 63]
        .into_iter()
        .flat_map(|s| all_kinds().into_iter().map(move |k| (s, k)))
    {
        let mut log = Maker::new(Place::bare(), kind);
        log.start_at(start, 5);
        let blocks: Vec<_> = (0u8..40).map(|i| (usize::from(i), i + 1)).collect();
        log.blocks(&blocks);
        let rest: Vec<_> = (40u8..60).map(|i| (usize::from(i), i + 1)).collect();
        log.blocks(&rest);
        log.commit();
        assert_eq!(log.at, start);
        log.expect(&blocks);
        log.expect(&rest);
        log.finish();
        let recovery = log.recover().unwrap();
        assert_eq!((recovery.transactions, recovery.replay.len()), (1, 60));
        log.assert_homes(&log.replayed(&recovery), "ours");
    }
}

#[test]
fn sequences_wrap() {
    for first in [u32::MAX - 1, u32::MAX, 0] {
        judge_kinds(&[V3], |log| {
            log.start_at(5, first);
            log.transaction(&[(0, 1), (1, 1), (2, 1), (3, 1)]);
            log.revoke(&[2]);
            log.transaction(&[(1, 2)]);
            log.transaction(&[(0, 3)]);
            log.revoke(&[3]);
            log.commit();
            log.expect(&[(0, 3), (1, 2)]);
            Replays(4)
        });
    }
}

#[test]
fn old_blocks_behind_the_log_do_not_count() {
    judge(|log| {
        // An earlier round of the ring, with the sequences it had.
        log.start_at(1, 20);
        for fill in 1..8 {
            log.transaction(&[(0, fill), (1, fill)]);
        }
        // The new one ends just where an old descriptor begins.
        log.start_at(1, 27);
        log.time += 10;
        log.transaction(&[(1, 50), (2, 50)]);
        log.expect(&[(1, 50), (2, 50)]);
        Replays(1)
    });
}

#[test]
fn a_transaction_without_its_commit_does_not_count() {
    judge(|log| {
        log.transaction(&[(0, 1)]);
        log.blocks(&[(0, 2), (1, 2)]);
        log.revoke(&[0]);
        log.expect(&[(0, 1)]);
        Replays(1)
    });
    judge(|log| {
        log.blocks(&[(0, 2), (1, 2)]);
        let at = log.commit();
        log.edit(at, |block| block[..512].fill(0));
        Replays(0)
    });
}

#[test]
fn the_fast_commit_area_is_not_of_the_ring() {
    let fast = JournalIncompat::FAST_COMMIT;
    judge_kinds(&[V3.with(fast), V2.with(fast)], |log| {
        log.sb.s_num_fc_blks = 256.into();
        let end = log.sb.log_end();
        let expected = if log.place.journal_len() == 64 {
            64
        } else {
            2048 - 256
        };
        assert_eq!(end, expected);
        log.start_at(end - 2, 3);
        log.transaction(&[(0, 1), (1, 2), (2, 3)]);
        log.expect(&[(0, 1), (1, 2), (2, 3)]);
        Replays(1)
    });
    let mut log = Maker::new(big_place(), V3.with(fast));
    log.start_at(900, 3);
    log.transaction(&[(0, 1)]);
    log.sb.s_num_fc_blks = 30.into();
    log.finish();
    let recovery = log.recover().unwrap();
    let area: Vec<_> = (1100 - 29..1100).map(|at| log.place.block(at)).collect();
    assert_eq!(recovery.fast_commit, area);
    log.sb.s_start = 0.into();
    log.finish();
    assert!(log.recover().unwrap().fast_commit.is_empty());
    log.sb.s_num_fc_blks = u32::MAX.into();
    log.finish();
    assert!(log.recover().is_err());
}

/// A journal long enough to give blocks away, in pieces of one to eight blocks in no order.
fn big_place() -> Place {
    let mut place = Place::bare();
    place.blocks_count = 8192;
    place.device = std::sync::Arc::new(uext4_blockdev::MemoryDevice::new(8 << 20));
    let mut rest = 1100;
    place.runs.clear();
    for number in (0..).map(|i| i * 7 % 300) {
        let len = (number as u32 % 8 + 1).min(rest);
        let start = Pblk(1000 + number * 20);
        place.runs.push(uext4_jbd2::LogRun { start, len });
        rest -= len;
        if rest == 0 {
            return place;
        }
    }
    unreachable!()
}

#[test]
fn a_journal_may_lie_in_many_pieces() {
    for kind in all_kinds() {
        let mut log = Maker::new(big_place(), kind);
        log.start_at(1095, 3);
        for fill in 1..40 {
            let blocks: Vec<_> = (0..20).map(|i| (i + usize::from(fill), fill)).collect();
            log.transaction(&blocks);
            log.expect(&blocks);
        }
        log.finish();
        let recovery = log.recover().unwrap();
        assert_eq!(recovery.transactions, 39);
        log.assert_homes(&log.replayed(&recovery), "ours");
    }
}

/// The first and last block of each piece, and the blocks around it.
#[test]
fn no_home_lies_in_the_journal() {
    let runs = big_place().runs;
    let ends = runs.iter().flat_map(|run| {
        let end = run.start.0 + u64::from(run.len);
        [
            (run.start.0 - 1, false),
            (run.start.0, true),
            (end - 1, true),
            (end, false),
        ]
    });
    for (block, inside) in ends.step_by(7) {
        let mut log = Maker::new(big_place(), V3);
        log.data(&[(Pblk(block), content(log.place.size, 1))], false);
        log.commit();
        log.finish();
        assert_eq!(log.recover().is_err(), inside, "{block}");
    }
    judge(|log| {
        let home = log.place.block(30);
        log.data(&[(home, content(log.place.size, 1))], false);
        log.commit();
        LessThanKernel
    });
}

#[test]
fn homes_lie_on_the_file_system() {
    let behind = |block: fn(&Place) -> u64| {
        move |log: &mut Maker| -> Verdict {
            let home = Pblk(block(&log.place));
            let data = content(log.place.size, 1);
            log.data(&[(log.home(0), data.clone()), (home, data)], false);
            log.commit();
            Refused
        }
    };
    judge(behind(|place| place.blocks_count));
    judge(behind(|_| u64::from(u32::MAX)));
    let wide = JournalIncompat::BIT64;
    judge_kinds(&[V3.with(wide), V2.with(wide)], behind(|_| 1 << 32));
    judge_kinds(&[V3.with(wide), V2.with(wide)], behind(|_| u64::MAX));
    // What was revoked is written nowhere.
    judge(|log| {
        let home = Pblk(log.place.blocks_count + 5);
        log.place.homes.push(home);
        log.data(&[(home, content(log.place.size, 1))], false);
        log.commit();
        log.revoke(&[64]);
        log.transaction(&[(0, 1)]);
        log.place.homes.pop();
        log.expect(&[(0, 1)]);
        Replays(2)
    });
}

/// A home location whose offset has more than 64 bits is refused, whatever size the caller
/// claims.
#[test]
fn every_home_has_an_offset() {
    let mut log = Maker::new(Place::bare(), V3.with(JournalIncompat::BIT64));
    log.place.blocks_count = u64::MAX;
    let data = content(log.place.size, 1);
    log.data(&[(Pblk(1 << 54), data)], false);
    log.commit();
    log.finish();
    assert!(matches!(
        log.recover(),
        Err(Error::Damage(Damage::BlockRange { .. }))
    ));
}

#[test]
fn without_64bit_the_high_half_is_nothing() {
    judge_kinds(&[V3], |log| {
        let at = log.blocks(&[(0, 1)]);
        log.edit(at, |block| {
            block[12 + 11] = 1;
        });
        let sb = log.sb;
        log.edit(at, |block| crate::maker::update_tail(block, &sb));
        log.commit();
        log.expect(&[(0, 1)]);
        Replays(1)
    });
}

/// A superblock in the log says how large the file system has become, as far as the device goes.
#[test]
fn homes_may_lie_in_what_the_file_system_has_grown_by() {
    let superblock = |blocks: u32| {
        let mut superblock = SuperBlock::new_zeroed();
        superblock.s_magic = EXT4_SUPER_MAGIC.into();
        superblock.s_blocks_count_lo = blocks.into();
        superblock.as_bytes().to_vec()
    };
    // The device has 1024 blocks, and the file system had 1000.
    for (blocks, home, is_inside) in [
        (Some(1010), 1009, true),
        (Some(1010), 1010, false),
        (Some(5000), 1023, true),
        (Some(5000), 1024, false),
        (Some(500), 999, true),
        (None, 1000, false),
    ] {
        for kind in all_kinds() {
            let mut log = Maker::new(Place::bare(), kind);
            log.data(&[(Pblk(home), content(log.place.size, 1))], false);
            log.commit();
            if let Some(blocks) = blocks {
                log.data(&[(Pblk(1), superblock(blocks))], false);
                log.commit();
            }
            log.finish();
            let recovered = log.recover();
            assert_eq!(recovered.is_ok(), is_inside, "{blocks:?} {home}");
        }
    }
}
