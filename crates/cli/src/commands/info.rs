//! `info`: the contents of the superblock and the group descriptors.

mod settings;

use std::io::Write;

use clap::Args;
use uext4::Image;
use uext4_image::verity::root_hash;
use uext4_ondisk::GroupNr;
use uext4_ondisk::features::{Feature, Features, Support};
use uext4_ondisk::group_desc::{BG_BLOCK_UNINIT, BG_INODE_UNINIT, BG_INODE_ZEROED, GroupDesc};
use uext4_ondisk::hash::CharSign;
use uext4_ondisk::superblock::{STATE_ERROR, STATE_ORPHAN, STATE_VALID, SuperBlock};

use super::Output;
use crate::args::{ImageArgs, PlaceArgs};
use crate::failure::{Complaints, Exit, Failure};
use crate::json::Json;
use crate::open;
use crate::part;
use crate::show::{escaped, size_text, time_short, uuid_text};

/// Describe the file system: geometry, features and their support, state, times
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 info disk.img
  uext4 info --groups disk.img
  uext4 info --json disk.img | jq .free_blocks")]
pub struct InfoArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// Print each block group too
    #[arg(long)]
    groups: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl InfoArgs {
    /// Of an image.
    pub fn of(image: &ImageArgs, json: bool) -> Self {
        Self {
            image: image.clone(),
            groups: false,
            json,
        }
    }
}

/// Prints the description.
pub fn run(args: &InfoArgs, out: &mut Output) -> Result<Exit, Failure> {
    let fs = open::open(&args.image)?;
    let mut facts = facts(&fs);
    facts.extend(hash_tree(&args.image.place));
    facts.extend(footer(&args.image.place));
    let mut json = Json::new();
    if args.json {
        json.open_object();
        for (name, fact) in &facts {
            fact.write(&mut json, name);
        }
        json.key("features").open_array();
        fs.geometry()
            .features
            .known()
            .for_each(|f| feature_object(&mut json, f));
        json.close_array();
        out.write_all(json.as_bytes())?;
        json.continue_array();
    } else {
        let width = facts
            .iter()
            .map(|(name, _)| name.len())
            .max()
            .unwrap_or_default();
        for (name, fact) in &facts {
            let name = name.replace('_', " ");
            writeln!(out, "{name:width$}  {}", fact.text())?;
        }
        features(fs.geometry().features, out)?;
    }
    let mut complaints = Complaints::new();
    if args.groups {
        groups(&fs, args.json.then_some(&mut json), &mut complaints, out)?;
    }
    if args.json {
        json.close_object();
        json.end_line();
        out.write_all(json.as_bytes())?;
    }
    Ok(complaints.exit())
}

/// One line of the description.
enum Fact {
    Text(String),
    Number(u64),
    /// A number, shown as it is written in C.
    Hex(u16),
    Signed(i64),
    /// Bytes, shown with a unit.
    Size(u64),
    /// Seconds since 1970; 0 is never.
    Time(i64),
}

impl Fact {
    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
            Self::Hex(number) => format!("{number:#x}"),
            Self::Signed(number) => number.to_string(),
            Self::Size(bytes) => format!("{bytes} ({})", size_text(*bytes)),
            Self::Time(0) => "never".to_owned(),
            Self::Time(seconds) => format!("{} UTC", time_short(*seconds)),
        }
    }

    fn write(&self, json: &mut Json, name: &str) {
        json.key(name);
        match self {
            Self::Text(text) => json.string(text),
            Self::Number(number) | Self::Size(number) => json.number(*number),
            Self::Hex(number) => json.number(*number),
            Self::Signed(number) | Self::Time(number) => json.number(*number),
        }
    }
}

fn facts(fs: &Image) -> Vec<(&'static str, Fact)> {
    let mut facts = shape(fs);
    facts.extend(settings::settings(fs));
    facts.extend(history(fs));
    facts
}

/// The footer of Android Verified Boot that covers the file system.
fn footer(place: &PlaceArgs) -> Vec<(&'static str, Fact)> {
    let Some(footer) = part::footer(place) else {
        return Vec::new();
    };
    vec![
        ("avb_footer", Fact::Number(footer.at)),
        ("avb_image_size", Fact::Size(footer.image_len)),
        ("avb_vbmeta", Fact::Number(footer.descriptors_at)),
        ("avb_vbmeta_size", Fact::Size(footer.descriptors_len)),
    ]
}

