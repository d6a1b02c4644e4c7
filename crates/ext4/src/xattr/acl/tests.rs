//! Inheritance and chmod against the kernel.

use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use rustix::fs::{XattrFlags, lsetxattr};
use uext4_ondisk::Ino;

use super::*;
use crate::dir::namei;
use crate::inode::iget;
use crate::inode::store::store;
use crate::testing::{kernel_mount, mke2fs, mount, unmount_and_check};
use crate::xattr::SetMode;
use crate::xattr::change::{chmod as change_mode, credits_set, set, store_inherited};

fn acl(entries: &[(AclTag, u16)]) -> Acl {
    let entry = |&(tag, perm): &(AclTag, u16)| AclEntry { tag, perm };
    Acl {
        entries: entries.iter().map(entry).collect(),
    }
}

/// One with a mask, one without, one that takes everything away.
fn samples() -> [Acl; 4] {
    let (owner, group, other) = (AclTag::UserObj, AclTag::GroupObj, AclTag::Other);
    [
        acl(&[
            (owner, 7),
            (AclTag::User(1000), 6),
            (group, 5),
            (AclTag::Group(100), 7),
            (AclTag::Mask, 7),
            (other, 1),
        ]),
        acl(&[(owner, 6), (group, 7), (other, 5)]),
        acl(&[
            (owner, 0),
            (AclTag::User(1), 7),
            (group, 7),
            (AclTag::Mask, 0),
            (other, 0),
        ]),
        acl(&[(owner, 5), (group, 6), (AclTag::Mask, 3), (other, 7)]),
    ]
}

fn find(sbi: &Sbi, path: &str) -> Inode {
    let step = |dir: Inode, name: &str| {
        let ino = namei::lookup(sbi, &dir, name.as_bytes()).unwrap();
        iget(sbi, ino).unwrap()
    };
    path.split('/').fold(iget(sbi, Ino::ROOT).unwrap(), step)
}

/// How things are made by a shell, and the mode that is asked for.
const MADE: [(&str, &str, u16); 5] = [
    ("file", ": > file", 0o100_666),
    ("dir", "mkdir dir", 0o040_777),
    ("fifo", "mkfifo fifo", 0o010_666),
    ("link", "ln -s x link", 0o120_777),
    (
        "private",
        "mktemp -p . private.XXXXXX > name && mv $(cat name) private",
        0o100_600,
    ),
];

#[test]
fn new_inodes_inherit_as_in_the_kernel() {
    let device = mke2fs("-t ext4", 16_384);
    let umasks = [0o000, 0o022, 0o077];
    let made = kernel_mount(&device, |place| {
        for (i, sample) in samples().iter().map(Some).chain([None]).enumerate() {
            for umask in umasks {
                let dir = place.join(format!("{i}-{umask}"));
                std::fs::create_dir(&dir).unwrap();
                if let Some(acl) = sample {
                    let name = "system.posix_acl_default";
                    lsetxattr(&dir, name, &acl.to_wire(), XattrFlags::empty()).unwrap();
                }
                for (_, command, _) in MADE {
                    let script = format!("umask {umask:o}; {command}");
                    let mut shell = Command::new("sh");
                    let status = shell.args(["-c", &script]).current_dir(&dir).status();
                    assert!(status.unwrap().success(), "{script}");
                }
            }
        }
    });
    let Some(made) = made else {
        return;
    };
    let sbi = mount(&made);
    for i in 0..=samples().len() {
        for umask in umasks {
            let parent = find(&sbi, &format!("{i}-{umask}"));
            for (name, _, mode) in MADE {
                let child = find(&sbi, &format!("{i}-{umask}/{name}"));
                let found = Inherited {
                    mode: child.mode,
                    access: get(&sbi, &child, AclKind::Access).unwrap(),
                    default: get(&sbi, &child, AclKind::Default).unwrap(),
                };
                let expected = inherit(&sbi, &parent, mode, umask).unwrap();
                assert_eq!(expected, found, "{i} {umask:o} {name}");
            }
        }
    }
    // What is inherited is stored as it is reported.
    let mut target = find(&sbi, "4-0/dir");
    let inherited = inherit(&sbi, &find(&sbi, "0-0"), 0o040_750, 0).unwrap();
    let handle = sbi.start(credits_set(&sbi)).unwrap();
    store_inherited(&handle, &mut target, &inherited).unwrap();
    store(&handle, &sbi, &target).unwrap();
    drop(handle);
    for (kind, expected) in [
        (AclKind::Access, &inherited.access),
        (AclKind::Default, &inherited.default),
    ] {
        assert_eq!(get(&sbi, &target, kind).unwrap(), *expected);
    }
    unmount_and_check(&sbi, &made);
}

