//! From the blocks in the log to the ones that count.

#![cfg_attr(
    not(test),
    warn(clippy::as_conversions, clippy::arithmetic_side_effects)
)]

use std::collections::BTreeSet;

use uext4_blockdev::BlockDevice;
use uext4_ondisk::journal::{
    JournalIncompat, JournalSuperblock, needs_escape, parse_revokes, tag_checksum, unescape,
};
use uext4_ondisk::num::index;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Damage, Pblk};

use crate::log::Log;
use crate::replay::{Replay, ReplayedBlock};
use crate::scan::{OnDamage, Record, Scan, scan};
use crate::{Error, LogRun};

/// Most bytes of the log read at once for verifying.
const VERIFY_BYTES: usize = 1 << 20;
const _: () = assert!(VERIFY_BYTES >= BlockSize::MAX.len());

/// Where the superblock begins in block 0.
const SUPERBLOCK_START: usize = 1024;
const _: () = assert!(SUPERBLOCK_OFFSET == 1024);

/// What recovery found.
#[derive(Clone, Debug)]
pub struct Recovery {
    /// The journal's superblock, valid for this file system.
    pub superblock: JournalSuperblock,
    /// What a replay would write.
    pub replay: Replay,
    /// Committed transactions in the log.
    pub transactions: u32,
    /// The sequence behind the last committed transaction. Fast commits count only if they carry
    /// it.
    pub next_sequence: u32,
    /// Blocks of the log that they take, from its start on.
    pub log_blocks: u32,
    /// Blocks of the fast-commit area in order; none without the feature, and none if the log is
    /// empty or ended at a failed commit.
    pub fast_commit: Vec<Pblk>,
    /// The sequence of a transaction that ends the log because the checksum of its commit block
    /// is wrong, other than by a commit that may be unfinished. The kernel refuses to mount such
    /// a file system; what is reported here is the state before that transaction.
    pub failed_commit: Option<u32>,
    /// What [`recover_what_holds`] leaves out; [`recover`] fails instead.
    pub left_out: Vec<LeftOut>,
}

/// The newest copy of a block in the log, committed and not to be replayed: it is not what its tag
/// says, or its home cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOut {
    /// Where it belongs. An older copy may be replayed there.
    pub home: Pblk,
    /// Where it lies, on the device.
    pub log: Pblk,
    /// Its home has what the tag says, so that nothing is replayed there, and nothing is lost.
    pub is_in_place: bool,
}

impl Recovery {
    /// The error the file system stopped with, as a positive error number; 0 if none.
    pub fn errno(&self) -> u32 {
        // Kernels write it negative.
        self.superblock.s_errno.get().cast_signed().unsigned_abs()
    }
}

/// Finds what the journal on `runs` (its file's blocks in order) would replay on a file system of
/// `blocks_count` blocks, or as many as a superblock in the log says. Nothing is written.
///
/// # Errors
/// [`Error::Device`]; [`Error::UnknownFeature`]; [`Error::Damage`] for a journal whose superblock,
/// or anything in a committed transaction, is not what it must be (see the head of the crate).
pub fn recover(
    device: &dyn BlockDevice,
    block_size: BlockSize,
    blocks_count: u64,
    runs: &[LogRun],
) -> Result<Recovery, Error> {
    recover_as(
        &Log::open(device, block_size, blocks_count, runs)?,
        OnDamage::Fail,
    )
}

/// As [`recover`], for a repair, which examines afterwards what the replay makes: of a committed
/// transaction all blocks are replayed that hold. A data block that is not what its tag says is
/// left out, and an older copy in the log stands in for it. Before a transaction with a damaged
/// descriptor or revoke block the log ends as at a failed commit.
///
/// # Errors
/// As [`recover`], but for those two.
pub fn recover_what_holds(
    device: &dyn BlockDevice,
    block_size: BlockSize,
    blocks_count: u64,
    runs: &[LogRun],
) -> Result<Recovery, Error> {
    recover_as(
        &Log::open(device, block_size, blocks_count, runs)?,
        OnDamage::LeaveOut,
    )
}

