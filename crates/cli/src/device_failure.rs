//! Why an image or a device cannot be used, and what to do.

use std::io::ErrorKind::{NotFound, PermissionDenied, ResourceBusy};
use std::path::Path;

use uext4_blockdev::{Error as BlockError, attached, host};

use crate::failure::{DROP_VERITY, Exit, Failure};
use crate::show::escaped;

/// Why a device cannot be used, and what to do.
pub fn device_failure(image: &Path, error: &BlockError) -> Failure {
    let of_image = |exit| Failure::new(exit, format_args!("{}: {error}", image.display()));
    match error {
        // They name the path themselves.
        BlockError::Open { source, .. } if source.kind() == PermissionDenied => {
            Failure::new(Exit::Denied, error)
        }
        BlockError::Open { source, .. } if source.kind() == ResourceBusy => {
            let failure = Failure::new(Exit::CouldNot, error);
            match attached::place_of(&image.to_string_lossy()) {
                Some((dir, _)) => failure.hint(format!(
                    "the kernel has it mounted at {dir}: `umount {dir}` first, or use it there"
                )),
                None => failure,
            }
        }
        BlockError::Open { source, .. } if source.kind() == NotFound => {
            let failure = Failure::new(Exit::CouldNot, error);
            match instead_of(&image.to_string_lossy()) {
                Some(step) => failure.hint(step),
                None => failure,
            }
        }
        BlockError::Open { .. } => Failure::new(Exit::CouldNot, error),
        // Not always the image: a source of one may be in use.
        BlockError::Locked { path } => {
            let failure = Failure::new(Exit::CouldNot, error);
            match uext4_fuse::addresses::place_of(path) {
                Ok(Some(dir)) => failure.hint(format!(
                    "it is mounted at {0}: `uext4 umount {0}` first, or use it there",
                    dir.display()
                )),
                _ => match host::lock_holder(path) {
                    Some(holder) => failure.hint(format!(
                        "process {} ({}) has it: wait until that has ended, or end it, and try again",
                        holder.pid, escaped(holder.name.as_bytes())
                    )),
                    None => failure.hint(
                        "wait until that has ended, or end it, and try again; where no process is \
                         to be seen, a mount that was detached may have it until its last user ends",
                    ),
                },
            }
        }
        BlockError::Attached { device, .. } if Path::new(device) == image => {
            Failure::new(Exit::CouldNot, error).hint("unmount it first, or use it there")
        }
        BlockError::Attached { device, .. } => Failure::new(Exit::CouldNot, error).hint(format!(
            "unmount it and run `losetup -d {device}`, or use {device} itself"
        )),
        BlockError::Verified { .. }
        | BlockError::VerifiedBoot { .. }
        | BlockError::ReadOnlyPartition { .. } => of_image(Exit::CouldNot).hint(DROP_VERITY),
        BlockError::InPartitionTable { .. } => of_image(Exit::CouldNot)
            .hint("give the byte where a partition begins, or --partition N"),
        BlockError::HiddenPartitions { .. } => of_image(Exit::Damaged).hint(
            "give the size of the file system, so that it ends before another partition; or \
             repair the table first, as with gdisk",
        ),
        BlockError::Overlap { .. } => {
            of_image(Exit::CouldNot).hint("give a size that ends before it, or another partition")
        }
        BlockError::Partition(_) => {
            of_image(Exit::Damaged).hint("say where the file system begins with --offset BYTES")
        }
        _ => of_image(Exit::CouldNot),
    }
}

/// What to do with something that is no name of a file.
fn instead_of(image: &str) -> Option<String> {
    if image == "-" {
        let step = "a pipe cannot be read at any place, as an image must be: store it first, \
                    `cat > disk.img`";
        return Some(step.to_owned());
    }
    let (scheme, rest) = image.split_once(':')?;
    Some(match scheme {
        "nbd" | "nbds" | "nbd+unix" => format!(
            "uext4 reads files and block devices: `qemu-nbd -c /dev/nbd0 {image}` makes a device of \
             it, `nbdfuse FILE {image}` a file"
        ),
        "oci" | "oci-archive" | "docker-archive" | "dir" | "docker" | "layer" => format!(
            "a container image has no file system yet: `uext4 build {image} -o disk.img` makes it"
        ),
        "ssh" | "sftp" => {
            "uext4 reads files and block devices: copy it, or mount its directory with sshfs"
                .to_owned()
        }
        "http" | "https" | "ftp" | "ftps" => format!(
            "uext4 reads files and block devices: `curl -O {image}` stores it, `nbdfuse FILE --command \
             nbdkit -s curl {image}` reads only what is asked for"
        ),
        _ if rest.starts_with("//") => {
            "uext4 reads files and block devices: copy it to a file first".to_owned()
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_what_to_do() {
        for (image, step) in [
            ("https://host/disk.img", "curl -O"),
            ("s3://bucket/disk.img", "copy it to a file first"),
            ("-", "store it first"),
            ("nbd://host/export", "qemu-nbd -c"),
            ("oci-archive:box.tar", "uext4 build oci-archive:box.tar"),
            ("docker://alpine", "uext4 build"),
        ] {
            assert!(instead_of(image).unwrap().contains(step), "{image}");
        }
        assert_eq!(instead_of("disk.img"), None);
        assert_eq!(instead_of("a:b"), None);
    }
}
