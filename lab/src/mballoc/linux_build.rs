//! A source tree built into an image, compared with what `mke2fs -d` makes of it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Map, Value, json};
use uext4::format::GroupNr;
use uext4::{FileType, Ino};
use uext4_image::{BuildOptions, Size, Source};
use uext4_mkfs::BlockSizeWish;
use uext4_ondisk::BlockSize;

use crate::experiment::{Experiment, Failure, Measure, Setting};
use crate::mballoc::free_space::{self, share};
use crate::mballoc::tree::Tree;
use crate::mballoc::{image, steps};
use uext4_testkit::SplitMix64;

/// How the claim of this name is tried.
pub const EXPERIMENT: Experiment = Experiment {
    name: "mballoc-build",
    accepts,
    parameters: &[steps::TREE],
    has_subjects: false,
    measure: Measure::Counted,
    run,
};

const BUILD: &str = "build";
const MKE2FS: &str = "mke2fs";
const BLOCK_BYTES: u64 = 4096;
/// Bytes of the tree when quick, as a share of 1 GiB.
const QUICK_SHARE: f64 = 0.1;

fn accepts(policy: &str) -> Result<(), String> {
    match policy {
        BUILD | MKE2FS => Ok(()),
        _ => Err(format!("only {BUILD} and {MKE2FS}")),
    }
}

fn run(setting: &Setting) -> Result<Value, Failure> {
    let tree = Tree::named(setting.value("tree"), setting.seed)?;
    let tree = tree.at_scale(setting.scale, BLOCK_BYTES, 1 << 30, QUICK_SHARE);
    let place = tempfile::tempdir().map_err(failed)?;
    let source = place.path().join("source");
    write_tree(&tree, &source, setting.seed)?;
    // Half as much again as the contents, in whole MiB.
    let size = (tree.bytes(BLOCK_BYTES) / 2 * 3 + (64 << 20)).next_multiple_of(1 << 20);
    let mut results = Map::new();
    for policy in &setting.policies {
        let image = place.path().join(policy);
        let made = match policy.as_str() {
            BUILD => build(&source, &image, size).map(|()| true)?,
            _ => mke2fs(&source, &image, size)?,
        };
        if made {
            results.insert(policy.clone(), read_back(&image)?);
        }
    }
    Ok(Value::Object(results))
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::Run(error.to_string())
}

/// Files of these sizes without holes; names in the tree's order.
fn write_tree(tree: &Tree, root: &Path, seed: u64) -> Result<(), Failure> {
    let mut random = SplitMix64::new(seed);
    let mut paths: Vec<PathBuf> = Vec::new();
    for (index, directory) in tree.directories.iter().enumerate() {
        let path = match index {
            0 => root.to_path_buf(),
            _ => paths[directory.parent].join(format!("d{index:05}")),
        };
        fs::create_dir(&path).map_err(failed)?;
        for (number, &size) in directory.files.iter().enumerate() {
            // Not compressible to a hole: no block is all zeroes.
            let byte = 1 + random.below(255) as u8;
            let bytes = vec![byte; usize::try_from(size).map_err(failed)?];
            fs::write(path.join(format!("f{number:05}")), bytes).map_err(failed)?;
        }
        paths.push(path);
    }
    Ok(())
}

fn build(source: &Path, image: &Path, size: u64) -> Result<(), Failure> {
    let mut options = BuildOptions {
        size: Size::Exact(size),
        ..BuildOptions::default()
    };
    let block_size = BlockSize::from_bytes(BLOCK_BYTES as u32);
    options.mkfs.block_size = block_size.map(BlockSizeWish::Exactly);
    let source = Source::from_argument(source);
    let report = uext4_image::build(&source, image, &options, &());
    report.map(|_| ()).map_err(failed)
}

/// False if there is no mke2fs.
fn mke2fs(source: &Path, image: &Path, size: u64) -> Result<bool, Failure> {
    let mut command = Command::new("mke2fs");
    // Where Debian has it, also for those who are not root.
    let path = std::env::var("PATH").unwrap_or_default();
    command.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    command.args(["-q", "-t", "ext4", "-b", "4096", "-d"]);
    command
        .arg(source)
        .arg(image)
        .arg(format!("{}k", size >> 10));
    match command.output() {
        Ok(output) if output.status.success() => Ok(true),
        Ok(output) => Err(Failure::Run(format!("mke2fs: {}", output.status))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(failed(error)),
    }
}

/// Extents and free space of an image.
fn read_back(path: &Path) -> Result<Value, Failure> {
    let fs = image::open(path)?;
    let geometry = fs.geometry();
    let (mut files, mut extents, mut most) = (0u64, 0u64, 0u64);
    let first = geometry.first_ino;
    for ino in first..=geometry.inodes_count {
        let group = (ino - 1) / geometry.inodes_per_group;
        let bit = (ino - 1) % geometry.inodes_per_group;
        let bitmap = fs.inode_bitmap(GroupNr(group)).map_err(failed)?;
        if bitmap[(bit / 8) as usize] >> (bit % 8) & 1 == 0 {
            continue;
        }
        let inode = fs.inode(Ino(ino)).map_err(failed)?;
        if inode.file_type == FileType::Regular && inode.size > 0 {
            let count = image::extents_of(&fs, &inode)?;
            files += 1;
            extents += count;
            most = most.max(count);
        }
    }
    let blocks = geometry.blocks_count;
    Ok(json!({
        "files": {
            "files": files,
            "extents": extents,
            "extents_mean": share(extents, files),
            "extents_max": most,
        },
        "free": free_space::summary(&image::free_runs(&fs)?, blocks, BLOCK_BYTES),
    }))
}
