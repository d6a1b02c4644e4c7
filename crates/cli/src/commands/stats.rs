//! `stats`: free space of an image by group, as the block allocator sees it; the statistics of a
//! mount are in [`mount_stats`].

use std::io::Write;
use std::time::Duration;

use clap::Args;
use uext4::Image;
use uext4::format::GroupNr;

use super::{Output, mount_stats};
use crate::args::ImageArgs;
use crate::failure::{Complaints, Exit, Failure};
use crate::group_space::{GroupSpace, order_max};
use crate::json::Json;
use crate::open;

/// Show free space by group, or what a running mount does
///
/// For a mount, named by its directory: hits of its caches, entries that the shrinker freed,
/// commits, dirty pages and their limit, writers that had to wait, the search for blocks, and the
/// time of each kind of request. Restricted to the user who mounted it.
///
/// For an image: how many groups have a largest free chunk, and an average free run, of each
/// order, as in Linux's /proc/fs/ext4/*/mb_structs_summary. With -v a line for each group, as in
/// mb_groups: free blocks, free runs, the first free block, the longest run, and the free chunks
/// of each order. Nothing is written.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 stats disk.img
  uext4 stats -v disk.img | less -S
  uext4 stats ~/mnt
  uext4 stats --watch ~/mnt             again every second, until q
  uext4 stats --prometheus ~/mnt        also on the socket, and with `-o metrics=FILE`")]
pub struct StatsArgs {
    #[command(flatten)]
    image: ImageArgs,
    /// Print a line for each group
    #[arg(short)]
    verbose: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// For a mount: print in the format of Prometheus
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
    /// For a mount: print again every SECONDS (1 if not given)
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "1", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    watch: Option<u32>,
}

/// Counts over all groups.
#[derive(Debug)]
struct Summary {
    groups: u32,
    free: u64,
    fragments: u64,
    largest: u32,
    /// Groups with nothing free, or that cannot be read.
    full: u32,
    /// Groups whose bitmap and descriptor disagree.
    bad: u32,
    largest_orders: Vec<u64>,
    average_orders: Vec<u64>,
}

/// Prints the report.
pub fn run(args: &StatsArgs, out: &mut Output) -> Result<Exit, Failure> {
    let path = &args.image.place.image;
    if path.is_dir() {
        let form = mount_stats::Form {
            json: args.json,
            prometheus: args.prometheus,
            watch: args.watch.map(|secs| Duration::from_secs(secs.into())),
        };
        return mount_stats::show(path, form, out);
    }
    if args.prometheus || args.watch.is_some() {
        let what = format_args!("{}: no directory", path.display());
        return Err(Failure::new(Exit::Usage, what)
            .hint("--watch and --prometheus are for mounts: say where it is mounted"));
    }
    of_image(args, out)
}

fn of_image(args: &StatsArgs, out: &mut Output) -> Result<Exit, Failure> {
    let fs = open::open(&args.image)?;
    let mut complaints = Complaints::new();
    let mut json = Json::new();
    let orders = order_max(&fs) as usize + 1;
    let mut summary = Summary {
        groups: fs.geometry().groups_count.get(),
        free: 0,
        fragments: 0,
        largest: 0,
        full: 0,
        bad: 0,
        largest_orders: vec![0; orders],
        average_orders: vec![0; orders],
    };
    json.open_object();
    if args.verbose {
        if args.json {
            json.key("each").open_array();
        } else {
            head(orders, out)?;
        }
    }
    for group in (0..summary.groups).map(GroupNr) {
        match GroupSpace::read(&fs, group) {
            Ok(space) => {
                summary.add(&space);
                if args.verbose && args.json {
                    object(group, &space, &mut json);
                    out.write_all(json.as_bytes())?;
                    json.continue_array();
                } else if args.verbose {
                    line(group, &space, out)?;
                }
            }
            Err(error) => {
                summary.full += 1;
                complaints.engine(format_args!("group {group}"), &error);
            }
        }
    }
    if args.json {
        if args.verbose {
            json.close_array();
        }
        summary.json(&fs, &mut json);
        json.close_object();
        json.end_line();
        out.write_all(json.as_bytes())?;
    } else {
        summary.text(out)?;
    }
    Ok(complaints.exit())
}

