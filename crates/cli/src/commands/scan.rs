//! `scan`: looks for file systems anywhere in an image.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use uext4::rescue::{FoundFs, scan};
use uext4_blockdev::partition::{self, Partition};
use uext4_ondisk::superblock::SuperBlock;

use super::{Output, bytes};
use crate::args::PlaceArgs;
use crate::commands::info::state;
use crate::failure::{Complaints, Exit, Failure};
use crate::json::Json;
use crate::progress::Copying;
use crate::show::{escaped, size_text, uuid_text};
use crate::still::Still;

/// Look for file systems anywhere in an image
///
/// For a disk whose partition table is lost, and for the dump of a device's memory: finds ext2,
/// ext3 and ext4 file systems at every multiple of 512 bytes, also by a backup of a superblock that
/// is lost. All commands that open an image take the byte that is printed as --offset. The image is
/// only read, as a whole but for its holes.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  uext4 scan firmware.bin
  uext4 ls --offset 777216 firmware.bin
  uext4 scan --json disk.img | jq -r '.file_systems[].offset'")]
pub struct ScanArgs {
    /// Image file, disk image or block device
    #[arg(value_name = "IMAGE")]
    image: PathBuf,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Searches, and prints what was found.
pub fn run(args: &ScanArgs, out: &mut Output) -> Result<Exit, Failure> {
    let image = args.image.display();
    let whole = Still::open(&PlaceArgs::of(args.image.clone()))?.whole;
    let bar = Copying::new(whole.len());
    let searched = scan(&*whole, &mut |at| {
        bar.show_searched(at);
        Ok(())
    });
    drop(bar);
    let searched = searched.map_err(|error| Failure::engine(&image, &error))?;
    let mut complaints = Complaints::new();
    if searched.unreadable > 0 {
        let lost = size_text(searched.unreadable);
        let what = format_args!("{image}: {lost} could not be read, and were not searched");
        complaints.report(Exit::CouldNot, what);
    }
    if searched.left_out > 0 {
        let count = searched.left_out;
        let what = format_args!("{image}: {count} more superblocks were left out");
        complaints.report(Exit::Incomplete, what);
    }
    let table = partition::read(&*whole).unwrap_or_default().partitions;
    let rows = searched.found.iter();
    let found: Vec<Row<'_>> = rows
        .map(|found| Row::of(found, &table, whole.len()))
        .collect();
    match args.json {
        true => print_json(args, &found, out)?,
        false => print(&found, out)?,
    }
    Ok(match found.is_empty() {
        true => complaints.exit().max(Exit::Incomplete),
        false => complaints.exit(),
    })
}

/// What is said of a file system.
struct Row<'a> {
    found: &'a FoundFs,
    /// The partition that begins where it does.
    partition: Option<u32>,
    /// Bytes that the image lacks.
    missing: u64,
}

impl<'a> Row<'a> {
    fn of(found: &'a FoundFs, table: &[Partition], len: u64) -> Self {
        let here = table
            .iter()
            .find(|partition| partition.start == found.offset);
        Self {
            found,
            partition: here.map(|partition| partition.number),
            missing: found.end().saturating_sub(len),
        }
    }

    fn superblock(&self) -> &SuperBlock {
        &self.found.superblock
    }

    fn state(&self) -> String {
        match (self.found.group.0, self.found.has_root) {
            (0, true) => state(self.superblock()),
            (0, false) => format!("{}, no root directory", state(self.superblock())),
            (group, _) => format!("superblock lost, found by the backup in group {group}"),
        }
    }

    fn label(&self) -> String {
        let name = &self.superblock().s_volume_name;
        escaped(name.split(|&byte| byte == 0).next().unwrap_or_default())
    }
}

fn print(rows: &[Row<'_>], out: &mut Output) -> Result<(), Failure> {
    if rows.is_empty() {
        writeln!(out, "no ext2, ext3 or ext4 file system was found")?;
    }
    for row in rows {
        let found = row.found;
        write!(
            out,
            "offset {}: {}, UUID {}",
            found.offset,
            size_text(found.geometry.len_bytes()),
            uuid_text(&row.superblock().s_uuid)
        )?;
        match row.label() {
            label if label.is_empty() => {}
            label => write!(out, ", label {label}")?,
        }
        write!(out, ", {}", row.state())?;
        if let Some(number) = row.partition {
            write!(out, ", partition {number}")?;
        }
        if row.missing > 0 {
            write!(out, ", cut off: {} are missing", size_text(row.missing))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn print_json(args: &ScanArgs, rows: &[Row<'_>], out: &mut Output) -> Result<(), Failure> {
    let mut json = Json::new();
    json.open_object();
    json.key("image").text(bytes(args.image.as_os_str()));
    json.key("file_systems").open_array();
    for row in rows {
        let found = row.found;
        json.open_object();
        json.key("offset").number(found.offset);
        json.key("size").number(found.geometry.len_bytes());
        json.key("missing").number(row.missing);
        json.key("block_size")
            .number(found.geometry.block_size.bytes());
        json.key("uuid")
            .string(&uuid_text(&row.superblock().s_uuid));
        json.key("label").string(&row.label());
        json.key("state").string(&row.state());
        json.key("group").number(found.group.0);
        json.key("backups").number(found.backups);
        json.key("root").value(found.has_root);
        if let Some(number) = row.partition {
            json.key("partition").number(number);
        }
        json.close_object();
    }
    json.close_array();
    json.close_object();
    json.end_line();
    Ok(out.write_all(json.as_bytes())?)
}