fn recover_as(log: &Log<'_>, on_damage: OnDamage) -> Result<Recovery, Error> {
    let mut recovery = Recovery {
        superblock: log.sb,
        replay: Replay::default(),
        transactions: 0,
        next_sequence: log.sb.s_sequence.get(),
        log_blocks: 0,
        fast_commit: Vec::new(),
        failed_commit: None,
        left_out: Vec::new(),
    };
    if log.sb.s_start.get() == 0 {
        return Ok(recovery);
    }
    let mut found = scan(log, on_damage)?;
    found
        .records
        .sort_unstable_by_key(|record| (record.home, record.distance));
    let live = sound_records(log, &mut found, on_damage, &mut recovery.left_out)?;
    recovery.replay = replay(log, &live, on_damage, &mut recovery.left_out)?;
    recovery.transactions = found.transactions;
    recovery.next_sequence = recovery.next_sequence.wrapping_add(found.transactions);
    let last = found.transactions.checked_sub(1);
    let end = last.and_then(|last| found.ends.get(index(last)));
    recovery.log_blocks = end.copied().unwrap_or(0);
    recovery.failed_commit = found.failed_commit;
    if found.failed_commit.is_none() {
        recovery.fast_commit = log.fast_commit_area()?;
    }
    Ok(recovery)
}

