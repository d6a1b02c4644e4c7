//! `man`: manual pages and examples of systemd's, made of the command's own definition.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::{Args, Command};

use super::{mount_help, output};
use crate::failure::{Exit, Failure};

/// A unit for an image that is mounted at boot.
const MOUNT_UNIT: &str = include_str!("../../../../contrib/srv-image.mount");
/// A unit for a user's mount.
const SERVICE_UNIT: &str = include_str!("../../../../contrib/uext4@.service");

/// Write manual pages of all commands, and examples of systemd units, into a directory
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Where: made if it is not there
    #[arg(value_name = "DIR")]
    dir: PathBuf,
}

/// Writes those of the whole command line.
pub fn run(args: &ManArgs, command_line: Command) -> Result<Exit, Failure> {
    let failed = |error| Failure::io(args.dir.display(), &error);
    fs::create_dir_all(&args.dir).map_err(failed)?;
    clap_mangen::generate_to(command_line, &args.dir).map_err(failed)?;
    add_mount_options(&args.dir.join("uext4-mount.1")).map_err(failed)?;
    for (name, text) in [
        ("srv-image.mount", MOUNT_UNIT),
        ("uext4@.service", SERVICE_UNIT),
    ] {
        fs::write(args.dir.join(name), text).map_err(failed)?;
    }
    Ok(Exit::Success)
}

/// Adds what `mount --help-options` prints to a page.
fn add_mount_options(page: &Path) -> io::Result<()> {
    let page = fs::File::options().append(true).open(page)?;
    let mut out = output(Box::new(page));
    writeln!(out, ".SH MOUNT OPTIONS\n.nf")?;
    mount_help::print(&mut out)?;
    writeln!(out, ".fi")?;
    out.flush()
}
