//! Copies that are still in the log, although it is empty.

use uext4_jbd2::{Error, ReplayedBlock, all_copies, older_copies};
use uext4_ondisk::journal::unescape;

use crate::maker::{Kind, Maker, PLAIN, Place, V3, all_kinds, content};

/// A log of this kind on a bare device, filled, and then empty.
fn emptied(kind: Kind, fill: impl FnOnce(&mut Maker)) -> Maker {
    let mut log = Maker::new(Place::bare(), kind);
    fill(&mut log);
    log.sb.s_start = 0.into();
    log.sb.s_sequence = (log.sequence + 1).into();
    log.finish();
    log
}

fn copies(log: &Maker) -> Result<Vec<ReplayedBlock>, Error> {
    let place = &log.place;
    let (device, runs) = (&*place.device, &place.runs);
    older_copies(device, place.size, place.blocks_count, runs, &mut |_, _| {
        true
    })
}

/// Asserts that these homes have copies, with these contents, and no others.
#[track_caller]
fn assert_copies(log: &Maker, expected: &[(usize, u8)]) {
    let found = copies(log).unwrap();
    let mut contents: Vec<_> = expected
        .iter()
        .map(|&(home, fill)| (log.home(home), content(log.place.size, fill)))
        .collect();
    contents.sort_unstable_by_key(|(home, _)| *home);
    let read = |block: &ReplayedBlock| {
        let mut bytes = log.place.read(&*log.place.device, block.log);
        if block.escaped {
            unescape(&mut bytes, 0);
        }
        (block.home, bytes)
    };
    let found: Vec<_> = found.iter().map(read).collect();
    assert!(found == contents, "{} of {}", found.len(), contents.len());
}

#[test]
fn the_newest_copy_of_each_block_is_found_in_an_empty_log() {
    for kind in all_kinds() {
        let log = emptied(kind, |log| {
            log.transaction(&[(0, 1), (3, 0xE2), (63, 3)]);
            log.transaction(&[(3, 0xE4), (1, 5)]);
        });
        assert_eq!(log.recover().unwrap().replay.len(), 0);
        assert_copies(&log, &[(0, 1), (63, 3), (3, 0xE4), (1, 5)]);
    }
}

#[test]
fn all_copies_of_a_block_are_found_the_newest_first_also_revoked_ones() {
    for kind in all_kinds() {
        let log = emptied(kind, |log| {
            log.transaction(&[(0, 1), (3, 2)]);
            log.transaction(&[(3, 0xE4)]);
            log.revoke(&[3, 0]);
            log.commit();
            log.transaction(&[(3, 5)]);
        });
        let place = &log.place;
        let (device, runs) = (&*place.device, &place.runs);
        let (size, count) = (place.size, place.blocks_count);
        let found = all_copies(device, size, count, runs, &mut |_, _| true).unwrap();
        let mut expected = [(3, 0, 5), (3, 2, 0xE4), (3, 3, 2), (0, 3, 1)];
        expected.sort_unstable_by_key(|&(home, age, _)| (log.home(home), age));
        let expected: Vec<_> = expected
            .iter()
            .map(|&(home, age, fill)| (log.home(home), age, content(size, fill)))
            .collect();
        let read = |copy: &uext4_jbd2::OlderCopy| {
            let mut bytes = place.read(device, copy.block.log);
            if copy.block.escaped {
                unescape(&mut bytes, 0);
            }
            (copy.block.home, copy.age, bytes)
        };
        let found: Vec<_> = found.iter().map(read).collect();
        assert!(found == expected, "{kind:?}: {}", found.len());
        let stopped = all_copies(device, size, count, runs, &mut |_, _| false).unwrap();
        assert!(stopped.is_empty());
    }
}

#[test]
fn the_rest_of_an_older_round_is_found_behind_a_newer_one() {
    for kind in all_kinds() {
        let log = emptied(kind, |log| {
            log.start_at(1, 20);
            for home in 0..8 {
                log.transaction(&[(home, 1), (9, home as u8)]);
            }
            // Over the first transaction of four blocks, and a part of the second.
            log.start_at(1, 28);
            log.transaction(&[(2, 50), (20, 50), (21, 50)]);
        });
        let mut expected: Vec<_> = (3..8).map(|home| (home, 1)).collect();
        expected.extend([(2, 50), (20, 50), (21, 50), (9, 7)]);
        assert_copies(&log, &expected);
    }
}

#[test]
fn a_revoked_block_and_a_transaction_without_its_commit_have_no_copies() {
    for kind in all_kinds() {
        let log = emptied(kind, |log| {
            log.transaction(&[(0, 1), (1, 1), (2, 1)]);
            log.revoke(&[0, 1]);
            log.transaction(&[(5, 5)]);
            log.transaction(&[(1, 2)]);
            log.blocks(&[(6, 6)]);
        });
        assert_copies(&log, &[(1, 2), (2, 1), (5, 5)]);
    }
}

#[test]
fn a_walk_that_is_stopped_finds_nothing() {
    let log = emptied(PLAIN, |log| log.transaction(&[(0, 1)]));
    let (device, runs) = (&*log.place.device, &log.place.runs);
    let (size, count) = (log.place.size, log.place.blocks_count);
    let mut calls = 0;
    let found = older_copies(device, size, count, runs, &mut |done, total| {
        calls += 1;
        assert!(done <= total);
        false
    });
    assert_eq!((found.unwrap(), calls), (Vec::new(), 1));
}

#[test]
fn damage_costs_its_own_transaction_and_no_other() {
    let log = emptied(V3, |log| {
        log.transaction(&[(0, 1)]);
        let at = log.blocks(&[(1, 2)]);
        log.commit();
        log.damage(at + 1, 17);
        log.transaction(&[(2, 3)]);
        let at = log.blocks(&[(3, 4)]);
        log.commit();
        log.damage(at, 40);
        let at = log.blocks(&[(4, 5)]);
        let commit = log.commit();
        assert!(commit > at);
        log.damage(commit, 50);
    });
    assert_copies(&log, &[(0, 1), (2, 3)]);
    let mut log = emptied(PLAIN, |log| log.transaction(&[(0, 1)]));
    log.sb.s_blocksize = 77.into();
    log.finish();
    assert!(copies(&log).is_err());
}
