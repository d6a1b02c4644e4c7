//! Whether a library that this program was started with for the sake of faked files, as `fakeroot`
//! and `pseudo` preload it, is there: a static program, or one of another architecture, has none.
//! Such a library may need anything, so that there is no sandbox with it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::messages;

/// What the names of such libraries begin with.
const LIBRARIES: [&str; 2] = ["libfakeroot", "libpseudo"];

/// Warns if owners, devices and attributes of files would not be those that the user sees there.
pub fn warn_if_absent() {
    let Some(library) = library() else {
        return;
    };
    let maps = std::fs::read_to_string("/proc/self/maps");
    if maps.is_ok_and(|maps| !maps.contains(library)) {
        messages::warning(format_args!(
            "{library} is not loaded into this program, as into any that is linked statically: \
             owners, devices and attributes are those of the files, not the faked ones; \
             `make build` makes a program that loads it"
        ));
    }
}

/// The one that this program was started with, for it alone or, by the system's list, as every
/// other.
pub fn library() -> Option<&'static str> {
    let own = std::env::var_os("LD_PRELOAD").and_then(|list| listed(&list));
    own.or_else(|| {
        listed(OsStr::from_bytes(
            &std::fs::read("/etc/ld.so.preload").ok()?,
        ))
    })
}

/// The one that a list of libraries names.
fn listed(list: &OsStr) -> Option<&'static str> {
    let is_between = |byte: &u8| *byte == b':' || byte.is_ascii_whitespace();
    let mut files = list.as_bytes().split(is_between);
    files.find_map(|file| {
        let name = file.rsplit(|&byte| byte == b'/').next()?;
        LIBRARIES
            .into_iter()
            .find(|l| name.starts_with(l.as_bytes()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_libraries_that_fake_files_are_found() {
        let found = |list: &str| listed(OsStr::new(list));
        assert_eq!(
            found("/usr/lib/libeatmydata.so:/x/libfakeroot-sysv.so"),
            Some("libfakeroot")
        );
        assert_eq!(found("libfakeroot.so libjemalloc.so"), Some("libfakeroot"));
        assert_eq!(found("/lib/libx.so\nlibfakeroot.so\n"), Some("libfakeroot"));
        assert_eq!(
            found("/sysroot/lib/pseudo/lib64/libpseudo.so"),
            Some("libpseudo")
        );
        assert_eq!(found("/libfakeroot/libjemalloc.so"), None);
        assert_eq!(found(""), None);
    }
}