/// The dm-verity hash tree that covers the file system.
fn hash_tree(place: &PlaceArgs) -> Vec<(&'static str, Fact)> {
    let Some(found) = part::hash_tree(place) else {
        return Vec::new();
    };
    let tree = &found.tree;
    let mut facts = vec![
        ("verity_tree", Fact::Number(tree.at)),
        ("verity_algorithm", Fact::Text(tree.algorithm.clone())),
        ("verity_data_blocks", Fact::Number(tree.data_blocks)),
        ("verity_uuid", Fact::Text(uuid_text(&tree.uuid))),
    ];
    if let Some(number) = found.partition {
        facts.push(("verity_partition", Fact::Number(number.into())));
    }
    if let Ok(Some(hash)) = root_hash(tree, &*found.whole, found.start) {
        facts.push(("verity_root_hash", Fact::Text(hash.to_string())));
    }
    facts
}

fn shape(fs: &Image) -> Vec<(&'static str, Fact)> {
    let (sb, geometry) = (fs.superblock(), fs.geometry());
    vec![
        ("kind", Fact::Text(kind(geometry.features).to_owned())),
        ("label", Fact::Text(c_text(&sb.s_volume_name))),
        ("uuid", Fact::Text(uuid_text(&sb.s_uuid))),
        ("state", Fact::Text(state(sb))),
        ("size", Fact::Size(geometry.len_bytes())),
        (
            "block_size",
            Fact::Number(geometry.block_size.bytes().into()),
        ),
        (
            "cluster_size",
            Fact::Number(u64::from(geometry.block_size.bytes()) << geometry.cluster_bits),
        ),
        ("blocks", Fact::Number(geometry.blocks_count)),
        ("free_blocks", Fact::Number(sb.free_blocks_count())),
        ("reserved_blocks", Fact::Number(sb.reserved_blocks_count())),
        ("inodes", Fact::Number(geometry.inodes_count.into())),
        (
            "free_inodes",
            Fact::Number(sb.s_free_inodes_count.get().into()),
        ),
        ("inode_size", Fact::Number(geometry.inode_size.into())),
        ("groups", Fact::Number(geometry.groups_count.get().into())),
        (
            "blocks_per_group",
            Fact::Number(geometry.blocks_per_group.get().into()),
        ),
        (
            "inodes_per_group",
            Fact::Number(geometry.inodes_per_group.get().into()),
        ),
        (
            "flex_group_size",
            Fact::Number(1 << geometry.log_groups_per_flex),
        ),
        ("descriptor_size", Fact::Number(geometry.desc_size.into())),
        (
            "reserved_descriptor_blocks",
            Fact::Number(geometry.reserved_gdt_blocks.into()),
        ),
        (
            "first_block",
            Fact::Number(geometry.first_data_block.into()),
        ),
        ("first_inode", Fact::Number(geometry.first_ino.into())),
        (
            "journal_inode",
            Fact::Number(sb.s_journal_inum.get().into()),
        ),
        ("hash_seed", Fact::Text(uuid_text(&hash_seed(sb)))),
        ("default_hash", Fact::Text(hash_name(sb))),
    ]
}

fn history(fs: &Image) -> Vec<(&'static str, Fact)> {
    let sb = fs.superblock();
    let time = |lo: u32, hi: u8| Fact::Time(i64::from(hi) << 32 | i64::from(lo));
    let mut facts = vec![
        ("last_mounted_on", Fact::Text(c_text(&sb.s_last_mounted))),
        ("created", time(sb.s_mkfs_time.get(), sb.s_mkfs_time_hi)),
        ("mounted", time(sb.s_mtime.get(), sb.s_mtime_hi)),
        ("written", time(sb.s_wtime.get(), sb.s_wtime_hi)),
        ("checked", time(sb.s_lastcheck.get(), sb.s_lastcheck_hi)),
        ("mount_count", Fact::Number(sb.s_mnt_count.get().into())),
        (
            "lifetime_writes",
            Fact::Size(sb.s_kbytes_written.get().saturating_mul(1024)),
        ),
        ("errors", Fact::Number(sb.s_error_count.get().into())),
    ];
    if let Some(replayed) = fs.replayed() {
        let text = format!(
            "{} transactions, {} blocks, {} fast-commit records; in memory only",
            replayed.transactions, replayed.blocks, replayed.fast_commit_records
        );
        facts.push(("journal_replayed", Fact::Text(text)));
    }
    facts
}

/// The name people use for a set of features.
fn kind(features: Features) -> &'static str {
    let has = |name: &str| features.known().any(|f| f.name == name);
    if [
        "extent",
        "64bit",
        "flex_bg",
        "metadata_csum",
        "uninit_bg",
        "huge_file",
        "bigalloc",
    ]
    .into_iter()
    .any(has)
    {
        "ext4"
    } else if has("has_journal") {
        "ext3"
    } else {
        "ext2"
    }
}

/// How the file system was left.
pub fn state(sb: &SuperBlock) -> String {
    let bits = sb.s_state.get();
    let mut words = vec![if bits & STATE_VALID != 0 {
        "clean"
    } else {
        "not clean"
    }];
    if bits & STATE_ERROR != 0 {
        words.push("with errors");
    }
    if bits & STATE_ORPHAN != 0 {
        words.push("orphans being recovered");
    }
    if sb.features().known().any(|f| f.name == "needs_recovery") {
        words.push("journal to be replayed");
    }
    words.join(", ")
}

