//! Every switch, with what tune2fs takes for it.

use uext4_ondisk::quota::QuotaKind;

use crate::tune::{Amount, Change, Reserved};

/// One run of `tune`.
pub struct Case {
    /// Which makes the same change: tune2fs or resize2fs.
    pub tool: &'static str,
    /// As it takes them.
    pub arguments: Vec<String>,
    pub changes: Vec<Change>,
    /// Starts of the lines of dumpe2fs that differ from those of tune2fs.
    pub but: &'static [&'static str],
}

impl Case {
    pub fn new(tool: &'static str, arguments: &[&str], changes: Vec<Change>) -> Self {
        Self {
            tool,
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            changes,
            but: &[],
        }
    }
}

/// All switches: features set and cleared, and fields.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, but) in FEATURES {
        for text in [name.to_owned(), format!("^{name}")] {
            let changes = Change::of_features(&text).unwrap();
            let case = Case::new("tune2fs", &["-O", &text], changes);
            cases.push(Case { but, ..case });
        }
    }
    cases.extend(fields().into_iter().map(|(arguments, changes)| {
        let arguments: Vec<_> = arguments.split(' ').collect();
        let case = Case::new("tune2fs", &arguments, changes);
        let but: &[_] = &["Free inodes"];
        Case { but, ..case }
    }));
    cases
}

/// Each with the lines of dumpe2fs that differ from those of tune2fs, for the reason given.
const FEATURES: [(&str, &[&str]); 26] = [
    ("metadata_csum", &[]),
    // tune2fs leaves the orphan file, which neither the kernel nor e2fsck expects.
    (
        "has_journal",
        &[
            "Orphan file inode",
            "Total journal",
            "Max transaction",
            "Fast commit",
            // tune2fs leaves the copy of an inode that is no more.
            "Journal backup",
        ],
    ),
    ("dir_index", &[]),
    ("quota", &[]),
    ("project", &["Free inodes"]),
    ("orphan_file", &["Free inodes"]),
    // The kernel divides the journal when it mounts; tune2fs does it at once.
    ("fast_commit", &["Max transaction", "Fast commit"]),
    ("large_dir", &[]),
    ("ea_inode", &[]),
    ("casefold", &[]),
    ("dir_nlink", &[]),
    ("extra_isize", &[]),
    ("huge_file", &[]),
    ("large_file", &[]),
    ("uninit_bg", &[]),
    ("sparse_super", &[]),
    ("flex_bg", &[]),
    ("mmp", &["MMP"]),
    ("metadata_csum_seed", &[]),
    ("extent", &[]),
    ("filetype", &[]),
    ("verity", &[]),
    ("stable_inodes", &[]),
    ("encrypt", &[]),
    ("read-only", &[]),
    // tune2fs leaves the count of blocks that it frees.
    ("resize_inode", &["Reserved GDT"]),
];

pub fn label(text: &str) -> Change {
    let mut label = [0; 16];
    label[..text.len()].copy_from_slice(text.as_bytes());
    Change::Label(label)
}

fn last_mounted(text: &str) -> Change {
    let mut path = [0; 64];
    path[..text.len()].copy_from_slice(text.as_bytes());
    Change::LastMounted(path)
}

fn mount_options(text: &str) -> Change {
    let mut options = [0; 64];
    options[..text.len()].copy_from_slice(text.as_bytes());
    Change::MountOptions(options)
}

const UUID: &str = "c1b9d5a2-f162-11cf-9ece-0020afc76f16";

fn uuid() -> Change {
    Change::Uuid(uuid::Uuid::parse_str(UUID).unwrap().into_bytes())
}

fn orphan_file() -> Vec<Change> {
    let mut changes = Change::of_features("orphan_file").unwrap();
    changes.push(Change::OrphanFileSize(Amount::Blocks(40)));
    changes
}

fn fields() -> Vec<(&'static str, Vec<Change>)> {
    let quota = |kind, is_on| Change::Quota { kind, is_on };
    vec![
        ("-L name", vec![label("name")]),
        ("-U c1b9d5a2-f162-11cf-9ece-0020afc76f16", vec![uuid()]),
        ("-m 10", vec![Change::Reserved(Reserved::Percent(10.0))]),
        ("-m 1.5", vec![Change::Reserved(Reserved::Percent(1.5))]),
        ("-r 777", vec![Change::Reserved(Reserved::Blocks(777))]),
        ("-r 20000", vec![Change::Reserved(Reserved::Blocks(20_000))]),
        (
            "-u 7 -g 8",
            vec![Change::ReservedUser(7), Change::ReservedGroup(8)],
        ),
        ("-e panic", vec![Change::Errors(3)]),
        ("-c 20", vec![Change::MountsMax(20)]),
        ("-i 2w", vec![Change::CheckInterval(2 * 7 * 86_400)]),
        ("-M /mnt/x", vec![last_mounted("/mnt/x")]),
        (
            "-o discard,^user_xattr",
            vec![Change::DefaultMount {
                clear: 4,
                set: 0x400,
            }],
        ),
        ("-E mount_opts=discard", vec![mount_options("discard")]),
        ("-E hash_alg=tea", vec![Change::Hash(2)]),
        (
            "-E stride=4,stripe_width=16",
            vec![Change::Stride(4), Change::StripeWidth(16)],
        ),
        ("-E test_fs", vec![Change::TestFs(true)]),
        ("-E ^test_fs", vec![Change::TestFs(false)]),
        ("-E force_fsck", vec![Change::ForceFsck]),
        (
            "-E encoding=utf8",
            vec![Change::Encoding { is_strict: false }],
        ),
        (
            "-E encoding=utf8-12.1,encoding_flags=strict",
            vec![Change::Encoding { is_strict: true }],
        ),
        (
            "-C 7 -c -1",
            vec![Change::Mounts(7), Change::MountsMax(0xFFFF)],
        ),
        ("-T 20200102", vec![Change::CheckedAt(1_577_923_200)]),
        ("-i 0", vec![Change::CheckInterval(0)]),
        ("-E orphan_file_size=40 -O orphan_file", orphan_file()),
        ("-Q usrquota", vec![quota(QuotaKind::User, true)]),
        ("-Q ^grpquota", vec![quota(QuotaKind::Group, false)]),
        ("-Q prjquota", vec![quota(QuotaKind::Project, true)]),
    ]
}
