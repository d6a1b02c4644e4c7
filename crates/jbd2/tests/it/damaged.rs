//! Logs with damage in them: where recovery ends, and when it must not go on at all.

use uext4_ondisk::journal::{JBD2_MAGIC, JournalIncompat, JournalSuperblock};
use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

use crate::judge::Verdict::{FailedCommit, FewerThanKernel, MoreThanKernel, Refused, Replays};
use crate::judge::judge_kinds;
use crate::maker::{Kind, Maker, PLAIN, Place, V1, V2, V3, content};

const WIDE: JournalIncompat = JournalIncompat::BIT64;
const ASYNC: JournalIncompat = JournalIncompat::ASYNC_COMMIT;

/// Kinds whose blocks all carry sums.
const SUMMED: [Kind; 4] = [V2, V2.with(WIDE), V3, V3.with(WIDE)];

fn with_async(kinds: &[Kind]) -> Vec<Kind> {
    kinds.iter().map(|kind| kind.with(ASYNC)).collect()
}

#[test]
fn a_bad_descriptor_in_the_log() {
    for byte in [13, 500, 1023] {
        judge_kinds(&SUMMED, |log| {
            log.transaction(&[(0, 1)]);
            let at = log.blocks(&[(0, 2)]);
            log.damage(at, byte);
            log.commit();
            log.transaction(&[(1, 3)]);
            log.expect(&[(0, 1)]);
            Refused
        });
    }
}

#[test]
fn a_bad_descriptor_at_the_end() {
    judge_kinds(&SUMMED, |log| {
        log.transaction(&[(0, 1)]);
        let at = log.blocks(&[(0, 2)]);
        log.damage(at, 600);
        log.expect(&[(0, 1)]);
        Replays(1)
    });
}

#[test]
fn a_bad_descriptor_of_an_older_commit() {
    judge_kinds(&SUMMED, |log| {
        log.transaction(&[(0, 1)]);
        let at = log.blocks(&[(0, 2)]);
        log.damage(at, 600);
        log.time -= 100;
        log.commit();
        log.expect(&[(0, 1)]);
        Replays(1)
    });
}

#[test]
fn a_bad_revoke_block() {
    judge_kinds(&SUMMED, |log| {
        log.transaction(&[(0, 1), (1, 1)]);
        let at = log.revoke(&[0]);
        log.damage(at, 900);
        log.transaction(&[(1, 2)]);
        Refused
    });
    judge_kinds(&SUMMED, |log| {
        log.transaction(&[(0, 1), (1, 1)]);
        log.blocks(&[(1, 2)]);
        let at = log.revoke(&[0]);
        log.damage(at, 900);
        log.expect(&[(0, 1), (1, 1)]);
        Replays(1)
    });
}

#[test]
fn a_bad_commit() {
    for byte in [16, 49, 55, 1000] {
        judge_kinds(&SUMMED, |log| {
            log.transaction(&[(0, 1), (1, 1)]);
            log.blocks(&[(0, 2)]);
            log.revoke(&[1]);
            let at = log.commit();
            log.damage(at, byte);
            log.transaction(&[(2, 3)]);
            log.expect(&[(0, 1), (1, 1)]);
            // The block behind its head is not looked at when all of it reads as zeroes.
            if byte < 60 {
                FailedCommit(1)
            } else {
                log.expected.clear();
                log.expect(&[(0, 2), (2, 3)]);
                Replays(3)
            }
        });
    }
}

#[test]
fn a_bad_commit_of_an_older_round() {
    judge_kinds(&SUMMED, |log| {
        log.transaction(&[(0, 1)]);
        log.time -= 100;
        log.blocks(&[(0, 2)]);
        let at = log.commit();
        log.damage(at, 17);
        log.expect(&[(0, 1)]);
        Replays(1)
    });
}

#[test]
fn a_bad_commit_when_commits_may_be_early() {
    judge_kinds(&with_async(&SUMMED), |log| {
        log.transaction(&[(0, 1)]);
        log.blocks(&[(0, 2), (1, 2)]);
        let at = log.commit();
        log.damage(at, 17);
        log.expect(&[(0, 1)]);
        Replays(1)
    });
    judge_kinds(&with_async(&SUMMED), |log| {
        log.transaction(&[(0, 1)]);
        log.blocks(&[(0, 2), (1, 2)]);
        let at = log.commit();
        log.damage(at, 17);
        log.transaction(&[(2, 3)]);
        log.expect(&[(0, 1)]);
        Replays(1)
    });
}

/// A second bad commit does not make the first one good: the kernel forgets the first.
#[test]
fn two_bad_commits_when_commits_may_be_early() {
    judge_kinds(&with_async(&SUMMED), |log| {
        log.transaction(&[(0, 1)]);
        for fill in [2, 3] {
            log.blocks(&[(0, fill), (1, fill)]);
            let at = log.commit();
            log.damage(at, 17);
        }
        log.transaction(&[(2, 3)]);
        log.expect(&[(0, 1)]);
        FewerThanKernel(1)
    });
}

