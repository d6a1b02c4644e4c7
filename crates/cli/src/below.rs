//! Everything below a directory of a file system opened for writing.

use uext4::{Damage, Error, FileType, Ino, Listed};

use uext4_image::walk::{InodeSet, joined};
use uext4_remote::Node;

/// Shows `f` an inode, and if it is a directory everything below it, parents first, each with its
/// path. Names that go away meanwhile are left out. `failed` gets what cannot be read, and
/// directories met a second time: they have two names, or lie in themselves.
pub fn each_below(
    top: &Node,
    path: &[u8],
    f: &mut dyn FnMut(&Node, &[u8]),
    failed: &mut dyn FnMut(&[u8], &Error),
) {
    f(top, path);
    let mut seen = InodeSet::default();
    seen.insert(top.ino());
    let mut dirs = vec![(top.clone(), path.to_vec())];
    while let Some((dir, path)) = dirs.pop() {
        match dir.view() {
            Ok(view) if view.file_type() == FileType::Directory => {}
            Ok(_) => continue,
            Err(error) => {
                failed(&path, &error);
                continue;
            }
        }
        let mut names = Vec::new();
        let listed = dir.list(0, &mut |&Listed { name, .. }| {
            if !matches!(name, b"." | b"..") {
                names.push(name.to_vec());
            }
            true
        });
        if let Err(error) = listed {
            failed(&path, &error);
        }
        names.sort_unstable();
        let mut inner = Vec::new();
        for name in names {
            let path = joined(&path, &name);
            let found = dir.lookup(&name);
            let found = found.and_then(|inode| Ok((inode.view()?.file_type(), inode)));
            match found {
                Ok((file_type, inode)) => {
                    let is_dir = file_type == FileType::Directory;
                    if is_dir && !seen.insert(inode.ino()) {
                        failed(&path, &met_again(inode.ino()));
                        continue;
                    }
                    f(&inode, &path);
                    if is_dir {
                        inner.push((inode, path));
                    }
                }
                Err(Error::NotFound) => {}
                Err(error) => failed(&path, &error),
            }
        }
        dirs.extend(inner.into_iter().rev());
    }
}

fn met_again(ino: Ino) -> Error {
    Error::Corrupt(Damage::Directory {
        ino,
        why: "it has a second name, or is inside itself",
    })
}