#[test]
fn chmod_and_setting_change_what_they_change_in_the_kernel() {
    let device = mke2fs("-t ext4", 16_384);
    let modes = [0o000, 0o640, 0o2755, 0o777, 0o4071];
    let name = b"system.posix_acl_access";
    let apply = |path: &std::path::Path| {
        for (i, acl) in samples().iter().enumerate() {
            for mode in modes {
                let file = path.join(format!("{i}-{mode}"));
                std::fs::write(&file, "").unwrap();
                std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
                lsetxattr(&file, &name[..], &acl.to_wire(), XattrFlags::empty()).unwrap();
                let mode = u32::from(mode);
                std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            }
        }
    };
    let Some(made) = kernel_mount(&device, apply) else {
        return;
    };
    let sbi = mount(&made);
    for (i, sample) in samples().iter().enumerate() {
        for mode in modes {
            let kernels = find(&sbi, &format!("{i}-{mode}"));
            let expected = get(&sbi, &kernels, AclKind::Access).unwrap();
            let mut ours = kernels.clone();
            let handle = sbi.start(2 * credits_set(&sbi)).unwrap();
            set(&handle, &mut ours, name, None, SetMode::Any).unwrap();
            ours.mode = 0o100_644;
            let wire = sample.to_wire();
            set(&handle, &mut ours, name, Some(&wire), SetMode::Any).unwrap();
            let acl = get(handle.sbi(), &ours, AclKind::Access).unwrap();
            change_mode(&handle, &mut ours, mode, acl).unwrap();
            store(&handle, &sbi, &ours).unwrap();
            drop(handle);
            assert_eq!(ours.mode, kernels.mode, "{i} {mode:o}");
            let found = get(&sbi, &ours, AclKind::Access).unwrap();
            assert_eq!(found, expected, "{i} {mode:o}");
        }
    }
    unmount_and_check(&sbi, &made);
}

#[test]
fn requests_are_judged_as_in_the_kernel() {
    let valid = samples()[0].to_wire();
    let judge = |kind, file_type, wire: &[u8]| from_wire(kind, file_type, wire);
    let (access, default) = (AclKind::Access, AclKind::Default);
    let regular = FileType::Regular;
    for none in [&b""[..], &[2, 0, 0, 0]] {
        assert_eq!(judge(access, regular, none).unwrap(), None);
        assert_eq!(judge(default, regular, none).unwrap(), None);
    }
    for bad in [&[2, 0][..], &valid[..valid.len() - 1], &valid[..12]] {
        let result = judge(access, regular, bad);
        assert!(matches!(result, Err(Error::Invalid { .. })), "{result:?}");
    }
    let unsupported = |result| matches!(result, Err(Error::Unsupported { .. }));
    assert!(unsupported(judge(access, regular, &[1, 0, 0, 0])));
    assert!(unsupported(judge(access, FileType::Symlink, &valid)));
    assert!(unsupported(judge(access, FileType::Symlink, b"")));
    assert!(matches!(
        judge(default, regular, &valid),
        Err(Error::AccessDenied { .. })
    ));
    assert!(
        judge(default, FileType::Directory, &valid)
            .unwrap()
            .is_some()
    );
}