#[test]
fn v1_commits_behind_a_bad_one_when_commits_may_be_early() {
    judge_kinds(&[V1.with(ASYNC)], |log| {
        log.transaction(&[(0, 1)]);
        let at = log.blocks(&[(0, 2), (1, 2)]);
        log.damage(at + 1, 5);
        log.commit();
        log.transaction(&[(2, 3)]);
        log.expect(&[(0, 1)]);
        FailedCommit(1)
    });
    // The one behind is not finished: that proves nothing.
    judge_kinds(&[V1.with(ASYNC)], |log| {
        log.transaction(&[(0, 1)]);
        let at = log.blocks(&[(0, 2), (1, 2)]);
        log.damage(at + 1, 5);
        log.commit();
        log.blocks(&[(0, 3), (2, 3)]);
        log.revoke(&[0]);
        log.expect(&[(0, 1)]);
        Replays(1)
    });
}

#[test]
fn bad_data() {
    judge_kinds(&SUMMED, |log| {
        log.transaction(&[(0, 1)]);
        let at = log.blocks(&[(1, 2), (2, 2)]);
        log.damage(at + 2, 1);
        log.commit();
        Refused
    });
    // No thread sees what a later copy replaces.
    judge_kinds(&SUMMED, |log| {
        let at = log.blocks(&[(1, 2), (2, 2)]);
        log.damage(at + 2, 1);
        log.commit();
        log.transaction(&[(2, 3)]);
        log.expect(&[(1, 2), (2, 3)]);
        MoreThanKernel(2)
    });
    judge_kinds(&SUMMED, |log| {
        let at = log.blocks(&[(1, 2), (2, 2)]);
        log.damage(at + 2, 1);
        log.commit();
        log.revoke(&[2]);
        log.commit();
        log.expect(&[(1, 2)]);
        Replays(2)
    });
}

#[test]
fn bad_data_when_commits_may_be_early() {
    judge_kinds(&with_async(&SUMMED), |log| {
        log.transaction(&[(0, 1)]);
        let at = log.blocks(&[(0, 2), (2, 2)]);
        log.damage(at + 2, 1);
        log.commit();
        log.expect(&[(0, 1)]);
        MoreThanKernel(1)
    });
    judge_kinds(&with_async(&SUMMED), |log| {
        let at = log.blocks(&[(1, 2), (2, 2)]);
        log.damage(at + 2, 1);
        log.commit();
        log.transaction(&[(0, 2)]);
        Refused
    });
}

#[test]
fn bad_descriptors_when_commits_may_be_early() {
    judge_kinds(&with_async(&SUMMED), |log| {
        log.transaction(&[(0, 1)]);
        let at = log.blocks(&[(0, 2), (2, 2)]);
        log.damage(at, 900);
        log.commit();
        log.expect(&[(0, 1)]);
        MoreThanKernel(1)
    });
}

#[test]
fn v1_sums_cover_descriptors_and_data() {
    for (damaged, byte) in [(0, 900), (1, 0), (2, 1023)] {
        judge_kinds(&[V1, V1.with(WIDE)], |log| {
            log.transaction(&[(0, 1)]);
            let at = log.blocks(&[(0, 2), (1, 2)]);
            log.damage(at + damaged, byte);
            log.commit();
            log.transaction(&[(2, 3)]);
            log.expect(&[(0, 1)]);
            FailedCommit(1)
        });
        judge_kinds(&[V1.with(ASYNC)], |log| {
            log.transaction(&[(0, 1)]);
            let at = log.blocks(&[(0, 2), (1, 2)]);
            log.damage(at + damaged, byte);
            log.commit();
            log.expect(&[(0, 1)]);
            Replays(1)
        });
    }
}

#[test]
fn v1_sums_may_be_missing() {
    judge_kinds(&[V1], |log| {
        log.blocks(&[(0, 1)]);
        log.commit_with(None);
        log.transaction(&[(1, 2)]);
        log.blocks(&[(2, 3)]);
        log.commit_with(None);
        log.transaction(&[(3, 4)]);
        log.expect(&[(0, 1), (1, 2), (2, 3), (3, 4)]);
        Replays(4)
    });
    for (at_byte, value) in [(12, 4), (13, 20)] {
        judge_kinds(&[V1], |log| {
            log.blocks(&[(0, 1)]);
            let at = log.commit();
            log.edit(at, |block| block[at_byte] = value);
            FailedCommit(0)
        });
    }
}

#[test]
fn v1_sums_do_not_cover_revokes() {
    judge_kinds(&[V1], |log| {
        log.transaction(&[(0, 1), (1, 1)]);
        log.revoke(&[0]);
        log.transaction(&[(2, 2)]);
        log.expect(&[(1, 1), (2, 2)]);
        Replays(2)
    });
}

