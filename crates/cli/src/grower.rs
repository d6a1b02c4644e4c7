//! What a mount's daemon does where `grow` is given what it has mounted.

use uext4::Volume;
use uext4_remote::grower::Grower;
use uext4_remote::refusal::{Cause, Refusal};
use uext4_remote::wire::{Grown, Growth};
use uext4_resize::{Error, Size, grow_mounted};

/// What a daemon grows its file system with.
#[derive(Clone, Copy, Debug)]
pub struct Resize;

impl Grower for Resize {
    fn grow(&self, fs: &Volume, growth: Growth) -> Result<Grown, Refusal> {
        let size = match growth {
            Growth::To(bytes) => Size::Bytes(bytes),
            Growth::By(more) => Size::More(more),
            Growth::Device => Size::Device,
        };
        let resized = grow_mounted(fs, size).map_err(|error| refusal(&error))?;
        Ok(Grown {
            before: resized.before,
            after: resized.after,
            block_size: resized.block_size,
        })
    }
}

/// What the command gets, which prints it as it prints an error of its own.
fn refusal(error: &Error) -> Refusal {
    let cause = match error {
        Error::FileSystem(error) => return error.into(),
        Error::DeviceTooSmall { .. } => Cause::DeviceTooSmall,
        Error::Unsound { .. } => Cause::Unsound,
        Error::Device(_) | Error::Journal(_) => Cause::FileSystem,
        _ => Cause::Limit,
    };
    Refusal {
        cause,
        message: error.to_string(),
    }
}
