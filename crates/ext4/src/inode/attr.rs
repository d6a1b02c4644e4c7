//! Flags as chattr sets them, and projects: what users may change, and what new inodes inherit.
//!
//! Tables and rules only; storing the flags is the caller's business, and so is whether the user is
//! privileged or owns the inode.

use uext4_ondisk::Geometry;
use uext4_ondisk::features::{Features, RoCompat};
use uext4_ondisk::inode::{FileType, GOOD_OLD_INODE_SIZE, InodeFlags};

use crate::base::error::{Error, Result};
use crate::inode::Inode;

/// Blocks past the end: of no use any more, but still settable.
const EOFBLOCKS: InodeFlags = InodeFlags::from_bits_retain(0x40_0000);

/// What chattr may change. [`InodeFlags::EXTENTS`] is among them in name only: see [`change`].
pub(crate) const MODIFIABLE: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::EXTENTS)
    .union(EOFBLOCKS)
    .union(InodeFlags::DAX)
    .union(InodeFlags::PROJINHERIT);

/// What lsattr shows, and chattr may hand back as it was.
pub const VISIBLE: InodeFlags = MODIFIABLE
    .union(InodeFlags::DIRTY)
    .union(InodeFlags::COMPRBLK)
    .union(InodeFlags::NOCOMPR)
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::INDEX)
    .union(InodeFlags::VERITY)
    .union(InodeFlags::INLINE_DATA);

/// What only the privileged may set or clear (CAP_LINUX_IMMUTABLE).
pub(crate) const IMMUTABILITY: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// What new inodes have from their directory, as far as their type has it.
const INHERITED: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::NOCOMPR)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::DAX)
    .union(InodeFlags::PROJINHERIT);

/// What only directories have.
const OF_DIRECTORIES: InodeFlags = InodeFlags::DIRSYNC
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::PROJINHERIT);

/// What goes not together with direct access.
const NOT_DAX: InodeFlags = InodeFlags::VERITY
    .union(InodeFlags::ENCRYPT)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::INLINE_DATA);

/// Those of `flags` that inodes of this type have.
pub(crate) fn of_type(file_type: FileType, flags: InodeFlags) -> InodeFlags {
    match file_type {
        FileType::Directory => flags,
        FileType::Regular => flags.difference(OF_DIRECTORIES),
        _ => flags.intersection(InodeFlags::NODUMP.union(InodeFlags::NOATIME)),
    }
}

/// The flags of an inode after chattr has asked for `asked`. Compare them with those before to see
/// whether [`IMMUTABILITY`] is concerned.
///
/// Fails with [`Error::Unsupported`] for flags that cannot be set, or not on such an inode, and for
/// converting between extents and block numbers; [`Error::NotPermitted`] if the inode is immutable
/// and stays so.
pub(crate) fn change(inode: &Inode, asked: InodeFlags) -> Result<InodeFlags> {
    let old = inode.flags;
    let unsupported = |what: String| Err(Error::Unsupported { what });
    let wrong = asked.difference(of_type(inode.file_type, VISIBLE));
    if !wrong.is_empty() {
        return unsupported(format!("setting inode flags {:#x}", wrong.bits()));
    }
    let new = asked.intersection(MODIFIABLE) | old.difference(MODIFIABLE);
    let changed = new.symmetric_difference(old);
    if !changed.is_empty() && old.intersection(new).contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted {
            what: "changing flags of an immutable inode",
        });
    }
    if changed.contains(InodeFlags::EXTENTS) {
        return unsupported("converting between extents and block numbers".to_owned());
    }
    let ignored = match inode.file_type {
        FileType::Directory => InodeFlags::INLINE_DATA,
        _ => InodeFlags::default(),
    };
    let exclusive = NOT_DAX.difference(ignored);
    if new.contains(InodeFlags::DAX) && new.union(old).intersects(exclusive)
        || old.contains(InodeFlags::DAX) && new.intersects(exclusive)
    {
        return unsupported("direct access to such data".to_owned());
    }
    Ok(new)
}

/// The flags that an inode of this type has from the directory it is made in.
pub(crate) fn inherited(parent: InodeFlags, file_type: FileType) -> InodeFlags {
    of_type(file_type, parent.intersection(INHERITED))
}

