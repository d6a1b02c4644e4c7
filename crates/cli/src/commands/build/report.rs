//! What was built, for programs, and its warnings.

use std::io::Write;
use std::path::Path;

use uext4_image::{Report, Warnings};

use super::finish_args;
use crate::commands::{Output, bytes};
use crate::failure::{Exit, Failure};
use crate::json::Json;
use crate::messages;
use crate::show::{escaped, uuid_text};

/// Says what of the sources is not in the image: the first warnings one by one.
pub fn warn(warnings: &Warnings) {
    for warning in &warnings.shown {
        messages::warning(escaped(warning.as_bytes()));
    }
    if warnings.more > 0 {
        messages::warning(format_args!("{} more like these", warnings.more));
    }
}

/// Reports what was made, as one JSON object.
///
/// # Errors
/// Those of standard output.
pub fn print_json(image: &Path, report: &Report, out: &mut Output) -> Result<Exit, Failure> {
    warn(&report.warnings);
    let summary = &report.summary;
    let mut json = Json::new();
    json.open_object();
    json.key("image").text(bytes(image.as_os_str()));
    json.key("uuid").string(&uuid_text(&report.uuid));
    if let Some(hash) = &report.root_hash {
        json.key("root_hash").string(&hash.to_string());
    }
    if let Some(tree) = &report.hash_tree {
        finish_args::hash_tree(tree, &mut json);
    }
    json.key("size").number(report.image_bytes);
    json.key("block_size").number(report.block_size);
    json.key("blocks").number(summary.blocks);
    json.key("free_blocks").number(summary.free_blocks);
    json.key("inodes").number(summary.inodes);
    json.key("free_inodes").number(summary.free_inodes);
    json.key("entries").number(report.entries);
    json.key("content_bytes").number(report.content_bytes);
    json.key("seconds").open_object();
    for (phase, time) in &report.elapsed {
        json.key(&format!("{phase:?}").to_lowercase())
            .decimal(time.as_secs_f64());
    }
    json.close_object();
    json.key("warnings").open_array();
    report
        .warnings
        .shown
        .iter()
        .for_each(|warning| json.string(warning));
    json.close_array();
    json.close_object();
    json.end_line();
    out.write_all(json.as_bytes())?;
    Ok(Exit::Success)
}
