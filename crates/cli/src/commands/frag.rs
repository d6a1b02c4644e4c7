//! `frag`: how fragmented free space and files are, as e2freefrag and filefrag report it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::{FollowLast, Image, Inode};
use uext4_ondisk::inode::FileType;

use super::stat::extents_array;
use super::{Output, bytes};
use crate::args::ImageArgs;
use crate::extents::{Runs, has_blocks};
use crate::failure::{Complaints, Exit, Failure};
use crate::free::FreeSpace;
use crate::json::Json;
use crate::open;
use crate::paths;
use crate::show::{escaped, size_text};
use uext4_image::walk::{InodeSet, Order, Step, Walk};

/// How many of the most fragmented files are named.
const WORST: usize = 10;

/// Show how fragmented free space and files are
///
/// Without PATH, prints a histogram of the runs of free blocks, and how many extents files have.
/// With PATH, prints the extents of that file, or of every file below that directory.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 frag disk.img
  uext4 frag -v disk.img | sort -n | tail     every file, most extents last
  uext4 frag disk.img /var/lib/db/data")]
pub struct FragArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// File or directory in the image
    #[arg(value_name = "PATH")]
    path: Option<PathBuf>,
    /// Print a line for each file
    #[arg(short)]
    verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Prints the report.
pub fn run(args: &FragArgs, out: &mut Output) -> Result<Exit, Failure> {
    let fs = open::open(&args.image)?;
    let mut complaints = Complaints::new();
    let mut json = Json::new();
    json.open_object();
    let path = args
        .path
        .as_ref()
        .map_or(b"/" as &[u8], |path| bytes(path.as_os_str()));
    let top = paths::resolve(&fs, path, FollowLast::Yes)?;
    if args.path.is_some() && top.file_type != FileType::Directory {
        file(
            &fs,
            path,
            &top,
            args.json.then_some(&mut json),
            out,
            &mut complaints,
        )?;
    } else {
        if args.path.is_none() {
            free_space(&fs, args.json.then_some(&mut json), out, &mut complaints)?;
        }
        let mut files = Files::default();
        files.walk(&fs, args, top, &mut json, out, &mut complaints)?;
        files.summary(args.json.then_some(&mut json), out)?;
    }
    if args.json {
        json.close_object();
        json.end_line();
        out.write_all(json.as_bytes())?;
    }
    Ok(complaints.exit())
}

/// All extents of one file.
fn file(
    fs: &Image,
    path: &[u8],
    inode: &Inode,
    json: Option<&mut Json>,
    out: &mut Output,
    complaints: &mut Complaints,
) -> Result<(), Failure> {
    if let Some(json) = json {
        json.key("path").text(path);
        json.key("size").number(inode.size);
        if let Some(error) = extents_array(fs, inode, json, out)? {
            complaints.engine(escaped(path), &error);
        }
        return Ok(());
    }
    let block_size = fs.geometry().block_size;
    writeln!(
        out,
        "{}: {} bytes, blocks of {block_size} bytes",
        escaped(path),
        inode.size
    )?;
    writeln!(
        out,
        "{:>6} {:>22} {:>26} {:>10}",
        "extent", "logical", "physical", "length"
    )?;
    let mut count = 0u64;
    for run in Runs::new(fs, inode) {
        let run = match run {
            Ok(run) => run,
            Err(error) => {
                complaints.engine(escaped(path), &error);
                break;
            }
        };
        writeln!(
            out,
            "{count:>6} {:>10}..{:>10} {:>12}..{:>12} {:>10}{}",
            run.lblk,
            run.lblk + run.len - 1,
            run.pblk,
            run.pblk + run.len - 1,
            run.len,
            if run.unwritten { " unwritten" } else { "" }
        )?;
        count += 1;
    }
    writeln!(out, "extents: {count}")?;
    Ok(())
}

