//! Asks on a terminal whether something may be overwritten; without a terminal the command decides.

use std::fs;
use std::io::{BufRead, IsTerminal, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

use uext4_blockdev::partition::{Place, Window};
use uext4_blockdev::{Access, BlockDevice, Error, FileDevice};

use crate::contents::is_zero;
use crate::device_failure::device_failure;
use crate::ending::after_ending;
use crate::failure::{Exit, Failure};
use crate::identify::held;
use crate::messages;

/// Makes sure that a file or device at `image`, if there is one, may be replaced, as a whole or the
/// part of the disk that `place` names: it holds nothing, or the user says so.
///
/// # Errors
/// Exit 8 if it is in use, or if there is no terminal to ask; 1 if the answer is no.
pub fn may_replace(image: &Path, place: Option<&Place>) -> Result<(), Failure> {
    // What is not there, or is neither of the two, is for the command to report.
    let Ok(kind) = fs::metadata(image).map(|found| found.file_type()) else {
        return Ok(());
    };
    if !(kind.is_file() || kind.is_block_device()) {
        return Ok(());
    }
    let failed = |error| device_failure(image, &error);
    let device = after_ending(image, || {
        let device = FileDevice::open(image, Access::ReadOnly)?;
        device.claim()?;
        Ok(device)
    });
    let device = device.map_err(failed)?;
    let mut device: Arc<dyn BlockDevice> = Arc::new(device);
    if let Some(place) = place {
        let window = Window::find(&*device, place).map_err(failed)?;
        device = match window.open(device) {
            Ok(part) => Arc::new(part),
            // Nothing is there yet.
            Err(Error::OutOfRange { .. }) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
    }
    let found = held(&device).map_err(failed)?;
    // The whole of a disk would take too long to read.
    let is_empty =
        found.is_empty && (kind.is_block_device() || is_zero(&*device).map_err(failed)?);
    if is_empty {
        return Ok(());
    }
    // Only the beginning and the end were looked at for that.
    let what = match found.is_empty {
        true => "data between zeroes",
        false => &found.what,
    };
    match ask(image, what)? {
        Some(true) => Ok(()),
        Some(false) => Err(refused(image)),
        None => {
            let what = format_args!(
                "{} holds {what}, and there is no terminal to ask whether to replace it",
                image.display(),
            );
            Err(Failure::new(Exit::CouldNot, what)
                .hint("replace it without a question: `--force`, with mkfs `-F`"))
        }
    }
}

/// Makes sure that what is known on a device may be overwritten. Without a terminal it may, as with
/// mke2fs.
///
/// # Errors
/// Exit 1 if the answer is no, 8 if the device cannot be read.
pub fn may_format(image: &Path, device: &Arc<dyn BlockDevice>) -> Result<(), Failure> {
    let found = held(device).map_err(|error| device_failure(image, &error))?;
    if found.is_known && ask(image, &found.what)? == Some(false) {
        return Err(refused(image));
    }
    Ok(())
}

/// Warns of a name that stands for another format than that of a raw image.
pub fn warn_of_name(image: &Path) {
    let extension = image
        .extension()
        .map(|extension| extension.to_ascii_lowercase());
    let format = match extension.as_ref().and_then(|extension| extension.to_str()) {
        Some("qcow2") => "qcow2",
        Some("vmdk") => "vmdk",
        Some("vdi") => "vdi",
        Some("vhd") => "vpc",
        Some("vhdx") => "vhdx",
        _ => return,
    };
    let image = image.display();
    messages::warning(format_args!(
        "{image}: becomes a raw image, whatever its name is; afterwards `qemu-img convert -f raw \
         -O {format} {image} OTHER` converts it"
    ));
}

fn refused(image: &Path) -> Failure {
    let what = format_args!("{}: left as it is", image.display());
    Failure::new(Exit::Incomplete, what)
}

/// The answer to whether `image`, which holds `what`, is to be overwritten; `None` without a
/// terminal.
fn ask(image: &Path, what: &str) -> Result<Option<bool>, Failure> {
    let (stdin, mut stderr) = (std::io::stdin(), std::io::stderr());
    if !stdin.is_terminal() || !stderr.is_terminal() {
        return Ok(None);
    }
    write!(
        stderr,
        "{} holds {what}. Overwrite it? [y/N] ",
        image.display()
    )?;
    stderr.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    let answer = answer.trim();
    let yes = ["y", "yes"];
    Ok(Some(yes.iter().any(|yes| answer.eq_ignore_ascii_case(yes))))
}
