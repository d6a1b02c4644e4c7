//! Makes logs by hand, block by block, on a device in memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use uext4_blockdev::{BlockDevice, MemoryDevice};
use uext4_jbd2::{Error, LogRun, Recovery, ReplayedDevice, recover, recover_what_holds};
use uext4_ondisk::checksum::{crc32_be, crc32c};
use uext4_ondisk::inode::Timestamp;
use uext4_ondisk::journal::{
    BlockType, Descriptor, JBD2_CRC32C_CHKSUM, JBD2_MAGIC, JournalCompat, JournalHeader,
    JournalIncompat, JournalSuperblock, TagFlags, commit_block, needs_escape, revoke_block,
    revoke_capacity,
};
use uext4_ondisk::{BlockSize, Pblk};
use zerocopy::IntoBytes;
use zerocopy::big_endian::U32;

/// A kind of journal: its feature words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    pub compat: JournalCompat,
    pub incompat: JournalIncompat,
}

const REVOKE: JournalIncompat = JournalIncompat::REVOKE;

impl Kind {
    pub const fn new(compat: JournalCompat, incompat: JournalIncompat) -> Self {
        Self {
            compat,
            incompat: incompat.union(REVOKE),
        }
    }

    pub const fn with(self, incompat: JournalIncompat) -> Self {
        Self::new(self.compat, self.incompat.union(incompat))
    }
}

pub const PLAIN: Kind = Kind::new(JournalCompat::empty(), REVOKE);
pub const V1: Kind = Kind::new(JournalCompat::CHECKSUM, REVOKE);
pub const V2: Kind = Kind::new(JournalCompat::empty(), JournalIncompat::CSUM_V2);
pub const V3: Kind = Kind::new(JournalCompat::empty(), JournalIncompat::CSUM_V3);

/// Every kind of checksum with both widths of block numbers.
pub fn all_kinds() -> Vec<Kind> {
    let narrow = [PLAIN, V1, V2, V3];
    let wide = narrow.map(|kind| kind.with(JournalIncompat::BIT64));
    narrow.into_iter().chain(wide).collect()
}

/// A file system's place for a journal, and blocks that a log may name.
#[derive(Clone, Debug)]
pub struct Place {
    pub device: Arc<MemoryDevice>,
    pub size: BlockSize,
    pub blocks_count: u64,
    pub runs: Vec<LogRun>,
    /// Free blocks.
    pub homes: Vec<Pblk>,
}

impl Place {
    /// No file system: only a journal of 64 blocks in four pieces, the last one first.
    pub fn bare() -> Self {
        let run = |start, len| LogRun {
            start: Pblk(start),
            len,
        };
        Self {
            device: Arc::new(MemoryDevice::new(1024 * 1024)),
            size: BlockSize::from_bytes(1024).unwrap(),
            blocks_count: 1000,
            runs: vec![run(700, 20), run(500, 1), run(501, 19), run(100, 24)],
            homes: (200..264).map(Pblk).collect(),
        }
    }

    pub fn journal_len(&self) -> u32 {
        self.runs.iter().map(|run| run.len).sum()
    }

    /// The device block of a log block.
    pub fn block(&self, mut at: u32) -> Pblk {
        for run in &self.runs {
            match at.checked_sub(run.len) {
                Some(rest) => at = rest,
                None => return Pblk(run.start.0 + u64::from(at)),
            }
        }
        panic!("behind the journal");
    }

    pub fn read(&self, device: &dyn BlockDevice, block: Pblk) -> Vec<u8> {
        let mut bytes = vec![0; self.size.len()];
        let offset = self.size.byte_offset(block).unwrap();
        device.read_at(offset, &mut bytes).unwrap();
        bytes
    }

    pub fn write(&self, block: Pblk, bytes: &[u8]) {
        let offset = self.size.byte_offset(block).unwrap();
        self.device.write_at(offset, bytes).unwrap();
    }
}

/// A log in the making.
pub struct Maker {
    pub place: Place,
    pub sb: JournalSuperblock,
    /// The log block to be written next.
    pub at: u32,
    /// Of the running transaction.
    pub sequence: u32,
    /// Seconds of the next commit.
    pub time: i64,
    /// v1 sum of the running transaction.
    crc: u32,
    /// What the homes must read as after recovery; those not named must read as before.
    pub expected: BTreeMap<Pblk, Vec<u8>>,
}

