//! What `build` makes of the finished file system: a disk image, a verified one, a stream.

use std::env;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use clap::Args;
use uext4_image::finish::{FinishOptions, GptOptions, HashTree, Salt};
use uext4_image::gpt::PartitionType;
use uext4_image::verity::{BLOCK, HASH_ALGORITHM, RootHash};
use uext4_image::{Error, Output};
use uext4_mkfs::parse_features;

use crate::failure::{Exit, Failure};
use crate::json::Json;
use crate::show::uuid_text;

/// What is put around the file system.
#[derive(Args, Debug, Default)]
pub struct FinishArgs {
    /// Make a disk image: a GPT with the file system in a partition
    #[arg(long)]
    gpt: bool,
    /// Type of the partition: linux, home, srv, tmp, var, root-ARCH or usr-ARCH, such as
    /// root-x86-64, or a GUID [default: linux]
    #[arg(long, value_name = "TYPE", requires = "gpt")]
    gpt_type: Option<PartitionType>,
    /// Name of the partition, at most 36 characters [default: that of its type]
    #[arg(long, value_name = "NAME", requires = "gpt")]
    gpt_name: Option<String>,
    /// Add a dm-verity hash tree, by which the kernel verifies what it reads; with --gpt in a
    /// partition of its own. The root hash is printed
    #[arg(long)]
    verity: bool,
    /// Salt of the hash tree in hexadecimal digits, or none [default: follows from the UUID]
    #[arg(long, value_name = "HEX", requires = "verity", value_parser = parse_salt)]
    verity_salt: Option<Salt>,
    /// Write the root hash to FILE, too, as veritysetup --root-hash-file reads it
    #[arg(long, value_name = "FILE", requires = "verity")]
    root_hash: Option<PathBuf>,
    /// For storage that several hosts reach: none mounts it while another one has it mounted (the
    /// feature mmp)
    #[arg(long)]
    for_network: bool,
}

impl FinishArgs {
    /// What is put around the file system.
    pub fn options(&self) -> FinishOptions {
        let gpt = self.gpt.then(|| GptOptions {
            kind: self.gpt_type.unwrap_or(PartitionType::LINUX),
            name: self.gpt_name.clone(),
        });
        let salt = || self.verity_salt.clone().unwrap_or(Salt::FromUuid);
        let verity = self.verity.then(salt);
        FinishOptions { gpt, verity }
    }

    /// Adds the features that the flags ask for.
    ///
    /// # Errors
    /// Exit 2 if mkfs does not know them.
    pub fn add_features(&self, options: &mut uext4_mkfs::Options) -> Result<(), Failure> {
        if self.for_network {
            let mmp = parse_features("mmp");
            let mmp = mmp.map_err(|error| Failure::new(Exit::Usage, error))?;
            options.features.extend(mmp);
        }
        Ok(())
    }

    /// Writes the root hash to the file that was named for it, if any.
    ///
    /// # Errors
    /// Exit 8.
    pub fn write_root_hash(&self, hash: Option<&RootHash>) -> Result<(), Failure> {
        let (Some(path), Some(hash)) = (&self.root_hash, hash) else {
            return Ok(());
        };
        let written = fs::write(path, hash.to_string());
        written.map_err(|error| {
            let what = format_args!("{}: cannot write the root hash: {error}", path.display());
            Failure::new(Exit::CouldNot, what)
        })
    }
}

/// All that `veritysetup open` and a table of the device mapper need, under the names of
/// `veritysetup dump`.
pub fn hash_tree(tree: &HashTree, json: &mut Json) {
    json.key("verity").open_object();
    json.key("root_hash").string(&tree.root_hash.to_string());
    json.key("salt").string(&tree.salt);
    json.key("uuid").string(&uuid_text(&tree.uuid));
    json.key("hash_type").number(1);
    json.key("hash_algorithm").string(HASH_ALGORITHM);
    json.key("data_blocks").number(tree.data_blocks);
    json.key("data_block_size").number(BLOCK);
    json.key("hash_block_size").number(BLOCK);
    json.key("data_offset").number(tree.data_offset);
    json.key("hash_offset").number(tree.hash_offset);
    json.close_object();
}

/// Hexadecimal digits, or "none".
fn parse_salt(text: &str) -> Result<Salt, String> {
    match text {
        "none" | "-" => Ok(Salt::Given(Vec::new())),
        _ => match hex::decode(text) {
            Ok(salt) if !salt.is_empty() && salt.len() <= 256 => Ok(Salt::Given(salt)),
            _ => {
                Err("a salt has 1 to 256 bytes, each of two hexadecimal digits; or is none".into())
            }
        },
    }
}

/// True if `image` stands for standard output.
pub fn is_stream(image: &Path) -> bool {
    image.as_os_str() == "-"
}

/// Standard output as the place of an image, which is made in `TMPDIR` or `/var/tmp`.
///
/// # Errors
/// As [`Output::to_stream`].
pub fn standard_output() -> Result<Output, Error> {
    let failed = |source| Error::Output {
        path: PathBuf::from("-"),
        source,
    };
    let stdout = io::stdout().as_fd().try_clone_to_owned();
    let directory = env::var_os("TMPDIR").filter(|dir| !dir.is_empty());
    let directory = directory.map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
    Output::to_stream(File::from(stdout.map_err(failed)?), &directory)
}