/// The project of an inode made in a directory.
pub(crate) fn inherited_project(features: Features, parent: &Inode) -> u32 {
    let has_projects = features.ro_compat.contains(RoCompat::PROJECT);
    match has_projects && parent.has(InodeFlags::PROJINHERIT) {
        true => parent.projid,
        false => 0,
    }
}

/// Whether a directory takes an inode in, by link or rename: one that hands on its project takes
/// only what belongs to it (otherwise EXDEV).
pub(crate) fn takes_in(directory: &Inode, inode: &Inode) -> bool {
    !directory.has(InodeFlags::PROJINHERIT) || directory.projid == inode.projid
}

/// Whether an inode may be given a project.
pub(crate) fn check_project(geometry: &Geometry, project: u32) -> Result<()> {
    let has_projects = geometry.features.ro_compat.contains(RoCompat::PROJECT)
        && usize::from(geometry.inode_size) > GOOD_OLD_INODE_SIZE;
    if project == 0 || has_projects {
        return Ok(());
    }
    Err(Error::Unsupported {
        what: "projects".to_owned(),
    })
}

/// Whether an inode may be given another generation, as the kernel allows it: not if the checksums
/// of its blocks begin with it, nor if it waits for its deletion, where it is found by it.
pub(crate) fn check_generation(features: Features, inode: &Inode) -> Result<()> {
    if inode.links == 0 {
        return Err(Error::NotFound);
    }
    match features.ro_compat.contains(RoCompat::METADATA_CSUM) {
        true => Err(Error::Unsupported {
            what: "changing a generation that checksums contain (metadata_csum)".to_owned(),
        }),
        false => Ok(()),
    }
}

/// What flags forbid.
pub(crate) fn fixed() -> Error {
    Error::NotPermitted {
        what: "the inode or its directory is immutable or append-only",
    }
}

/// What becomes of set-user-id and set-group-id when the contents of a file change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SetId {
    /// They stay, as after the writes of a caller that has `CAP_FSETID`.
    Keep,
    /// Set-user-id goes, and set-group-id of what the group may execute.
    #[default]
    Drop,
    /// Both go, as after the writes of a caller that is not in the group.
    DropAll,
}