impl Maker {
    pub fn new(place: Place, kind: Kind) -> Self {
        let mut sb = JournalSuperblock::zeroed();
        sb.s_header = JournalHeader::new(BlockType::SuperblockV2, 0);
        sb.s_blocksize = place.size.bytes().into();
        sb.s_maxlen = place.journal_len().into();
        sb.s_first = 1.into();
        sb.s_feature_compat = kind.compat.bits().into();
        sb.s_feature_incompat = kind.incompat.bits().into();
        sb.s_uuid = *b"a journal's uuid";
        sb.s_nr_users = 1.into();
        if sb.checksum_version() >= 2 {
            sb.s_checksum_type = JBD2_CRC32C_CHKSUM;
        }
        let mut maker = Self {
            place,
            sb,
            at: 0,
            sequence: 0,
            time: 1_700_000_000,
            crc: !0,
            expected: BTreeMap::new(),
        };
        maker.start_at(1, 7);
        maker
    }

    /// Begins the log at this block with this sequence.
    pub fn start_at(&mut self, at: u32, sequence: u32) {
        (self.at, self.sequence) = (at, sequence);
        self.sb.s_start = at.into();
        self.sb.s_sequence = sequence.into();
    }

    pub fn home(&self, index: usize) -> Pblk {
        self.place.homes[index]
    }

    /// Writes the next log block and says which one that was.
    pub fn put(&mut self, block: &[u8]) -> u32 {
        let at = self.at;
        self.place.write(self.place.block(at), block);
        self.at += 1;
        if self.at >= self.sb.log_end() {
            self.at = self.sb.s_first.get();
        }
        at
    }

    /// A descriptor and its blocks, given by the numbers of their homes and what fills them. Says
    /// where the descriptor lies.
    pub fn blocks(&mut self, blocks: &[(usize, u8)]) -> u32 {
        let size = self.place.size;
        let blocks = blocks.iter();
        let blocks: Vec<_> = blocks
            .map(|&(home, fill)| (self.home(home), content(size, fill)))
            .collect();
        self.data(&blocks, false)
    }

    /// As [`Self::blocks`], with any content anywhere, and with an UUID behind each tag or only
    /// behind the first.
    pub fn data(&mut self, blocks: &[(Pblk, Vec<u8>)], uuids: bool) -> u32 {
        let sb = self.sb;
        let mut descriptor = Descriptor::new(&sb, self.sequence, self.place.size.len());
        let mut logged = Vec::new();
        for (home, data) in blocks {
            let mut data = data.clone();
            let mut flags = TagFlags::empty();
            if needs_escape(&data) {
                data[..4].fill(0);
                flags = TagFlags::ESCAPE;
            }
            assert!(descriptor.has_room(), "no room for another tag");
            descriptor.push(*home, &data, flags);
            logged.push(data);
        }
        let mut descriptor = descriptor.finish();
        if uuids {
            give_uuids(&mut descriptor, &sb, blocks.len());
        }
        self.crc = crc32_be(self.crc, &descriptor);
        let at = self.put(&descriptor);
        for data in logged {
            self.crc = crc32_be(self.crc, &data);
            self.put(&data);
        }
        at
    }

    /// A revoke block for the homes with these numbers.
    pub fn revoke(&mut self, homes: &[usize]) -> u32 {
        let revokes: Vec<_> = homes.iter().map(|&home| self.home(home)).collect();
        let (sb, len) = (self.sb, self.place.size.len());
        assert!(revokes.len() <= revoke_capacity(&sb, len));
        let block = revoke_block(&sb, self.sequence, len, &revokes);
        self.put(&block)
    }

    /// Closes the transaction.
    pub fn commit(&mut self) -> u32 {
        let summed = self.sb.checksum_version() == 1;
        self.commit_with(summed.then_some(self.crc))
    }

