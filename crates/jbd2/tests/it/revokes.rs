//! What revokes take back, and what they leave.

use std::sync::Arc;

use uext4_ondisk::journal::JournalIncompat;
use zerocopy::big_endian::U32;

use crate::judge::Verdict::{Refused, Replays};
use crate::judge::{judge, judge_kinds};
use crate::maker::{PLAIN, V1, V3};
use crate::toy::{Toy, place};

#[test]
fn a_revoke_cancels_earlier_copies() {
    judge(|log| {
        log.transaction(&[(0, 1), (1, 1), (2, 1)]);
        log.transaction(&[(0, 2)]);
        log.revoke(&[0, 2]);
        log.transaction(&[(3, 3)]);
        log.expect(&[(1, 1), (3, 3)]);
        Replays(3)
    });
}

#[test]
fn a_revoke_takes_back_its_own_transaction() {
    judge(|log| {
        log.revoke(&[0]);
        log.blocks(&[(0, 1), (1, 1), (2, 1)]);
        log.revoke(&[2]);
        log.commit();
        log.expect(&[(1, 1)]);
        Replays(1)
    });
}

#[test]
fn a_revoke_leaves_later_copies() {
    judge(|log| {
        log.transaction(&[(0, 1), (1, 1)]);
        log.revoke(&[0, 1, 2]);
        log.commit();
        log.transaction(&[(0, 3), (2, 3)]);
        log.expect(&[(0, 3), (2, 3)]);
        Replays(3)
    });
}

#[test]
fn the_last_revoke_of_a_block_counts() {
    judge(|log| {
        log.transaction(&[(0, 1)]);
        log.revoke(&[0]);
        log.transaction(&[(1, 2)]);
        log.transaction(&[(0, 3), (2, 3)]);
        log.revoke(&[0]);
        log.commit();
        log.revoke(&[2, 2, 2]);
        log.transaction(&[(1, 5)]);
        log.expect(&[(1, 5)]);
        Replays(5)
    });
}

#[test]
fn a_revoke_that_is_not_committed_takes_nothing_back() {
    judge(|log| {
        log.transaction(&[(0, 1)]);
        log.revoke(&[0]);
        log.expect(&[(0, 1)]);
        Replays(1)
    });
}

#[test]
fn a_revoke_block_may_be_full_or_empty() {
    judge(|log| {
        let len = if log.sb.incompat().contains(JournalIncompat::BIT64) {
            8
        } else {
            4
        };
        let most = (1024 - 16 - log.sb.tail_len()) / len;
        log.transaction(&[(0, 1), (62, 1), (63, 1)]);
        let mut homes = vec![62; most];
        homes[most - 1] = 63;
        log.revoke(&homes);
        log.revoke(&[]);
        log.commit();
        log.expect(&[(0, 1)]);
        Replays(2)
    });
}

#[test]
fn the_count_of_a_revoke_block_must_fit_it() {
    let counts = |count: u32, expected: &[(usize, u8)], verdict| {
        judge_kinds(&[PLAIN, V1, PLAIN.with(JournalIncompat::BIT64)], |log| {
            log.transaction(&[(0, 1), (1, 1)]);
            let at = log.revoke(&[0, 1]);
            log.edit(at, |block| {
                block[12..16].copy_from_slice(&U32::new(count).to_bytes());
            });
            log.transaction(&[(2, 2)]);
            let wide = log.sb.incompat().contains(JournalIncompat::BIT64);
            let expected = if wide && count == 23 {
                &[(0, 1), (1, 1), (2, 2)]
            } else {
                expected
            };
            log.expect(expected);
            verdict
        });
    };
    for count in [0, 1, 15, 16, 19] {
        counts(count, &[(0, 1), (1, 1), (2, 2)], Replays(2));
    }
    counts(23, &[(1, 1), (2, 2)], Replays(2));
    for count in [1025, 1 << 31, u32::MAX] {
        counts(count, &[], Refused);
    }
}

/// Revokes take room in the log: who frees much is asked to go on in another transaction, before
/// one grows larger than the log.
#[test]
fn revokes_take_credits() {
    for kind in [PLAIN, V3] {
        let place = place(kind);
        let device = Arc::new(place.device.snapshot());
        let toy = Toy::open(&place, device).unwrap();
        let (mut next, end, mut handles) = (1 << 20, (1 << 20) + 40_000, 0);
        while next < end {
            let handle = toy.journal.start(2, &toy).unwrap();
            handles += 1;
            let most = handle.revokes(1);
            assert_eq!(handle.credits_revoke(most), 1);
            assert_eq!(handle.credits_revoke(most + 1), 2);
            while handle.credits() > 0 || handle.extend(1) {
                let part = u64::from(handle.revokes(handle.credits()));
                handle.revoke(next..next + part);
                // What was revoked already costs nothing.
                handle.revoke(next..next + part);
                assert_eq!(handle.credits(), 0);
                next += part;
            }
        }
        assert!(handles > 10);
        toy.journal.commit_now(&toy).unwrap();
        toy.journal.check().unwrap();
    }
}
