//! The pass over link counts: files without a name, and counts that are not the number of names.
//!
//! Directories were connected before, so what has no name here is a file. One without contents is
//! cleared; all others go to `lost+found` at once, with the directories that go there. Only then
//! the counts are compared: what was connected has a link more.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use uext4_ondisk::features::RoCompat;
use uext4_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, InodeFlags, RawInode};
use uext4_ondisk::xattr::EXT4_XATTR_MAGIC;
use uext4_ondisk::{GroupNr, Ino};

use crate::error::{Error, Result};
use crate::finding::{Finding, Place};
use crate::inode_map::{Kind, Known};
use crate::lost_found;
use crate::problem::{InodeProblem, LinksProblem};
use crate::report::{Cause, Pass, Progress};
use crate::state::State;
use crate::threads;

/// Most links of a directory; with more subdirectories it is said to have one.
const DIRECTORY_LINKS_MAX: u16 = 65_000;

/// Compares the links stored with the names counted; files without a name go to `lost+found`.
///
/// # Errors
/// Of the device and of the overlay; [`Error::NoSpace`].
pub fn run(state: &State<'_>) -> Result<()> {
    state.findings.progress(Progress {
        pass: Pass::Links,
        done: 0,
        total: 1,
    })?;
    let mut lost = unattached(state)?;
    lost.append(&mut state.tree.take_lost());
    connect(state, lost)?;
    let has_many = AtomicBool::new(false);
    for_each_file(state, |ino, known| count(state, ino, known, &has_many))?;
    match has_many.into_inner() {
        true => dir_nlink(state),
        false => Ok(()),
    }
}

/// Calls `work` for each inode in use that has names or should have some; groups in parallel.
fn for_each_file(state: &State<'_>, work: impl Fn(Ino, Known) -> Result<()> + Sync) -> Result<()> {
    let groups = u64::from(state.geometry().groups_count.get());
    let first = state.geometry().first_ino;
    threads::for_each(
        state.options.threads,
        groups,
        8,
        || (),
        |(), group| {
            let group = GroupNr(u32::try_from(group).unwrap_or(u32::MAX));
            for (ino, known) in state.inodes.in_group(group) {
                let is_named = ino == Ino::ROOT || ino.0 >= first;
                if is_named && matches!(known.kind, Kind::File(_)) && !known.is_ea_inode {
                    work(ino, known)?;
                }
            }
            Ok(())
        },
    )?;
    Ok(())
}

/// The files without a name, but for those without contents, which are cleared.
fn unattached(state: &State<'_>) -> Result<BTreeMap<Ino, Cause>> {
    let lost = Mutex::new(BTreeMap::new());
    for_each_file(state, |ino, known| {
        // Without links it waits to be deleted.
        if known.counted != 0 || known.stored == 0 {
            return Ok(());
        }
        if is_empty(state, ino)? {
            let finding = Finding::new(LinksProblem::UnattachedEmpty, Place::inode(ino));
            let cause = state.report(finding);
            clear(state, ino, cause)?;
        } else {
            let finding = Finding::new(LinksProblem::Unattached, Place::inode(ino));
            let cause = state.report(finding);
            lost.lock().insert(ino, cause);
        }
        Ok(())
    })?;
    Ok(lost.into_inner())
}

/// Whether a regular file has neither contents nor attributes. Devices, pipes and sockets never
/// have contents: what they are is in the inode.
fn is_empty(state: &State<'_>, ino: Ino) -> Result<bool> {
    let Some(bytes) = state.volume.read_inode(ino)? else {
        return Ok(false);
    };
    let Ok(raw) = RawInode::parse(&bytes, ino) else {
        return Ok(false);
    };
    let is_regular = FileType::from_mode(raw.i_mode.get()) == Some(FileType::Regular);
    let attributes = GOOD_OLD_INODE_SIZE.saturating_add(raw.i_extra_isize.get().into());
    let magic = bytes.get(attributes..).and_then(<[u8]>::first_chunk::<4>);
    let has_attributes = raw.i_extra_isize.get() != 0
        && magic.is_some_and(|magic| *magic == EXT4_XATTR_MAGIC.to_le_bytes());
    if !is_regular || has_attributes {
        return Ok(false);
    }
    let size = raw.i_size_lo.get() | raw.i_size_high.get();
    let blocks = raw.i_blocks_lo.get() | u32::from(raw.i_blocks_high.get());
    Ok(size == 0 && blocks == 0)
}

/// Makes an inode unused.
fn clear(state: &State<'_>, ino: Ino, cause: Cause) -> Result<()> {
    let now = state.options.now.max(1);
    state.volume.update_raw_inode(ino, cause, |raw| {
        raw.i_links_count = 0.into();
        raw.i_dtime = now.into();
    })?;
    state.inodes.set(ino, Kind::Unused, false, 0);
    Ok(())
}

/// Gives lost files and directories names in `lost+found`.
fn connect(state: &State<'_>, mut lost: BTreeMap<Ino, Cause>) -> Result<()> {
    let Some((_, &cause)) = lost.first_key_value() else {
        return Ok(());
    };
    let into = match state.tree.lost_found() {
        Some(ino) => Ok(ino),
        None => lost_found::get(state, cause),
    };
    let result = into.and_then(|into| {
        lost.append(&mut state.tree.take_lost());
        lost_found::attach(state, into, &lost)
    });
    match result {
        // They stay without a name: the findings say so.
        Err(Error::NoSpace { .. }) => Ok(()),
        result => result,
    }
}

