//! Quota files against what is used.
//!
//! The pass over inodes has added up what each owner uses. A quota file must say the same, and
//! holds what is known nowhere else: limits and times of grace. So a file that differs is read as
//! far as it can be, and written anew with the usage that was counted and the limits that were
//! read; the tree is packed by the same code that packs it for a new file system.
//!
//! An owner without limits who uses nothing needs no entry. The blocks of quota files count for
//! no owner, so that writing one does not change what it must say.

mod file;
mod tree;

use std::collections::BTreeMap;

use uext4_ondisk::Ino;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::{FileType, RawInode};
use uext4_ondisk::pack::quota::{QuotaGrace, pack_quota_entries};
use uext4_ondisk::quota::{QuotaKind, RawQuotaEntry};
use zerocopy::FromZeros;

use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::inode_map::Kind;
use crate::problem::QuotaProblem;
use crate::report::Cause;
use crate::state::State;
use crate::usage::Used;
use file::QuotaFile;

/// What a quota file says, as far as it can be read.
#[derive(Debug, Default)]
struct Contents {
    entries: BTreeMap<u32, RawQuotaEntry>,
    grace: QuotaGrace,
    /// The first finding about its structure.
    cause: Option<Cause>,
}

/// Compares each quota file with the usage that was counted, and writes it anew where it differs;
/// limits are kept.
///
/// # Errors
/// Of the device and of the overlay; [`crate::Error::NoSpace`].
pub fn run(state: &State<'_>) -> Result<()> {
    let features = state.geometry().features.ro_compat;
    if !features.contains(RoCompat::QUOTA) {
        return Ok(());
    }
    let superblock = state.volume.superblock();
    let project = match features.contains(RoCompat::PROJECT) {
        true => superblock.s_prj_quota_inum.get(),
        false => 0,
    };
    let files = [
        (QuotaKind::User, superblock.s_usr_quota_inum.get()),
        (QuotaKind::Group, superblock.s_grp_quota_inum.get()),
        (QuotaKind::Project, project),
    ];
    for (kind, ino) in files {
        // 0: this kind is not counted. Other numbers that cannot be are the superblock's matter.
        if ino != 0 && ino <= state.geometry().inodes_count {
            one(state, kind, Ino(ino))?;
        }
    }
    Ok(())
}

/// Examines the quota file of one kind.
fn one(state: &State<'_>, kind: QuotaKind, ino: Ino) -> Result<()> {
    let bytes = state.volume.read_inode(ino)?;
    let raw = bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok());
    let is_file = |raw: &RawInode| {
        FileType::from_mode(raw.i_mode.get()) == Some(FileType::Regular)
            && raw.i_links_count.get() != 0
    };
    let (raw, mut contents) = match raw {
        Some(raw) if is_file(&raw) => {
            let file = QuotaFile::open(state, ino, &raw)?;
            (raw, tree::read(state, kind, &file)?)
        }
        // A number of an inode that is something else cannot be mended here.
        _ if state.inodes.get(ino).kind != Kind::Unused && !is_free(raw.as_ref()) => return Ok(()),
        _ => {
            let cause = state.report(Finding::new(QuotaProblem::File, Place::inode(ino)));
            let contents = Contents {
                cause: Some(cause),
                ..Contents::default()
            };
            (file::create(state, ino, cause)?, contents)
        }
    };
    take_back(state, kind, &mut contents);
    let used = state.usage.lock().of(kind);
    let differ = settle(&mut contents.entries, &used);
    if differ > 0 {
        let finding = Finding::new(QuotaProblem::Usage, Place::inode(ino));
        let cause = state.report(finding.found(differ));
        contents.cause.get_or_insert(cause);
    }
    let Some(cause) = contents.cause else {
        return Ok(());
    };
    let entries = contents.entries.values().copied();
    let packed = pack_quota_entries(kind, contents.grace, entries).ok_or(Error::NoSpace {
        what: "a quota file",
    })?;
    file::write(state, ino, &raw, &packed, cause)
}

/// Takes back what orphans used, as the next mount does when it deletes them.
fn take_back(state: &State<'_>, kind: QuotaKind, contents: &mut Contents) {
    let held = state.held.lock();
    for used in held.used.iter().filter(|used| used.kind == kind) {
        let Some(entry) = contents.entries.get_mut(&used.owner) else {
            continue;
        };
        let bytes = entry.dqb_curspace.get().saturating_sub(used.bytes);
        let inodes = entry.dqb_curinodes.get().saturating_sub(used.inodes);
        entry.dqb_curspace = bytes.into();
        entry.dqb_curinodes = inodes.into();
        contents.cause = contents.cause.or(held.cause);
    }
}

/// Whether an inode holds nothing.
fn is_free(raw: Option<&RawInode>) -> bool {
    raw.is_some_and(|raw| raw.i_mode.get() == 0 || raw.i_links_count.get() == 0)
}