fn head(orders: usize, out: &mut Output) -> Result<(), Failure> {
    write!(out, "#group: free  frags first largest [")?;
    for order in 0..orders {
        write!(out, " {:<5}", format!("2^{order}"))?;
    }
    Ok(writeln!(out, " ]")?)
}

fn line(group: GroupNr, space: &GroupSpace, out: &mut Output) -> Result<(), Failure> {
    let &GroupSpace {
        free,
        fragments,
        first,
        largest,
        ..
    } = space;
    write!(
        out,
        "#{:<5}: {free:<5} {fragments:<5} {first:<5} {largest:<7} [",
        group.0
    )?;
    for count in &space.counters {
        write!(out, " {count:<5}")?;
    }
    Ok(writeln!(out, " ]")?)
}

fn object(group: GroupNr, space: &GroupSpace, json: &mut Json) {
    json.open_object();
    json.key("group").number(group.0);
    json.key("free").number(space.free);
    json.key("fragments").number(space.fragments);
    json.key("first").number(space.first);
    json.key("largest").number(space.largest);
    json.key("descriptor").number(space.descriptor);
    json.key("counters").open_array();
    for count in &space.counters {
        json.number(*count);
    }
    json.close_array();
    json.close_object();
}

impl Summary {
    fn add(&mut self, space: &GroupSpace) {
        self.free += u64::from(space.free);
        self.fragments += u64::from(space.fragments);
        self.largest = self.largest.max(space.largest);
        self.bad += u32::from(space.descriptor != space.free);
        let Some(largest) = space.largest_order() else {
            self.full += 1;
            return;
        };
        self.largest_orders[largest] += 1;
        // As the kernel counts it: one less than the binary logarithm.
        let average = (space.free / space.fragments.max(1)).max(1).ilog2();
        let order = (average.saturating_sub(1) as usize).min(self.average_orders.len() - 1);
        self.average_orders[order] += 1;
    }

    /// Blocks of the average free run.
    fn average(&self) -> u64 {
        self.free.checked_div(self.fragments).unwrap_or(0)
    }

    fn text(&self, out: &mut Output) -> Result<(), Failure> {
        writeln!(
            out,
            "groups              {}, {} full",
            self.groups, self.full
        )?;
        writeln!(out, "free                {}", self.free)?;
        writeln!(
            out,
            "free runs           {}, {} in the mean, {} at most",
            self.fragments,
            self.average(),
            self.largest
        )?;
        if self.bad > 0 {
            writeln!(
                out,
                "counts that are not those of the bitmap: {} groups",
                self.bad
            )?;
        }
        for (name, orders) in [
            ("max_free_order_lists", &self.largest_orders),
            ("avg_fragment_size_lists", &self.average_orders),
        ] {
            writeln!(out, "{name}:")?;
            for (order, count) in orders.iter().enumerate() {
                writeln!(out, "\tlist_order_{order}_groups: {count}")?;
            }
        }
        Ok(())
    }

    fn json(&self, fs: &Image, json: &mut Json) {
        let geometry = fs.geometry();
        let unit = u64::from(geometry.block_size.bytes()) << geometry.cluster_bits;
        json.key("cluster_size").number(unit);
        json.key("groups").number(self.groups);
        json.key("groups_full").number(self.full);
        json.key("groups_with_wrong_counts").number(self.bad);
        json.key("free").number(self.free);
        json.key("fragments").number(self.fragments);
        json.key("average_run").number(self.average());
        json.key("largest_run").number(self.largest);
        for (name, orders) in [
            ("groups_by_largest_order", &self.largest_orders),
            ("groups_by_average_order", &self.average_orders),
        ] {
            json.key(name).open_array();
            orders.iter().for_each(|count| json.number(*count));
            json.close_array();
        }
    }
}