fn free_space(
    fs: &Image,
    json: Option<&mut Json>,
    out: &mut Output,
    complaints: &mut Complaints,
) -> Result<(), Failure> {
    let space = FreeSpace::read(fs, |group, error| {
        complaints.engine(format_args!("group {group}"), error);
    });
    let geometry = fs.geometry();
    let cluster = u64::from(geometry.block_size.bytes()) << geometry.cluster_bits;
    let total = geometry.blocks_count >> geometry.cluster_bits;
    let min = if space.runs == 0 { 0 } else { space.min };
    let average = space.free.checked_div(space.runs).unwrap_or(0);
    if let Some(json) = json {
        json.key("cluster_size").number(cluster);
        json.key("clusters").number(total);
        json.key("free_clusters").number(space.free);
        json.key("free_extents").number(space.runs);
        json.key("free_extent_min").number(min * cluster);
        json.key("free_extent_max").number(space.max * cluster);
        json.key("free_extent_average").number(average * cluster);
        json.key("free_histogram").open_array();
        for (log, (runs, clusters)) in space.buckets.iter().enumerate() {
            if *runs > 0 {
                json.open_object();
                json.key("from").number(cluster << log);
                json.key("extents").number(*runs);
                json.key("clusters").number(*clusters);
                json.close_object();
            }
        }
        json.close_array();
        return Ok(());
    }
    let percent = |part: u64, of: u64| part as f64 * 100.0 / of.max(1) as f64;
    writeln!(out, "unit of allocation  {cluster} bytes")?;
    writeln!(out, "units               {total}")?;
    writeln!(
        out,
        "free                {} ({:.1} %)",
        space.free,
        percent(space.free, total)
    )?;
    writeln!(out, "free extents        {}", space.runs)?;
    writeln!(out, "smallest            {}", size_text(min * cluster))?;
    writeln!(
        out,
        "largest             {}",
        size_text(space.max * cluster)
    )?;
    writeln!(out, "average             {}", size_text(average * cluster))?;
    writeln!(
        out,
        "\n{:>24} {:>12} {:>14} {:>8}",
        "free extents of", "extents", "units", "share"
    )?;
    for (log, (runs, clusters)) in space.buckets.iter().enumerate() {
        if *runs > 0 {
            let (from, to) = (cluster << log, cluster << (log + 1));
            let range = format!("{} … {}", size_text(from), size_text(to));
            let share = percent(*clusters, space.free);
            writeln!(out, "{range:>24} {runs:>12} {clusters:>14} {share:>7.2} %")?;
        }
    }
    writeln!(out)?;
    Ok(())
}

/// What is counted over all files.
#[derive(Debug, Default)]
struct Files {
    files: u64,
    with_blocks: u64,
    fragmented: u64,
    extents: u64,
    blocks: u64,
    /// Blocks of their maps: extents after the first four, or block numbers after the first twelve.
    map_blocks: u64,
    /// Files with blocks by how many extents they have.
    by_extents: BTreeMap<u64, u64>,
    /// The files with the most extents; the fewest of them on top.
    worst: BinaryHeap<Reverse<(u64, Vec<u8>)>>,
}

impl Files {
    fn walk(
        &mut self,
        fs: &Image,
        args: &FragArgs,
        top: Inode,
        json: &mut Json,
        out: &mut Output,
        complaints: &mut Complaints,
    ) -> Result<(), Failure> {
        let lines = args.verbose && !args.json;
        if args.verbose && args.json {
            json.key("each").open_array();
        }
        let mut seen = InodeSet::default();
        let mut walk = Walk::new(fs, top, Order::Nested);
        while let Some(step) = walk.step() {
            let Step::Entry(entry) = step else {
                continue;
            };
            let inode = match &entry.inode {
                Ok(inode) => inode,
                Err(error) => {
                    complaints.engine(escaped(walk.path()), error);
                    continue;
                }
            };
            // A file of many names is one file, whatever its link count says.
            if !seen.insert(inode.ino) {
                continue;
            }
            let (mut extents, mut blocks) = (0, 0);
            for run in Runs::new(fs, inode) {
                match run {
                    Ok(run) => {
                        extents += 1;
                        blocks += run.len;
                    }
                    Err(error) => complaints.engine(escaped(walk.path()), &error),
                }
            }
            self.map_blocks += map_blocks(fs, inode, blocks);
            self.add(inode, walk.path(), extents, blocks);
            if lines {
                writeln!(out, "{extents:>8} {blocks:>10} {}", escaped(walk.path()))?;
            } else if args.verbose {
                json.open_object();
                json.key("path").text(walk.path());
                json.key("extents").number(extents);
                json.key("blocks").number(blocks);
                json.close_object();
                out.write_all(json.as_bytes())?;
                json.continue_array();
            }
        }
        if args.verbose && args.json {
            json.close_array();
        }
        Ok(())
    }