/// The records that count, with their data verified.
fn sound_records(
    log: &Log<'_>,
    found: &mut Scan,
    on_damage: OnDamage,
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Record>, Error> {
    let mut live = live_records(log, found)?;
    let mut bad = verify(log, &mut live)?;
    let is_async = log.sb.incompat().contains(JournalIncompat::ASYNC_COMMIT);
    if let Some(last) = bad.last()
        && is_async
        && last.record.transaction.checked_add(1) == Some(found.transactions)
    {
        // Its commit overtook its data: the transaction never was whole.
        found.transactions = last.record.transaction;
        live = live_records(log, found)?;
        bad = verify(log, &mut live)?;
    }
    match (bad.pop(), on_damage) {
        (None, _) => Ok(live),
        (Some(last), OnDamage::Fail) => Err(last.damage.into()),
        (Some(last), OnDamage::LeaveOut) => {
            bad.push(last);
            stand_ins(log, found, &bad, left_out)
        }
    }
}

/// The records that count without the bad ones: of their homes every copy is verified, once. Where
/// the newest one was written home already, as it usually is long before its transaction leaves the
/// log, an older one would take it back.
fn stand_ins(
    log: &Log<'_>,
    found: &mut Scan,
    bad: &[BadData],
    left_out: &mut Vec<LeftOut>,
) -> Result<Vec<Record>, Error> {
    let mut homes = BTreeSet::new();
    let mut in_place = BTreeSet::new();
    for BadData { record, .. } in bad {
        let is_in_place = is_in_place(log, record);
        let places = if is_in_place {
            &mut in_place
        } else {
            &mut homes
        };
        places.insert(record.home);
        left_out.push(LeftOut {
            home: record.home,
            log: log.block(log.at(record.distance))?,
            is_in_place,
        });
    }
    found
        .records
        .retain(|record| !in_place.contains(&record.home));
    let copies = found.records.iter().copied();
    let mut copies: Vec<Record> = copies
        .filter(|record| homes.contains(&record.home))
        .collect();
    let bad = verify(log, &mut copies)?;
    let bad: BTreeSet<u32> = bad.iter().map(|bad| bad.record.distance).collect();
    found
        .records
        .retain(|record| !bad.contains(&record.distance));
    live_records(log, found)
}

/// Whether the home of a record has what its tag says; checksums of 16 bits are no proof.
fn is_in_place(log: &Log<'_>, record: &Record) -> bool {
    let mut data = vec![0; log.block_size.len()];
    if log.sb.checksum_version() < 3 || log.read_device(record.home, &mut data).is_err() {
        return false;
    }
    if needs_escape(&data) {
        // As it lies in the log.
        data.iter_mut().take(4).for_each(|byte| *byte = 0);
    }
    verify_data(log, record, &data).is_none()
}

/// Of each home location the last copy, unless it was revoked; sorted by home location. Only
/// transactions below `found.transactions` count; `found.records` is sorted by home location and
/// distance.
fn live_records(log: &Log<'_>, found: &Scan) -> Result<Vec<Record>, Error> {
    let counts = |record: &&Record| record.transaction < found.transactions;
    let mut live: Vec<Record> = found
        .records
        .chunk_by(|a, b| a.home == b.home)
        .filter_map(|copies| copies.iter().rfind(counts).copied())
        .collect();
    let mut revoked = vec![false; live.len()];
    let mut block = vec![0; log.block_size.len()];
    for &(distance, transaction) in &found.revokes {
        if transaction >= found.transactions {
            continue;
        }
        let at = log.at(distance);
        log.read(at, &mut block)?;
        for home in parse_revokes(&block, &log.sb, at)? {
            if let Ok(index) = live.binary_search_by_key(&home, |record| record.home)
                && live[index].transaction <= transaction
            {
                revoked[index] = true;
            }
        }
    }
    let mut revoked = revoked.into_iter();
    live.retain(|_| !revoked.next().unwrap_or(false));
    Ok(live)
}

/// A data block that is not what its tag says.
struct BadData {
    record: Record,
    damage: Damage,
}

/// Sums the data of all records if tags carry checksums. Leaves the records sorted by distance, and
/// returns the bad ones in this order.
fn verify(log: &Log<'_>, records: &mut [Record]) -> Result<Vec<BadData>, Error> {
    records.sort_unstable_by_key(|record| record.distance);
    let mut bad = Vec::new();
    if log.sb.checksum_version() < 2 {
        return Ok(bad);
    }
    let (size, log2) = (log.block_size.len(), log.block_size.log2());
    let mut buf = vec![0; VERIFY_BYTES];
    let mut rest = &*records;
    while let Some(first) = rest.first() {
        let start = log.block(log.at(first.distance))?;
        let mut count = 1;
        for (record, next) in rest
            .iter()
            .take(VERIFY_BYTES >> log2)
            .zip(start.0..)
            .skip(1)
        {
            if log.block(log.at(record.distance))? != Pblk(next) {
                break;
            }
            count = usize::saturating_add(count, 1);
        }
        let (run, tail) = rest.split_at(count);
        rest = tail;
        let buf = &mut buf[..count << log2];
        log.read_device(start, buf)?;
        let data = buf.chunks_exact(size);
        bad.extend(
            run.iter()
                .zip(data)
                .filter_map(|(record, data)| verify_data(log, record, data)),
        );
    }
    Ok(bad)
}

fn verify_data(log: &Log<'_>, record: &Record, data: &[u8]) -> Option<BadData> {
    let first = log.sb.s_sequence.get();
    let sequence = first.wrapping_add(record.transaction);
    let computed = tag_checksum(&log.sb, sequence, data);
    (computed != record.checksum).then(|| BadData {
        record: *record,
        damage: Damage::JournalChecksum {
            what: "data block",
            block: log.at(record.distance),
            stored: record.checksum,
            computed,
        },
    })
}

/// The replay of what is left, each home location tested.
fn replay(
    log: &Log<'_>,
    live: &[Record],
    on_damage: OnDamage,
    left_out: &mut Vec<LeftOut>,
) -> Result<Replay, Error> {
    let mut blocks = Vec::with_capacity(live.len());
    let blocks_count = blocks_after(log, live)?;
    for record in live {
        let at = log.at(record.distance);
        let damage = if record.home.0 >= blocks_count {
            Some(Damage::BlockRange {
                what: "journal tag",
                start: record.home,
                len: 1,
                blocks_count,
            })
        } else if log.owns(record.home) {
            let why = "its home lies in the journal itself";
            Some(Damage::JournalBlock { at, why })
        } else {
            None
        };
        let (home, block) = (record.home, log.block(at)?);
        match (damage, on_damage) {
            (Some(damage), OnDamage::Fail) => return Err(Error::Damage(damage)),
            (Some(_), OnDamage::LeaveOut) => left_out.push(LeftOut {
                home,
                log: block,
                is_in_place: false,
            }),
            (None, _) => blocks.push(ReplayedBlock {
                home,
                log: block,
                escaped: record.escaped,
            }),
        }
    }
    Ok(Replay::new(blocks))
}

/// Blocks that the file system has once the log is replayed. It may have grown while it was in use:
/// then the superblock is in the log, and so are blocks of what was added. What that one says
/// counts as far as the device goes.
fn blocks_after(log: &Log<'_>, live: &[Record]) -> Result<u64, Error> {
    let bits = log.block_size.log2();
    let home = Pblk(SUPERBLOCK_OFFSET >> bits);
    let Some(record) = live.iter().find(|record| record.home == home) else {
        return Ok(log.blocks_count);
    };
    let mut block = vec![0; log.block_size.len()];
    log.read(log.at(record.distance), &mut block)?;
    if record.escaped {
        unescape(&mut block, 0);
    }
    let start = match home {
        // Behind the boot sector.
        Pblk(0) => SUPERBLOCK_START,
        _ => 0,
    };
    let superblock = block.get(start..).map(SuperBlock::parse);
    let after = superblock
        .and_then(Result::ok)
        .map_or(0, |it| it.blocks_count());
    Ok(log.blocks_count.max(after.min(log.device.len() >> bits)))
}
