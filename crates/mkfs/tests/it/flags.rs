//! A command line of mke2fs, read into options as the command does it.

use uext4_mkfs::{
    BlockSizeWish, ErrorsBehavior, FsType, Options, UsageType, parse_extended, parse_features,
    parse_journal, parse_size, parse_uuid,
};
use uext4_ondisk::BlockSize;

/// Identity and time of every file system made here.
pub const UUID: &str = "01234567-89ab-cdef-0123-456789abcdef";
pub const HASH_SEED: &str = "fedcba98-7654-3210-fedc-ba9876543210";
pub const TIME: u32 = 1_700_000_000;

/// Options from flags separated by blanks; a word without a dash is the size.
pub fn options(flags: &str) -> Options {
    let uuid = parse_uuid("-U", UUID).unwrap();
    let seed = parse_uuid("-E hash_seed", HASH_SEED).unwrap();
    let mut options = Options::new(uuid, seed, TIME);
    let mut size = None;
    let mut words = flags.split_whitespace();
    while let Some(flag) = words.next() {
        let mut value = || words.next().unwrap();
        match flag {
            "-t" => options.fs_type = FsType::from_name(value()).unwrap(),
            "-T" => {
                let types = value().split(',').map(UsageType::from_name);
                options.usage = types.collect::<Option<_>>().unwrap();
            }
            "-b" => options.block_size = Some(block_size(value())),
            "-C" => {
                let size = parse_size("-C", value()).unwrap().bytes_plain();
                options.cluster_size = Some(size);
            }
            "-g" => options.blocks_per_group = Some(value().parse().unwrap()),
            "-G" => options.groups_per_flex = Some(value().parse().unwrap()),
            "-i" => options.inode_ratio = Some(value().parse().unwrap()),
            "-I" => options.inode_size = Some(value().parse().unwrap()),
            "-N" => options.inodes = Some(value().parse().unwrap()),
            "-r" => options.is_revision_0 = value() == "0",
            "-m" => options.reserved_percent = value().parse().unwrap(),
            "-O" => options.features.extend(parse_features(value()).unwrap()),
            "-E" => parse_extended(value(), &mut options.extended).unwrap(),
            "-j" => options.journal.wanted = true,
            "-J" => parse_journal(value(), &mut options.journal).unwrap(),
            "-L" => fill(&mut options.label, value()),
            "-M" => fill(&mut options.last_mounted, value()),
            "-e" => options.errors = ErrorsBehavior::from_name(value()).unwrap(),
            word => size = Some(parse_size("size", word).unwrap()),
        }
    }
    let said = match options.block_size {
        Some(BlockSizeWish::Exactly(size)) => Some(size),
        _ => None,
    };
    options.size = size.map(|size| size.bytes(said).unwrap());
    options
}

fn block_size(text: &str) -> BlockSizeWish {
    let size = |text: &str| BlockSize::from_bytes(text.parse().unwrap()).unwrap();
    match text.strip_prefix('-') {
        Some(text) => BlockSizeWish::AtLeast(size(text)),
        None => BlockSizeWish::Exactly(size(text)),
    }
}

fn fill(field: &mut [u8], text: &str) {
    field[..text.len()].copy_from_slice(text.as_bytes());
}