fn hash_name(sb: &SuperBlock) -> String {
    let name = match sb.s_def_hash_version {
        0 => "legacy",
        1 => "half_md4",
        2 => "tea",
        6 => "siphash",
        other => return format!("unknown ({other})"),
    };
    let sign = match sb.hash_sign() {
        CharSign::Signed => "signed",
        CharSign::Unsigned => "unsigned",
    };
    format!("{name}, {sign}")
}

/// The seed in the order of its bytes on disk, as other tools show it.
fn hash_seed(sb: &SuperBlock) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (word, at) in sb.s_hash_seed.iter().zip(bytes.chunks_exact_mut(4)) {
        at.copy_from_slice(&word.to_bytes());
    }
    bytes
}

/// Text up to the first zero byte.
fn c_text(bytes: &[u8]) -> String {
    escaped(bytes.split(|&b| b == 0).next().unwrap_or_default())
}

fn features(features: Features, out: &mut Output) -> Result<(), Failure> {
    writeln!(
        out,
        "\n{:20} {:6} {:6} {:6}",
        "feature", "read", "write", "check"
    )?;
    for feature in features.known() {
        writeln!(
            out,
            "{:20} {:6} {:6} {:6} {}",
            feature.name,
            word(feature.read),
            word(feature.write),
            word(feature.check),
            feature.note
        )?;
    }
    Ok(())
}

fn word(support: Support) -> &'static str {
    match support {
        Support::Yes => "yes",
        Support::Refused => "no",
    }
}

fn feature_object(json: &mut Json, feature: &Feature) {
    json.open_object();
    json.key("name").string(feature.name);
    json.key("read").value(feature.read == Support::Yes);
    json.key("write").value(feature.write == Support::Yes);
    json.key("check").value(feature.check == Support::Yes);
    json.close_object();
}

fn groups(
    fs: &Image,
    mut json: Option<&mut Json>,
    complaints: &mut Complaints,
    out: &mut Output,
) -> Result<(), Failure> {
    match &mut json {
        Some(json) => json.key("group_descriptors").open_array(),
        None => writeln!(
            out,
            "\n{:>7} {:>12} {:>12} {:>12} {:>12} {:>8} {:>8} {:>7} flags",
            "group",
            "first block",
            "block bitmap",
            "inode bitmap",
            "inode table",
            "free",
            "inodes",
            "dirs"
        )?,
    }
    for group in 0..fs.geometry().groups_count.get() {
        let group = GroupNr(group);
        let desc = match fs.group_desc(group) {
            Ok(desc) => desc,
            Err(error) => {
                complaints.engine(format_args!("group {group}"), &error);
                // All that follow lie farther beyond the end.
                if error.is_beyond_end() {
                    break;
                }
                continue;
            }
        };
        let first = fs.geometry().group_start(group).0;
        match &mut json {
            Some(json) => {
                group_object(json, group, first, &desc);
                out.write_all(json.as_bytes())?;
                json.continue_array();
            }
            None => writeln!(
                out,
                "{group:>7} {first:>12} {:>12} {:>12} {:>12} {:>8} {:>8} {:>7} {}",
                desc.block_bitmap,
                desc.inode_bitmap,
                desc.inode_table,
                desc.free_clusters,
                desc.free_inodes,
                desc.used_dirs,
                flag_names(desc.flags).join(",")
            )?,
        }
    }
    if let Some(json) = json {
        json.close_array();
    }
    Ok(())
}

fn flag_names(flags: u16) -> Vec<&'static str> {
    [
        (BG_INODE_UNINIT, "INODE_UNINIT"),
        (BG_BLOCK_UNINIT, "BLOCK_UNINIT"),
        (BG_INODE_ZEROED, "ITABLE_ZEROED"),
    ]
    .into_iter()
    .filter(|(bit, _)| flags & bit != 0)
    .map(|(_, name)| name)
    .collect()
}

fn group_object(json: &mut Json, group: GroupNr, first: u64, desc: &GroupDesc) {
    json.open_object();
    json.key("group").number(group.0);
    json.key("first_block").number(first);
    json.key("block_bitmap").number(desc.block_bitmap.0);
    json.key("inode_bitmap").number(desc.inode_bitmap.0);
    json.key("inode_table").number(desc.inode_table.0);
    json.key("free_clusters").number(desc.free_clusters);
    json.key("free_inodes").number(desc.free_inodes);
    json.key("used_dirs").number(desc.used_dirs);
    json.key("flags").open_array();
    flag_names(desc.flags)
        .into_iter()
        .for_each(|name| json.string(name));
    json.close_array();
    json.close_object();
}