/// Compares the count of an inode. Notes in `has_many` if it is that of a directory with more links
/// than a count holds.
fn count(state: &State<'_>, ino: Ino, known: Known, has_many: &AtomicBool) -> Result<()> {
    if known.counted == 0 {
        return Ok(());
    }
    let is_directory = known.kind == Kind::File(FileType::Directory);
    let right = match is_directory && known.counted > DIRECTORY_LINKS_MAX {
        true => 1,
        false => known.counted,
    };
    if is_directory && right == 1 && known.counted > 1 {
        has_many.store(true, Ordering::Relaxed);
    }
    if known.stored == right {
        return Ok(());
    }
    let problem = match is_directory && known.stored == 1 && is_indexed(state, ino)? {
        true => InodeProblem::LinksUncounted,
        false => InodeProblem::Links,
    };
    let finding = Finding::new(problem, Place::inode(ino));
    let cause = state.report(finding.found(known.stored).right(right));
    state.volume.update_raw_inode(ino, cause, |raw| {
        raw.i_links_count = right.into();
    })
}

/// Whether a directory has an index: the kernel stores one link of such a one when it has had too
/// many, and for ever after.
#[cold]
fn is_indexed(state: &State<'_>, ino: Ino) -> Result<bool> {
    let features = state.geometry().features.ro_compat;
    let bytes = state.volume.read_inode(ino)?;
    let raw = bytes.and_then(|bytes| RawInode::parse(&bytes, ino).ok());
    let has_index = |raw: RawInode| raw.i_flags.get() & InodeFlags::INDEX.bits() != 0;
    Ok(features.contains(RoCompat::DIR_NLINK) && raw.is_some_and(has_index))
}

/// A directory has more subdirectories than a link count holds: the feature says so.
fn dir_nlink(state: &State<'_>) -> Result<()> {
    let bits = RoCompat::DIR_NLINK.bits();
    if state.volume.superblock().s_feature_ro_compat.get() & bits != 0 {
        return Ok(());
    }
    let finding = Finding::new(LinksProblem::DirNlinkFeature, Place::whole());
    let cause = state.report(finding);
    state.volume.update_superblock(cause, |superblock| {
        let features = superblock.s_feature_ro_compat.get();
        superblock.s_feature_ro_compat = (features | bits).into();
    })
}

#[cfg(test)]
mod tests {
    use uext4_testkit::e2fsprogs::e2fsck;
    use uext4_testkit::{Mount, can_mount, run};

    use crate::tests::TestImage;

    #[test]
    fn only_an_empty_file_is_cleared_when_it_has_lost_its_name() {
        let image = TestImage::new("-t ext4 -b 1024 -I 256", "4M");
        image.debugfs(&["mknod p p", "unlink p", "mknod c c 1 3", "unlink c"]);
        image.file("a", b"");
        image.debugfs(&["ea_set a user.name value", "unlink a"]);
        image.file("e", b"");
        image.debugfs(&["unlink e"]);
        let found = image.repair();
        let count = |name: &str| found.iter().filter(|&&found| found == name).count();
        let counts = (count("unattached"), count("unattached-empty"));
        assert_eq!(counts, (3, 1), "{found:?}");
    }

    #[test]
    fn one_link_of_a_directory_with_an_index_is_a_note() {
        let image = TestImage::new("-t ext4 -b 1024", "16M");
        image.debugfs(&["mkdir d"]);
        let names = (0..200).map(|nr| format!("mkdir d/a_name_that_is_long_{nr}"));
        let names: Vec<_> = names.collect();
        image.debugfs(&names.iter().map(String::as_str).collect::<Vec<_>>());
        e2fsck(image.path(), "-fyD");
        image.debugfs(&["sif d links_count 1"]);
        assert_eq!(image.repair(), ["inode-links-uncounted"]);
    }

    #[test]
    fn the_journal_of_a_mounted_file_system_keeps_its_name() {
        if !can_mount() {
            return;
        }
        let image = TestImage::new("-t ext2 -b 1024", "16M");
        let mount = Mount::new(image.path(), "defaults");
        run("tune2fs", ["-j".as_ref(), mount.device().as_os_str()]);
        drop(mount);
        let found = image.found();
        assert!(
            found.iter().all(|name| *name == "journal-not-backed-up"),
            "{found:?}"
        );
    }

    #[test]
    fn names_behind_a_dot_that_is_too_long_stay() {
        let image = TestImage::new("-t ext2 -b 1024", "4M");
        image.debugfs(&["mkdir d", "mkdir d/kept"]);
        image.change(|bytes| {
            let is_dir = |block: &&mut [u8]| block[8] == b'.' && block[32..36] == *b"kept";
            let block = bytes.chunks_mut(1024).find(is_dir).unwrap();
            block[4..6].copy_from_slice(&1012_u16.to_le_bytes());
        });
        assert_eq!(image.repair(), ["directory-dot-too-big"]);
    }
}
