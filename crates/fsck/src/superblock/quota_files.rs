//! The numbers of the quota files.
//!
//! They are hidden files. The kernel would take any other file, and write over what it holds, as
//! the pass over quotas would; so a number is right that is reserved, or whose file begins as a
//! quota file does, as it was when quota files had names. That of projects is never reserved:
//! where its inode is in use, and holds something else, there is none.

use uext4_ondisk::Ino;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::RawInode;
use uext4_ondisk::quota::QuotaKind;
use uext4_ondisk::superblock::SuperBlock;
use zerocopy::little_endian::U32;

use crate::error::Result;
use crate::finding::{Finding, Place};
use crate::problem::SuperblockProblem;
use crate::report::Findings;
use crate::strict_map::Map;
use crate::volume::Volume;

/// One of the numbers.
struct Number {
    name: &'static str,
    kind: QuotaKind,
    /// `None` for that of projects, which is that of any inode.
    reserved: Option<Ino>,
    field: fn(&mut SuperBlock) -> &mut U32,
}

const NUMBERS: [Number; 3] = [
    Number {
        name: "s_usr_quota_inum",
        kind: QuotaKind::User,
        reserved: Some(Ino::USER_QUOTA),
        field: |superblock| &mut superblock.s_usr_quota_inum,
    },
    Number {
        name: "s_grp_quota_inum",
        kind: QuotaKind::Group,
        reserved: Some(Ino::GROUP_QUOTA),
        field: |superblock| &mut superblock.s_grp_quota_inum,
    },
    Number {
        name: "s_prj_quota_inum",
        kind: QuotaKind::Project,
        reserved: None,
        field: |superblock| &mut superblock.s_prj_quota_inum,
    },
];

/// Stores the reserved number, or none, where another one leads to a file that is none for quotas.
/// The file with the reserved number is written anew later, if there is none.
///
/// # Errors
/// Of the device and of the overlay.
pub fn run(volume: &Volume, findings: &Findings<'_>) -> Result<()> {
    for number in NUMBERS {
        let ino = (number.field)(&mut volume.superblock()).get();
        let right = number.reserved.map_or(0, |reserved| reserved.0);
        let is_hidden = ino == 0 || ino == right;
        if is_hidden || begins_with_magic(volume, Ino(ino), number.kind)? {
            continue;
        }
        // Its own file was lost, and is made anew: nothing else is written over.
        let features = volume.superblock().features().ro_compat;
        let is_made = features.contains(RoCompat::QUOTA.union(RoCompat::PROJECT));
        if number.reserved.is_none() && is_made && is_unused(volume, Ino(ino))? {
            continue;
        }
        let place = Place::whole().name(number.name.as_bytes());
        let finding = Finding::new(SuperblockProblem::QuotaNumber, place);
        let cause = findings.report(finding.found(ino).right(right));
        volume.update_superblock(cause, |superblock| {
            *(number.field)(superblock) = right.into();
        })?;
    }
    Ok(())
}

/// Whether an inode that is not reserved holds nothing.
fn is_unused(volume: &Volume, ino: Ino) -> Result<bool> {
    let bytes = volume.read_inode(ino)?;
    let raw = bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok());
    let is_free = |raw: RawInode| raw.i_mode.get() == 0 && raw.i_links_count.get() == 0;
    Ok(ino.0 >= volume.geometry().first_ino && raw.is_some_and(is_free))
}

/// Whether an inode holds a quota file of a kind, by its first bytes.
pub fn begins_with_magic(volume: &Volume, ino: Ino, kind: QuotaKind) -> Result<bool> {
    let bytes = volume.read_inode(ino)?;
    let raw = bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok());
    let map = match raw {
        Some(raw) => Map::of(volume, &raw)?,
        None => None,
    };
    let Some(first) = map.and_then(|map| map.blocks().next()) else {
        return Ok(false);
    };
    let mut magic = [0; 4];
    let offset = first.0 << volume.geometry().block_size.log2();
    volume.overlay().read_at(offset, &mut magic)?;
    Ok(u32::from_le_bytes(magic) == kind.magic())
}
