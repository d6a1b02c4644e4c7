//! What one who comes without a path may do: what the descriptor of the image allows that it shows.
//!
//! An address without a path is reached from every mount namespace, so also by a container or a
//! service of the same user that can see neither image nor mount. Who has the image open could have
//! read it, or written it, before it was mounted.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{OFlags, fcntl_getfl};
use uext4_fuse::addresses;
use uext4_remote::rights::Rights;

/// What may be done by one who shows this, when the mount has this image; `None` if it is another
/// file, or the descriptor cannot be read from.
pub fn rights(image: &File, shown: OwnedFd) -> Option<Rights> {
    let flags = fcntl_getfl(&shown).ok()?;
    // No right to the file is needed for a descriptor that only stands for its place.
    if flags.contains(OFlags::PATH) {
        return None;
    }
    let (own, shown) = (image.metadata().ok()?, File::from(shown).metadata().ok()?);
    let is_it = addresses::are_same(&own, &shown);
    match flags & OFlags::RWMODE {
        OFlags::RDWR if is_it => Some(Rights::All),
        OFlags::RDONLY if is_it => Some(Rights::Snapshots),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    #[test]
    fn rights_are_those_of_the_descriptor_that_is_shown() {
        let dir = tempfile::tempdir().unwrap();
        let [image, link, other] = ["image", "link", "other"].map(|name| dir.path().join(name));
        for file in [&image, &other] {
            std::fs::write(file, "").unwrap();
        }
        std::fs::hard_link(&image, &link).unwrap();
        let own = File::open(&image).unwrap();
        let shown = |options: &mut std::fs::OpenOptions, path| {
            rights(&own, options.open(path).unwrap().into())
        };
        let place = OFlags::PATH.bits().cast_signed();
        for path in [&image, &link] {
            let both = shown(File::options().read(true).write(true), path);
            assert_eq!(both, Some(Rights::All));
            let reading = shown(File::options().read(true), path);
            assert_eq!(reading, Some(Rights::Snapshots));
            assert_eq!(shown(File::options().write(true), path), None);
            assert_eq!(
                shown(File::options().read(true).custom_flags(place), path),
                None
            );
        }
        assert_eq!(shown(File::options().read(true).write(true), &other), None);
        assert_eq!(shown(File::options().read(true), &"/dev/null".into()), None);
    }
}
