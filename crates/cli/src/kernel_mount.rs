//! Images that the kernel has mounted: they are read as they are on the device, which changes
//! meanwhile.

use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fs, thread};

use uext4_blockdev::attached::{self, KernelMount};

use crate::messages;

/// Stands for the directory of a mount in another mount namespace.
pub const ELSEWHERE: &str = "a directory of another mount namespace";

/// How often a file system is opened that changes while it is.
const ATTEMPTS: u32 = 5;
/// Between two of them.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(100);

/// Images that this process reads and the kernel writes, with where they are mounted.
static READ: Mutex<Vec<(PathBuf, String)>> = Mutex::new(Vec::new());

/// Where the kernel has the image mounted and may write: what is read of it changes meanwhile.
pub fn written_at(image: &Path) -> Option<String> {
    let found = fs::metadata(image).ok()?;
    let mount = match found.file_type().is_block_device() {
        true => attached::mount_of(found.rdev()),
        false => {
            let device = attached::loop_device(image)?;
            attached::mount_of(fs::metadata(device).ok()?.rdev())
        }
    };
    let KernelMount { dir, writes } = mount?;
    writes.then(|| dir.unwrap_or_else(|| ELSEWHERE.to_owned()))
}

/// Warns once that an image that is read is mounted by the kernel.
pub fn warn(image: &Path) {
    let mut all = READ.lock().unwrap_or_else(PoisonError::into_inner);
    if all.iter().any(|(known, _)| known == image) {
        return;
    }
    if let Some(dir) = written_at(image) {
        messages::warning(format_args!(
            "{}: is mounted by the kernel at {dir}; what is read may change meanwhile, and what is \
             found may be wrong",
            image.display()
        ));
        all.push((image.to_owned(), dir));
    }
}

/// The first image that this process reads and the kernel writes, with where it is mounted.
fn known() -> Option<(PathBuf, String)> {
    let all = READ.lock().unwrap_or_else(PoisonError::into_inner);
    all.first().cloned()
}

/// Whether what looks like damage may be none: the kernel writes what this process reads.
pub fn explains_damage() -> bool {
    known().is_some()
}

/// What to say of what looks like damage in an image that the kernel writes meanwhile, and what to
/// do; `None` where it writes none.
pub fn said(damage: &dyn std::fmt::Display) -> Option<(String, String)> {
    let (image, dir) = known()?;
    let image = image.display();
    let damage = damage.to_string();
    let damage = damage.strip_prefix("damaged: ").unwrap_or(&damage);
    let what = format!(
        "what was read does not fit together ({damage}): {image} is mounted by the kernel at \
         {dir}, and changed meanwhile"
    );
    let hint = match dir == ELSEWHERE {
        true => "try again; or stop all writing meanwhile, with fsfreeze(8) where it is mounted"
            .to_owned(),
        false => format!("try again; or stop all writing meanwhile: `fsfreeze -f {dir}`"),
    };
    Some((what, hint))
}

/// Opens a file system; again, where the kernel changes it while it is opened and what was read
/// does not fit together.
///
/// # Errors
/// Those of the last attempt.
pub fn opened<T>(mut open: impl FnMut() -> uext4::Result<T>) -> uext4::Result<T> {
    for _ in 1..ATTEMPTS {
        match open() {
            Err(uext4::Error::Corrupt(_)) if explains_damage() => thread::sleep(PAUSE),
            opened => return opened,
        }
    }
    open()
}