    fn add(&mut self, inode: &Inode, path: &[u8], extents: u64, blocks: u64) {
        self.files += 1;
        self.with_blocks += u64::from(has_blocks(inode) && extents > 0);
        self.fragmented += u64::from(extents > 1);
        if extents > 0 {
            *self.by_extents.entry(extents).or_default() += 1;
        }
        self.extents += extents;
        self.blocks += blocks;
        let least = self.worst.peek().map_or(0, |Reverse((least, _))| *least);
        if extents > 1 && (self.worst.len() < WORST || extents > least) {
            self.worst.push(Reverse((extents, path.to_vec())));
            if self.worst.len() > WORST {
                self.worst.pop();
            }
        }
    }

    /// Extents that so many hundredths of the files with blocks have at most.
    fn percentile(&self, hundredths: u64) -> u64 {
        let files: u64 = self.by_extents.values().sum();
        let mut left = (files * hundredths).div_ceil(100);
        for (extents, count) in &self.by_extents {
            if *count >= left {
                return *extents;
            }
            left -= count;
        }
        0
    }

    fn summary(self, json: Option<&mut Json>, out: &mut Output) -> Result<(), Failure> {
        let per_file = self.extents as f64 / self.with_blocks.max(1) as f64;
        let (files, with_blocks) = (self.files, self.with_blocks);
        let (half, most) = (self.percentile(50), self.percentile(99));
        let map_blocks = self.map_blocks;
        let mut worst: Vec<_> = self.worst.into_iter().map(|Reverse(file)| file).collect();
        worst.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        if let Some(json) = json {
            json.key("files").number(files);
            json.key("files_with_blocks").number(with_blocks);
            json.key("files_fragmented").number(self.fragmented);
            json.key("extents").number(self.extents);
            json.key("extents_per_file").decimal(per_file);
            json.key("extents_p50").number(half);
            json.key("extents_p99").number(most);
            json.key("blocks").number(self.blocks);
            json.key("map_blocks").number(map_blocks);
            json.key("most_extents").open_array();
            for (extents, path) in &worst {
                json.open_object();
                json.key("path").text(path);
                json.key("extents").number(*extents);
                json.close_object();
            }
            json.close_array();
            return Ok(());
        }
        writeln!(
            out,
            "files               {files}, {with_blocks} with blocks of their own"
        )?;
        writeln!(out, "in several pieces   {}", self.fragmented)?;
        writeln!(
            out,
            "extents             {}, {per_file:.4} a file; p50 {half}, p99 {most}",
            self.extents
        )?;
        writeln!(out, "blocks of maps      {map_blocks}")?;
        for (extents, path) in worst {
            writeln!(out, "{extents:>12} {}", escaped(&path))?;
        }
        Ok(())
    }
}

/// Blocks of a file's map outside its inode: those that are neither data nor attributes.
fn map_blocks(fs: &Image, inode: &Inode, data: u64) -> u64 {
    let geometry = fs.geometry();
    if geometry.cluster_bits > 0 || !has_blocks(inode) {
        return 0;
    }
    let all = inode.blocks / u64::from(geometry.block_size.bytes() >> 9);
    all.saturating_sub(data)
        .saturating_sub(u64::from(inode.xattr_block.is_some()))
}
