//! Quotas: what is counted is what e2fsck counts, whatever was done, and limits refuse what exceeds
//! them.

mod counted;
mod damaged;
mod limited;

use std::collections::BTreeMap;
use std::sync::Arc;

use uext4::quota::QuotaKind;
use uext4::{Creation, Volume};
use uext4_blockdev::MemoryDevice;
use uext4_testkit::{complaints, debugfs, e2fsck, run, said};

/// All kinds, by the names debugfs has for them.
const KINDS: [(QuotaKind, &str); 3] = [
    (QuotaKind::User, "user"),
    (QuotaKind::Group, "group"),
    (QuotaKind::Project, "project"),
];

fn creation(uid: u32, gid: u32) -> Creation {
    Creation {
        mode: 0o755,
        umask: 0,
        uid,
        gid,
    }
}

/// What debugfs finds in a quota file: bytes and inodes by id, those without any left out.
fn listed(image: &std::path::Path, kind: &str) -> BTreeMap<u32, (u64, u64)> {
    let text = debugfs(image, &format!("list_quota {kind}"));
    let rows = text.lines().skip(1).map(|line| {
        let words: Vec<u64> = line
            .split_whitespace()
            .map(|word| word.parse().unwrap())
            .collect();
        (words[0] as u32, (words[1], words[4]))
    });
    rows.filter(|(_, used)| *used != (0, 0)).collect()
}

/// What we say of the same.
fn reported(fs: &Volume, kind: QuotaKind) -> BTreeMap<u32, (u64, u64)> {
    let all = fs.quotas(kind).unwrap().into_iter();
    let used = all.map(|quota| (quota.id, (quota.space, quota.inodes)));
    used.filter(|(_, used)| *used != (0, 0)).collect()
}

/// Unmounts; then e2fsck finds nothing wrong, debugfs reads what we reported, and tune2fs counts
/// anew just the same (but for values in inodes of their own, which tune2fs charges to
/// themselves).
fn close_and_judge(fs: Volume, device: &Arc<MemoryDevice>, what: &str) {
    fs.sync().unwrap();
    let ours: Vec<_> = KINDS
        .map(|(kind, _)| fs.quotas(kind).is_ok().then(|| reported(&fs, kind)))
        .into();
    fs.close().unwrap();
    drop(fs);
    let file = uext4_testkit::stored(device);
    // It exits with 0 where it would only count the quotas anew.
    let found = said(&e2fsck(file.path(), "-fn"));
    assert!(!found.contains("quota"), "{what}: {found}");
    assert_eq!(complaints(file.path()), None, "{what}");
    let theirs = || {
        KINDS
            .iter()
            .zip(&ours)
            .map(|((_, name), ours)| ours.as_ref().map(|_| listed(file.path(), name)))
            .collect::<Vec<_>>()
    };
    assert_eq!(theirs(), ours, "{what}");
    if what.contains("ea_inode") {
        return;
    }
    let types = ["usrquota", "grpquota", "prjquota"];
    let counted: Vec<&str> = types
        .into_iter()
        .zip(&ours)
        .filter_map(|(name, ours)| ours.as_ref().map(|_| name))
        .collect();
    let image = file.path().to_str().unwrap();
    run("tune2fs", ["-O", "^quota", image]);
    run("tune2fs", ["-O", "quota", "-Q", &counted.join(","), image]);
    assert_eq!(theirs(), ours, "{what}: counted anew");
}