    /// Closes the transaction with this v1 sum.
    pub fn commit_with(&mut self, sum_v1: Option<u32>) -> u32 {
        let (sb, len) = (self.sb, self.place.size.len());
        let sum = sum_v1.unwrap_or_default();
        let time = Timestamp {
            sec: self.time,
            nsec: 1,
        };
        let mut block = commit_block(&sb, self.sequence, len, time, sum);
        if sum_v1.is_none() && sb.checksum_version() == 1 {
            block[12..20].fill(0);
        }
        self.sequence = self.sequence.wrapping_add(1);
        self.time += 1;
        self.crc = !0;
        self.put(&block)
    }

    /// A whole transaction of these blocks; without any it is a commit block only.
    pub fn transaction(&mut self, blocks: &[(usize, u8)]) {
        if !blocks.is_empty() {
            self.blocks(blocks);
        }
        self.commit();
    }

    /// Flips a bit of a log block.
    pub fn damage(&self, at: u32, byte: usize) {
        self.edit(at, |block| block[byte] ^= 0x10);
    }

    pub fn edit(&self, at: u32, edit: impl FnOnce(&mut [u8])) {
        let block = self.place.block(at);
        let mut bytes = self.place.read(&*self.place.device, block);
        edit(&mut bytes);
        self.place.write(block, &bytes);
    }

    /// After recovery these homes are filled so.
    pub fn expect(&mut self, blocks: &[(usize, u8)]) {
        for &(home, fill) in blocks {
            let content = content(self.place.size, fill);
            self.expected.insert(self.home(home), content);
        }
    }

    /// Writes the superblock.
    pub fn finish(&mut self) {
        self.sb.update_checksum();
        let sb = self.sb;
        self.edit(0, |block| {
            block.fill(0);
            block[..1024].copy_from_slice(sb.as_bytes());
        });
    }

    pub fn recover(&self) -> Result<Recovery, Error> {
        let place = &self.place;
        recover(&*place.device, place.size, place.blocks_count, &place.runs)
    }

    pub fn recover_what_holds(&self) -> Result<Recovery, Error> {
        let place = &self.place;
        recover_what_holds(&*place.device, place.size, place.blocks_count, &place.runs)
    }

    pub fn replayed(&self, recovery: &Recovery) -> ReplayedDevice {
        let base = Arc::clone(&self.place.device);
        ReplayedDevice::new(base, self.place.size, recovery.replay.clone())
    }

    /// That all homes on a device are as expected.
    pub fn assert_homes(&self, device: &dyn BlockDevice, who: &str) {
        for (index, &home) in self.place.homes.iter().enumerate() {
            let before = || self.place.read(&*self.place.device, home);
            let expected = self.expected.get(&home).cloned().unwrap_or_else(before);
            let found = self.place.read(device, home);
            let (head, want) = (&found[..8], &expected[..8]);
            assert!(
                found == expected,
                "{who}: home {index} is {head:?}…, not {want:?}…"
            );
        }
    }
}

/// Puts the journal's UUID behind each of a descriptor's tags, not only the first.
fn give_uuids(descriptor: &mut [u8], sb: &JournalSuperblock, tags: usize) {
    const UUID: usize = 16;
    let (head, len) = (12, sb.tag_len());
    let old = descriptor.to_vec();
    for index in 0..tags {
        let from = head + index * len + if index > 0 { UUID } else { 0 };
        let to = head + index * (len + UUID);
        descriptor[to..to + len].copy_from_slice(&old[from..from + len]);
        descriptor[to + 7] &= !2;
        descriptor[to + len..to + len + UUID].copy_from_slice(&sb.s_uuid);
    }
    update_tail(descriptor, sb);
}

/// Sums a descriptor or revoke block again.
pub fn update_tail(block: &mut [u8], sb: &JournalSuperblock) {
    let at = block.len() - sb.tail_len();
    let tail = &mut block[at..];
    tail.fill(0);
    let sum = U32::new(crc32c(sb.csum_seed(), block)).to_bytes();
    let tail = &mut block[at..];
    tail.copy_from_slice(&sum[..tail.len()]);
}

/// A block filled with this; fills from 0xE0 begin with the journal's magic.
pub fn content(size: BlockSize, fill: u8) -> Vec<u8> {
    let mut block = vec![fill; size.len()];
    if fill >= 0xE0 {
        block[..4].copy_from_slice(&U32::new(JBD2_MAGIC).to_bytes());
    }
    block
}
