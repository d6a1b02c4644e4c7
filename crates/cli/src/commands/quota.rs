//! `quota`: usage and limits of users, groups and projects, in the terms of repquota and setquota.

use std::io::Write;
use std::path::Path;

use clap::{ArgGroup, Args};
use uext4::quota::{Quota, QuotaKind, QuotaLimits};
use uext4::{Error, Image};
use uext4_mkfs::Size;

use super::{Output, bytes, change};
use crate::args::{ImageArgs, WriteArgs, parse_suffixed};
use crate::failure::{Exit, Failure};
use crate::json::Json;
use crate::open;
use crate::show::time_short;

/// Report the quotas of users, groups and projects, or set limits
///
/// Without -u, -g and -P, reports all kinds that the file system counts. In each line, two signs
/// show whether the soft limits of space and of inodes are exceeded (+) or not (-). Space is in
/// KiB.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("kinds").multiple(true))]
#[command(after_help = "Examples:
  uext4 quota disk.img
  uext4 quota -P --json disk.img
  uext4 quota -u --set 1000 900M 1G 0 0 disk.img     user 1000: a GiB at most

`tune2fs -O quota IMAGE` makes a file system count users and groups.")]
pub struct QuotaArgs {
    #[command(flatten)]
    image: WriteArgs,
    /// Report users
    #[arg(short, long, group = "kinds")]
    user: bool,
    /// Report groups
    #[arg(short, long, group = "kinds")]
    group: bool,
    /// Report projects
    #[arg(short = 'P', long, group = "kinds")]
    project: bool,
    /// Set the limits of an id: space in KiB, or with a unit (K, M, G, T); 0 means no limit
    #[arg(long, num_args = 5, requires = "kinds", value_parser = parse_suffixed)]
    #[arg(value_names = ["ID", "BLOCK-SOFT", "BLOCK-HARD", "INODE-SOFT", "INODE-HARD"])]
    set: Vec<Size>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The quotas of a kind that is counted.
struct Report {
    kind: QuotaKind,
    quotas: Vec<Quota>,
}

/// Reports, or sets limits.
pub fn run(args: &QuotaArgs, out: &mut Output) -> Result<Exit, Failure> {
    let image = &args.image.place.image;
    if let [id, limits @ ..] = &args.set[..] {
        let set = u32::try_from(id.bytes_plain()).ok().zip(limits_of(limits));
        let Some((id, limits)) = set else {
            return Err(Failure::new(Exit::Usage, "--set: a number is too large"));
        };
        let fs = open::open_tree(&args.image)?;
        let mut kinds = args.kinds().into_iter();
        let done = kinds.try_for_each(|kind| fs.set_quota(kind, id, limits));
        change::close_tree(&fs, image, done.map_err(|error| args.failure(&error)))?;
        return Ok(Exit::Success);
    }
    if !(args.image.options.is_empty() && args.image.trace.is_empty()) {
        let what = "--options and --trace are for changes: use --set";
        return Err(Failure::new(Exit::Usage, what));
    }
    let fs = open::open(&ImageArgs {
        place: args.image.place.clone(),
        superblock: None,
        no_replay: false,
    })?;
    let reports = args.reports(&fs).map_err(|error| args.failure(&error))?;
    match args.json {
        true => print_json(image, &reports, out)?,
        false => print(&reports, out)?,
    }
    Ok(Exit::Success)
}

impl QuotaArgs {
    /// The kinds that are named.
    fn kinds(&self) -> Vec<QuotaKind> {
        let all = [
            (self.user, QuotaKind::User),
            (self.group, QuotaKind::Group),
            (self.project, QuotaKind::Project),
        ];
        let named = all.into_iter().filter(|(is_named, _)| *is_named);
        named.map(|(_, kind)| kind).collect()
    }

