//! From the blocks in the log to the ones that count.

#![cfg_attr(
    not(test),
    warn(clippy::as_conversions, clippy::arithmetic_side_effects)
)]

use uext4_blockdev::BlockDevice;
use uext4_ondisk::journal::{
    JournalIncompat, JournalSuperblock, parse_revokes, tag_checksum, unescape,
};
use uext4_ondisk::num::index;
use uext4_ondisk::superblock::{SUPERBLOCK_OFFSET, SuperBlock};
use uext4_ondisk::{BlockSize, Damage, Pblk};

use crate::log::Log;
use crate::replay::{Replay, ReplayedBlock};
use crate::scan::{Record, Scan, scan};
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
    let log = Log::open(device, block_size, blocks_count, runs)?;
    let mut recovery = Recovery {
        superblock: log.sb,
        replay: Replay::default(),
        transactions: 0,
        next_sequence: log.sb.s_sequence.get(),
        log_blocks: 0,
        fast_commit: Vec::new(),
        failed_commit: None,
    };
    if log.sb.s_start.get() == 0 {
        return Ok(recovery);
    }
    let mut found = scan(&log)?;
    found
        .records
        .sort_unstable_by_key(|record| (record.home, record.distance));
    let mut live = live_records(&log, &found)?;
    if let Err(bad) = verify(&log, &mut live)? {
        let last = bad.transaction.checked_add(1) == Some(found.transactions);
        if !last || !log.sb.incompat().contains(JournalIncompat::ASYNC_COMMIT) {
            return Err(bad.damage.into());
        }
        // Its commit overtook its data: the transaction never was whole.
        found.transactions = bad.transaction;
        live = live_records(&log, &found)?;
        if let Err(bad) = verify(&log, &mut live)? {
            return Err(bad.damage.into());
        }
    }
    recovery.replay = replay(&log, &live)?;
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
    transaction: u32,
    damage: Damage,
}

/// Sums the data of all records if tags carry checksums; the outer error is the device's. Leaves
/// the records sorted by distance. Of several bad blocks the last one is reported.
fn verify(log: &Log<'_>, records: &mut [Record]) -> Result<Result<(), BadData>, Error> {
    records.sort_unstable_by_key(|record| record.distance);
    if log.sb.checksum_version() < 2 {
        return Ok(Ok(()));
    }
    let (size, log2) = (log.block_size.len(), log.block_size.log2());
    let mut buf = vec![0; VERIFY_BYTES];
    let mut result = Ok(());
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
        for (record, data) in run.iter().zip(buf.chunks_exact(size)) {
            if let Err(bad) = verify_data(log, record, data) {
                result = Err(bad);
            }
        }
    }
    Ok(result)
}

fn verify_data(log: &Log<'_>, record: &Record, data: &[u8]) -> Result<(), BadData> {
    let first = log.sb.s_sequence.get();
    let sequence = first.wrapping_add(record.transaction);
    let computed = tag_checksum(&log.sb, sequence, data);
    if computed == record.checksum {
        return Ok(());
    }
    Err(BadData {
        transaction: record.transaction,
        damage: Damage::JournalChecksum {
            what: "data block",
            block: log.at(record.distance),
            stored: record.checksum,
            computed,
        },
    })
}

/// The replay of what is left, each home location tested.
fn replay(log: &Log<'_>, live: &[Record]) -> Result<Replay, Error> {
    let mut blocks = Vec::with_capacity(live.len());
    let blocks_count = blocks_after(log, live)?;
    for record in live {
        let at = log.at(record.distance);
        if record.home.0 >= blocks_count {
            return Err(Error::Damage(Damage::BlockRange {
                what: "journal tag",
                start: record.home,
                len: 1,
                blocks_count,
            }));
        }
        if log.owns(record.home) {
            let why = "its home lies in the journal itself";
            return Err(Error::Damage(Damage::JournalBlock { at, why }));
        }
        blocks.push(ReplayedBlock {
            home: record.home,
            log: log.block(at)?,
            escaped: record.escaped,
        });
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