/// Makes the entries say what is used. Returns how many said something else.
fn settle(entries: &mut BTreeMap<u32, RawQuotaEntry>, used: &[(u32, Used)]) -> u64 {
    let mut differ = 0;
    let mut next = used.iter().copied().peekable();
    let mut missing = Vec::new();
    let mut set = |entry: &mut RawQuotaEntry, right: Used| {
        let found = Used {
            bytes: entry.dqb_curspace.get(),
            inodes: entry.dqb_curinodes.get(),
        };
        if found != right {
            differ += 1;
            entry.dqb_curspace = right.bytes.into();
            entry.dqb_curinodes = right.inodes.into();
        }
    };
    for (&id, entry) in entries.iter_mut() {
        while let Some(new) = next.next_if(|&(owner, _)| owner < id) {
            missing.push(new);
        }
        let right = next.next_if(|&(owner, _)| owner == id);
        set(entry, right.map_or_else(Used::default, |(_, right)| right));
    }
    missing.extend(next);
    for (id, right) in missing {
        let mut entry = RawQuotaEntry::new_zeroed();
        entry.dqb_id = id.into();
        set(&mut entry, right);
        entries.insert(id, entry);
    }
    entries.retain(|_, entry| is_needed(entry));
    differ
}

/// Whether an owner uses something or has limits.
fn is_needed(entry: &RawQuotaEntry) -> bool {
    [
        entry.dqb_curspace,
        entry.dqb_curinodes,
        entry.dqb_bhardlimit,
        entry.dqb_bsoftlimit,
        entry.dqb_ihardlimit,
        entry.dqb_isoftlimit,
    ]
    .iter()
    .any(|number| number.get() != 0)
}

#[cfg(test)]
mod tests {
    use uext4_testkit::e2fsprogs::debugfs;

    use super::*;
    use crate::tests::TestImage;

    #[test]
    fn usage_that_was_not_counted_is_written() {
        // debugfs does not count what it writes.
        let kinds = ["quota", "quota,project", "quota,bigalloc", "quota,ea_inode"];
        for kind in kinds {
            let image = TestImage::new(&format!("-t ext4 -O {kind}"), "16M");
            assert_eq!(image.found(), [""; 0], "{kind}");
            image.file("f", &[7; 100_000]);
            image.debugfs(&["sif f uid 70000", "sif f gid 5"]);
            let found = image.repair();
            assert!(found.contains(&"quota-usage"), "{kind}: {found:?}");
        }
    }

    #[test]
    fn a_quota_file_without_contents_is_written_anew() {
        let image = TestImage::new("-t ext4 -O quota", "16M");
        image.change(|bytes| {
            let magic = QuotaKind::User.magic().to_le_bytes();
            let at = bytes.windows(4).position(|w| w == magic).unwrap();
            bytes[at..at + 4096].fill(0);
        });
        let found = image.repair();
        assert!(found.contains(&"quota-header"), "{found:?}");
    }

    #[test]
    fn limits_stay_where_the_tree_lost_the_branch_to_them() {
        let image = TestImage::new("-t ext4 -O quota", "16M");
        image.file("f", &[7; 100_000]);
        image.debugfs(&["sif f uid 70000"]);
        image.repair();
        let blocks = debugfs(image.path(), "blocks <3>");
        let blocks: Vec<usize> = blocks
            .split_whitespace()
            .map(|block| block.parse().unwrap())
            .collect();
        let limit = 0x00C0_FFEE_u64.to_le_bytes();
        image.change(|bytes| {
            let (mut block, mut slot) = (1, 0);
            for byte in 70_000_u32.to_le_bytes().into_iter().rev() {
                slot = blocks[block] * 1024 + usize::from(byte) * 4;
                block = usize::from(bytes[slot]);
            }
            bytes[slot..][..4].fill(0);
            let leaf = blocks[block] * 1024;
            let id = 70_000_u32.to_le_bytes();
            let at = leaf + bytes[leaf..].windows(4).position(|w| w == id).unwrap();
            // `dqb_bhardlimit`.
            bytes[at + 32..][..8].copy_from_slice(&limit);
        });
        assert_eq!(image.repair(), ["quota-entry-stray"]);
        image.change(|bytes| assert!(bytes.windows(8).any(|w| w == limit)));
    }

    fn entry(id: u32, bytes: u64, limit: u64) -> (u32, RawQuotaEntry) {
        let mut entry = RawQuotaEntry::new_zeroed();
        entry.dqb_id = id.into();
        entry.dqb_curspace = bytes.into();
        entry.dqb_bhardlimit = limit.into();
        (id, entry)
    }

    fn used(bytes: u64) -> Used {
        Used { bytes, inodes: 0 }
    }

    #[test]
    fn usage_is_counted_and_limits_are_kept() {
        let mut entries = BTreeMap::from([
            entry(0, 10, 0),
            entry(5, 10, 7),
            entry(6, 10, 0),
            entry(9, 0, 1),
        ]);
        let right = [(0, used(10)), (4, used(1)), (7, used(2)), (9, used(0))];
        // Owners 4, 5, 6 and 7 differ.
        assert_eq!(settle(&mut entries, &right), 4);
        let found: Vec<_> = entries
            .iter()
            .map(|(&id, e)| (id, e.dqb_curspace.get(), e.dqb_bhardlimit.get()))
            .collect();
        let expected = [(0, 10, 0), (4, 1, 0), (5, 0, 7), (7, 2, 0), (9, 0, 1)];
        assert_eq!(found, expected);
        assert_eq!(settle(&mut entries, &right), 0);
    }
}