#[test]
fn superblocks_that_cannot_be() {
    let edits: [fn(&mut JournalSuperblock); 14] = [
        |sb| sb.s_start = sb.s_maxlen,
        |sb| sb.s_start = u32::MAX.into(),
        |sb| sb.s_first = 0.into(),
        |sb| sb.s_first = sb.s_maxlen,
        |sb| sb.s_first = u32::MAX.into(),
        |sb| sb.s_maxlen = (sb.s_maxlen.get() + 1).into(),
        |sb| sb.s_maxlen = u32::MAX.into(),
        |sb| sb.s_maxlen = 0.into(),
        |sb| sb.s_blocksize = 4096.into(),
        |sb| sb.s_header.h_magic = 7.into(),
        |sb| sb.s_header.h_blocktype = 5.into(),
        |sb| sb.s_feature_incompat |= 0x40,
        |sb| sb.s_feature_ro_compat = 1.into(),
        |sb| sb.s_feature_incompat |= 0x18,
    ];
    for edit in edits {
        judge_kinds(&[PLAIN, V3], |log| {
            log.transaction(&[(0, 1)]);
            edit(&mut log.sb);
            Refused
        });
    }
}

#[test]
fn a_bad_sum_of_the_superblock() {
    let place = Place::bare();
    let mut log = Maker::new(place, V3);
    log.transaction(&[(0, 1)]);
    log.finish();
    for byte in (0..1024).step_by(13) {
        log.damage(0, byte);
        assert!(log.recover().is_err(), "{byte}");
        log.damage(0, byte);
    }
    assert_eq!(log.recover().unwrap().transactions, 1);
}

#[test]
fn a_repair_leaves_out_no_more_than_the_damaged_block() {
    for kind in SUMMED {
        let mut log = Maker::new(Place::bare(), kind);
        log.transaction(&[(0, 1), (2, 1)]);
        let at = log.blocks(&[(1, 2), (2, 2)]);
        log.damage(at + 2, 1);
        log.commit();
        log.transaction(&[(0, 3)]);
        log.expect(&[(0, 3), (1, 2), (2, 1)]);
        log.finish();
        assert!(log.recover().is_err());
        let recovery = log.recover_what_holds().unwrap();
        assert_eq!(recovery.transactions, 3);
        let left_out: Vec<_> = recovery.left_out.iter().map(|left| left.home).collect();
        assert_eq!(left_out, [log.home(2)]);
        log.assert_homes(&log.replayed(&recovery), "ours");
    }
}

#[test]
fn no_older_copy_takes_back_what_is_in_its_place_already() {
    let size = Place::bare().size;
    let mut escaped = content(size, 2);
    escaped[..4].copy_from_slice(U32::new(JBD2_MAGIC).as_bytes());
    for newest in [content(size, 2), escaped] {
        let mut log = Maker::new(Place::bare(), V3);
        log.transaction(&[(0, 1), (2, 1)]);
        let (first, second) = (log.home(1), log.home(2));
        let at = log.data(
            &[(first, content(size, 2)), (second, newest.clone())],
            false,
        );
        log.damage(at + 2, 9);
        log.commit();
        log.expect(&[(0, 1), (1, 2)]);
        log.finish();
        log.place.write(second, &newest);
        let recovery = log.recover_what_holds().unwrap();
        let left_out: Vec<_> = recovery.left_out.iter().collect();
        assert!(matches!(left_out[..], [left] if left.is_in_place && left.home == second));
        let replayed = log.replayed(&recovery);
        assert!(log.place.read(&replayed, second) == newest);
        log.assert_homes(&replayed, "ours");
    }
}

#[test]
fn a_repair_leaves_out_every_copy_that_is_damaged() {
    for kind in SUMMED {
        let mut log = Maker::new(Place::bare(), kind);
        log.transaction(&[(2, 1)]);
        for fill in [2, 3] {
            let at = log.blocks(&[(1, fill), (2, fill)]);
            log.damage(at + 2, 1);
            log.commit();
        }
        log.expect(&[(1, 3), (2, 1)]);
        log.finish();
        let recovery = log.recover_what_holds().unwrap();
        log.assert_homes(&log.replayed(&recovery), "ours");
    }
}

#[test]
fn for_a_repair_the_log_ends_before_a_damaged_descriptor() {
    for kind in SUMMED {
        let mut log = Maker::new(Place::bare(), kind);
        log.transaction(&[(0, 1)]);
        let at = log.blocks(&[(0, 2), (1, 2)]);
        log.damage(at, 900);
        log.commit();
        log.transaction(&[(2, 3)]);
        log.expect(&[(0, 1)]);
        log.finish();
        assert!(log.recover().is_err());
        let recovery = log.recover_what_holds().unwrap();
        assert_eq!(recovery.transactions, 1);
        assert!(recovery.failed_commit.is_some());
        log.assert_homes(&log.replayed(&recovery), "ours");
    }
}