/// Drops set-id bits.
pub(crate) fn drop_set_id(inode: &mut Inode, how: SetId) {
    inode.mode &= match how {
        SetId::Keep => !0,
        SetId::Drop if inode.mode & 0o2010 == 0o2000 => !0o4000,
        SetId::Drop | SetId::DropAll => !0o6000,
    };
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::Arc;

    use uext4_blockdev::MemoryDevice;
    use uext4_ondisk::Ino;

    use super::*;
    use crate::dir::namei;
    use crate::inode::iget;
    use crate::journal::sbi::Sbi;
    use crate::testing::{kernel_mount, mke2fs, mount};

    /// chattr's letters.
    const LETTERS: [(char, InodeFlags); 14] = [
        ('a', InodeFlags::APPEND),
        ('A', InodeFlags::NOATIME),
        ('c', InodeFlags::COMPR),
        ('d', InodeFlags::NODUMP),
        ('D', InodeFlags::DIRSYNC),
        ('i', InodeFlags::IMMUTABLE),
        ('m', InodeFlags::NOCOMPR),
        ('P', InodeFlags::PROJINHERIT),
        ('s', InodeFlags::SECRM),
        ('S', InodeFlags::SYNC),
        ('t', InodeFlags::NOTAIL),
        ('T', InodeFlags::TOPDIR),
        ('u', InodeFlags::UNRM),
        ('x', InodeFlags::DAX),
    ];

    fn find(sbi: &Sbi, names: &[&str]) -> Inode {
        let step = |dir: Inode, name: &&str| {
            let ino = namei::lookup(sbi, &dir, name.as_bytes()).unwrap();
            iget(sbi, ino).unwrap()
        };
        names.iter().fold(iget(sbi, Ino::ROOT).unwrap(), step)
    }

    fn chattr(flag: char, path: &std::path::Path) -> bool {
        let flag = format!("+{flag}");
        let output = Command::new("chattr").arg(flag).arg(path).output();
        output.unwrap().status.success()
    }

    #[test]
    fn flags_are_settable_where_chattr_sets_them() {
        let device = mke2fs("-t ext4", 16_384);
        let mut done = Vec::new();
        let after = kernel_mount(&device, |place| {
            for (letter, flag) in LETTERS {
                let (file, dir) = (format!("f{}", flag.bits()), format!("d{}", flag.bits()));
                std::fs::write(place.join(&file), "").unwrap();
                std::fs::create_dir(place.join(&dir)).unwrap();
                for name in [file, dir] {
                    done.push((flag, chattr(letter, &place.join(&name)), name));
                }
            }
        });
        let Some(after) = after else {
            return;
        };
        let sbi = mount(&after);
        for (flag, could, name) in done {
            let inode = find(&sbi, &[&name]);
            let before = Inode {
                flags: InodeFlags::EXTENTS,
                ..inode.clone()
            };
            let asked = before.flags | flag;
            // chattr does not even ask for this one.
            let asks = flag != InodeFlags::DIRSYNC || inode.file_type == FileType::Directory;
            let result = change(&before, if asks { asked } else { before.flags });
            assert_eq!(result.is_ok(), could, "{flag:?} {name}: {result:?}");
            let expected = result.unwrap_or(before.flags);
            assert_eq!(inode.flags, expected, "{flag:?} {name}");
        }
    }

    #[test]
    fn new_inodes_inherit_as_in_the_kernel() {
        let device: Arc<MemoryDevice> = mke2fs("-t ext4", 16_384);
        let after = kernel_mount(&device, |place| {
            let dir = place.join("parent");
            std::fs::create_dir(&dir).unwrap();
            for (letter, flag) in LETTERS {
                if !IMMUTABILITY.contains(flag) {
                    chattr(letter, &dir);
                }
            }
            std::fs::write(dir.join("file"), "").unwrap();
            std::fs::create_dir(dir.join("dir")).unwrap();
            std::os::unix::fs::symlink("x", dir.join("link")).unwrap();
            let fifo = Command::new("mkfifo").arg(dir.join("fifo")).status();
            assert!(fifo.unwrap().success());
        });
        let Some(after) = after else {
            return;
        };
        let sbi = mount(&after);
        let parent = find(&sbi, &["parent"]);
        for name in ["file", "dir", "link", "fifo"] {
            let child = find(&sbi, &["parent", name]);
            let found = child.flags.difference(InodeFlags::EXTENTS);
            assert_eq!(found, inherited(parent.flags, child.file_type), "{name}");
        }
    }

    #[test]
    fn rules_that_need_no_kernel() {
        let device = mke2fs("-t ext4", 16_384);
        let sbi = mount(&device);
        let mut inode = find(&sbi, &["lost+found"]);
        let base = inode.flags;
        assert_eq!(change(&inode, base).unwrap(), base);
        assert!(change(&inode, base.difference(InodeFlags::EXTENTS)).is_err());
        assert!(change(&inode, base | InodeFlags::CASEFOLD).is_err());
        assert!(change(&inode, base | InodeFlags::HUGE_FILE).is_err());
        // Handed back as it was shown.
        assert_eq!(change(&inode, base | InodeFlags::INDEX).unwrap(), base);
        inode.flags |= InodeFlags::IMMUTABLE;
        let immutable = inode.flags;
        assert!(matches!(
            change(&inode, immutable | InodeFlags::NODUMP),
            Err(Error::NotPermitted { .. })
        ));
        let freed = base | InodeFlags::NODUMP;
        assert_eq!(change(&inode, freed).unwrap(), freed);
        let mut other = inode.clone();
        (inode.projid, other.projid) = (7, 8);
        assert!(takes_in(&inode, &other));
        inode.flags |= InodeFlags::PROJINHERIT;
        assert!(!takes_in(&inode, &other));
        let mut features = sbi.geometry().features;
        assert_eq!(inherited_project(features, &inode), 0);
        features.ro_compat |= RoCompat::PROJECT;
        assert_eq!(inherited_project(features, &inode), 7);
        assert!(check_project(sbi.geometry(), 0).is_ok());
        assert!(check_project(sbi.geometry(), 7).is_err());
    }
}