    /// Reports on the kinds that are named, or on all that are counted.
    fn reports(&self, fs: &Image) -> uext4::Result<Vec<Report>> {
        let named = self.kinds();
        let report = |kind| fs.quotas(kind).map(|quotas| Report { kind, quotas });
        if !named.is_empty() {
            return named.into_iter().map(report).collect();
        }
        let all = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project].map(report);
        match all {
            // None is counted: say so of the first.
            [
                first @ Err(Error::Unsupported { .. }),
                Err(Error::Unsupported { .. }),
                Err(Error::Unsupported { .. }),
            ] => Ok(vec![first?]),
            all => {
                let is_counted =
                    |one: &uext4::Result<Report>| !matches!(one, Err(Error::Unsupported { .. }));
                all.into_iter().filter(is_counted).collect()
            }
        }
    }

    fn failure(&self, error: &Error) -> Failure {
        let failure = Failure::engine(self.image.place.image.display(), error);
        match error {
            Error::Unsupported { .. } => {
                failure.hint("`tune2fs -O quota IMAGE` makes it count users and groups")
            }
            _ => failure,
        }
    }
}

fn limits_of(limits: &[Size]) -> Option<QuotaLimits> {
    let [space_soft, space_hard, inodes_soft, inodes_hard] = limits else {
        return None;
    };
    Some(QuotaLimits {
        space_soft: space_soft.bytes(None)?,
        space_hard: space_hard.bytes(None)?,
        inodes_soft: inodes_soft.bytes_plain(),
        inodes_hard: inodes_hard.bytes_plain(),
    })
}

fn name(kind: QuotaKind) -> &'static str {
    match kind {
        QuotaKind::User => "user",
        QuotaKind::Group => "group",
        QuotaKind::Project => "project",
    }
}

fn print(reports: &[Report], out: &mut Output) -> Result<(), Failure> {
    let sign = |used: u64, soft: u64| if soft > 0 && used > soft { '+' } else { '-' };
    let grace = |end: u64| match end {
        0 => "-".to_owned(),
        end => time_short(end.cast_signed()),
    };
    for Report { kind, quotas } in reports {
        writeln!(
            out,
            "{:<13} {:>10} {:>10} {:>10} {:>19} {:>8} {:>8} {:>8} {:>19}",
            name(*kind),
            "KiB",
            "soft",
            "hard",
            "grace ends",
            "inodes",
            "soft",
            "hard",
            "grace ends"
        )?;
        for quota in quotas {
            let limits = &quota.limits;
            let signs = [
                sign(quota.space, limits.space_soft),
                sign(quota.inodes, limits.inodes_soft),
            ];
            write!(out, "{:>10} {}", quota.id, String::from_iter(signs))?;
            for bytes in [quota.space, limits.space_soft, limits.space_hard] {
                write!(out, " {:>10}", bytes.div_ceil(1024))?;
            }
            write!(out, " {:>19}", grace(quota.space_grace_end))?;
            for inodes in [quota.inodes, limits.inodes_soft, limits.inodes_hard] {
                write!(out, " {inodes:>8}")?;
            }
            writeln!(out, " {:>19}", grace(quota.inodes_grace_end))?;
        }
    }
    Ok(())
}

fn print_json(image: &Path, reports: &[Report], out: &mut Output) -> Result<(), Failure> {
    let mut json = Json::new();
    json.open_object();
    json.key("image").text(bytes(image.as_os_str()));
    for Report { kind, quotas } in reports {
        json.key(name(*kind)).open_array();
        for quota in quotas {
            json.open_object();
            json.key("id").number(quota.id);
            for (key, value) in [
                ("space", quota.space),
                ("space_soft", quota.limits.space_soft),
                ("space_hard", quota.limits.space_hard),
                ("space_grace_end", quota.space_grace_end),
                ("inodes", quota.inodes),
                ("inodes_soft", quota.limits.inodes_soft),
                ("inodes_hard", quota.limits.inodes_hard),
                ("inodes_grace_end", quota.inodes_grace_end),
            ] {
                json.key(key).number(value);
            }
            json.close_object();
        }
        json.close_array();
    }
    json.close_object();
    json.end_line();
    out.write_all(json.as_bytes())?;
    Ok(())
}
