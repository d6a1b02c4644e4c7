//! `mount`: any image, through FUSE, with any design of `lab/policies`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use uext4::tuning::Policies;
use uext4_lab_policies::bh_lru::{self, Lrus, Scope};
use uext4_lab_policies::extent_status;
use uext4_lab_policies::mballoc::{Design, Tunables};
use uext4_lab_policies::writeback::Mode;

use crate::experiment::Failure;
use crate::mbcache;

const SUBSYSTEMS: &str = "bh-lru, extent-status, mballoc, mbcache or writeback";

/// Arguments of `mount`.
#[derive(Debug, Args)]
pub struct Mount {
    /// A design: mballoc=table+linear, writeback=mainline, ...; may be given for each subsystem.
    #[arg(long = "policy", value_name = "SUBSYSTEM=DESIGN")]
    pub policies: Vec<String>,
    /// Options, as those of `uext4 mount`.
    #[arg(short = 'o', value_name = "OPTIONS")]
    pub options: Vec<String>,
    /// Prints trace events on standard error, by name or by subsystem, as `uext4 mount --trace`.
    #[arg(long, value_name = "EVENT", value_delimiter = ',')]
    pub trace: Vec<String>,
    /// The image.
    #[arg(value_name = "IMAGE")]
    pub image: PathBuf,
    /// Where: an empty directory.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

/// Mounts, and serves until it is unmounted.
///
/// # Errors
/// [`Failure::Usage`] for a subsystem or a design that there is not.
pub fn run(mount: &Mount) -> Result<ExitCode, Failure> {
    let mut policies = Policies::default();
    for choice in &mount.policies {
        choose(&mut policies, choice)
            .map_err(|why| Failure::Usage(format!("--policy {choice}: {why}")))?;
    }
    let (image, dir) = (mount.image.clone(), mount.dir.clone());
    Ok(uext4_cli::mount(
        image,
        dir,
        mount.options.clone(),
        mount.trace.clone(),
        policies,
    ))
}

/// Sets one design; that of the product is `None` where it has no object of its own.
fn choose(policies: &mut Policies, choice: &str) -> Result<(), String> {
    let Some((subsystem, design)) = choice.split_once('=') else {
        return Err(format!(
            "must be SUBSYSTEM=DESIGN; the subsystems are {SUBSYSTEMS}"
        ));
    };
    let name = match subsystem {
        "bh-lru" => &mut policies.designs.bh_lru,
        "extent-status" => &mut policies.designs.extent_status,
        "mballoc" => &mut policies.designs.mballoc,
        "mbcache" => &mut policies.designs.mbcache,
        "writeback" => &mut policies.designs.writeback,
        _ => return Err(format!("no such subsystem: {SUBSYSTEMS}")),
    };
    design.clone_into(name);
    match subsystem {
        "bh-lru" => {
            // As in the kernel: one for each processor.
            let options = bh_lru::Options::parse(design, Scope::Core).map_err(text)?;
            let is_shipped =
                options == bh_lru::Options::parse("recent", Scope::Core).map_err(text)?;
            policies.bh_lru = (!is_shipped).then(|| Arc::new(Lrus::new(options)) as _);
        }
        "extent-status" => {
            let policy: extent_status::Policy = design.parse().map_err(text)?;
            policies.extent_status = Some(policy.shrinker(extent_status::Options::default()));
        }
        "mballoc" => {
            let design: Design = design.parse().map_err(text)?;
            policies.mballoc = design.make(Tunables::default()).policies;
        }
        "mbcache" => {
            let indexes = mbcache::indexes(design).map_err(text)?;
            policies.xattr_blocks = indexes.blocks.map(|index| index as _);
            policies.xattr_values = indexes.values.map(|index| index as _);
        }
        "writeback" => policies.throttle = design.parse::<Mode>().map_err(text)?.policy(),
        _ => return Err(format!("no such subsystem: {SUBSYSTEMS}")),
    }
    Ok(())
}

fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}
