//! Operations of every kind on a damaged image that was opened for writing: used by the test of
//! hostile images and by the fuzzer. What an operation answers does not matter, that it answers
//! does.

use std::sync::Arc;

use uext4::data::Fallocate;
use uext4::data::WriteMode;
use uext4::tuning::Background;
use uext4::xattr::SetMode;
use uext4::{
    Creation, FollowLast, Ino, NewInode, OpenInode, OpenOptions, RenameMode, SetAttributes, Volume,
};
use uext4_blockdev::{BlockDevice, MemoryDevice, SystemClock};

use crate::exercise::{patch, seed_images};

/// Operations of a run, and inodes open at once, at most.
const OPERATIONS_MAX: usize = 64;
const OPEN_MAX: usize = 24;
/// Names and attributes that operations are about: of what the images hold, and new ones.
const NAMES: [&[u8]; 8] = [
    b"d",
    b"file",
    b"link",
    b"e",
    b"f",
    b"new",
    b"other new name",
    b"lost+found",
];
const XATTRS: [&[u8]; 4] = [
    b"user.big",
    b"user.a",
    b"trusted.b",
    b"system.posix_acl_access",
];

/// What the fuzzer's bytes say: the seed image, how many bytes of patches follow, the patches, and
/// operations.
pub fn exercise_bytes(bytes: &[u8]) {
    let [seed, len, rest @ ..] = bytes else {
        return;
    };
    let (patches, operations) = rest.split_at(rest.len().min((*len).into()));
    let seeds = seed_images();
    let mut image = seeds[usize::from(*seed) % seeds.len()].clone();
    patch(&mut image, patches);
    exercise_changes(Arc::new(MemoryDevice::from_bytes(image)), operations);
}

/// Opens the image for writing, and does what the bytes say: four are an operation.
pub fn exercise_changes(device: Arc<dyn BlockDevice>, operations: &[u8]) {
    let mut options = OpenOptions::default();
    options.memory_max = 1 << 20;
    options.pages_max = 1 << 20;
    options.background = Background::None;
    let Ok(fs) = Volume::open(device, Arc::new(SystemClock), &options) else {
        return;
    };
    let mut open: Vec<OpenInode> = (1..=16)
        .filter_map(|n| fs.open_inode(Ino(n)).ok())
        .collect();
    open.extend(fs.open_path(b"/d", FollowLast::Yes));
    open.extend(fs.open_path(b"/d/file", FollowLast::Yes));
    let operations = operations.chunks_exact(4).take(OPERATIONS_MAX);
    for operation in operations {
        let &[kind, target, one, two] = operation else {
            continue;
        };
        if open.is_empty() {
            break;
        }
        let at = usize::from(target) % open.len();
        let inode = open[at].clone();
        let choice = Choice {
            kind: kind / 4,
            one,
            two,
        };
        let made = match kind % 4 {
            0 => names(&fs, &inode, &open, choice),
            1 => data(&inode, &open, choice),
            2 => attributes(&inode, choice),
            _ => whole(&fs, choice.kind, &mut open, at),
        };
        if let Ok(Some(made)) = made
            && open.len() < OPEN_MAX
        {
            open.push(made);
        }
    }
    drop(open);
    _ = fs.close();
}

/// Which operation, and what it is about.
#[derive(Clone, Copy)]
struct Choice {
    kind: u8,
    one: u8,
    two: u8,
}

type Made = uext4::Result<Option<OpenInode>>;

fn names(fs: &Volume, dir: &OpenInode, open: &[OpenInode], choice: Choice) -> Made {
    let Choice { kind, one, two } = choice;
    let name = NAMES[usize::from(one) % NAMES.len()];
    let new = NAMES[usize::from(two) % NAMES.len()];
    let other = &open[usize::from(two) % open.len()];
    let creation = Creation {
        mode: 0o755,
        ..Creation::default()
    };
    let mode = match two >> 6 {
        0 => RenameMode::Replace,
        1 => RenameMode::NoReplace,
        2 => RenameMode::Exchange,
        _ => RenameMode::Whiteout(Creation::default()),
    };
    match kind % 10 {
        0 => return dir.create(name, NewInode::File, &creation).map(Some),
        1 => return dir.create(name, NewInode::Directory, &creation).map(Some),
        2 => return dir.create_unnamed(NewInode::File, &creation).map(Some),
        3 => other.link(dir, name)?,
        4 => dir.unlink(name)?,
        5 => dir.rmdir(name)?,
        6 => dir.rename(name, other, new, mode)?,
        7 => return dir.lookup(name).map(Some),
        8 => dir.list(u64::from(one) << 8, &mut |_| true)?,
        _ => return fs.open_inode(Ino(one.into())).map(Some),
    }
    Ok(None)
}

fn data(file: &OpenInode, open: &[OpenInode], choice: Choice) -> Made {
    let Choice { kind, one, two } = choice;
    let offset = 1u64 << (one % 34) | u64::from(one >> 5) << 10;
    let len = 1u64 << (two % 18) | u64::from(two);
    let mut buf = vec![one; len as usize];
    let (offset, len) = match two & 0x80 {
        0 => (offset, len),
        _ => (offset & !1023, len.next_multiple_of(1024)),
    };
    match kind % 10 {
        0 => _ = file.write_at(offset, &buf)?,
        1 => _ = file.read_at(offset, &mut buf)?,
        2 => _ = file.append(&buf)?,
        3 => file.fallocate(Fallocate::Allocate { keep_size: false }, offset, len)?,
        4 => file.fallocate(Fallocate::PunchHole, offset, len)?,
        5 => file.fallocate(Fallocate::ZeroRange { keep_size: true }, offset, len)?,
        6 => file.fallocate(Fallocate::CollapseRange, offset, len)?,
        7 => file.fallocate(Fallocate::InsertRange, offset, len)?,
        8 => {
            let to = &open[usize::from(two) % open.len()];
            _ = file.copy_to(0, to, offset, len, WriteMode::default())?;
        }
        _ => {
            let attributes = SetAttributes {
                size: Some(offset),
                ..SetAttributes::default()
            };
            file.set_attributes(&attributes)?;
        }
    }
    Ok(None)
}

fn attributes(inode: &OpenInode, choice: Choice) -> Made {
    let Choice { kind, one, two } = choice;
    let name = XATTRS[usize::from(one) % XATTRS.len()];
    let value = vec![two; usize::from(two) * 20];
    match kind % 4 {
        0 => inode.set_xattr(name, Some(&value), SetMode::Any)?,
        1 => inode.set_xattr(name, None, SetMode::Any)?,
        2 => _ = inode.xattrs()?,
        _ => {
            let attributes = SetAttributes {
                uid: Some(one.into()),
                projid: (two > 200).then_some(two.into()),
                ..SetAttributes::default()
            };
            inode.set_attributes(&attributes)?;
        }
    }
    Ok(None)
}

fn whole(fs: &Volume, kind: u8, open: &mut Vec<OpenInode>, at: usize) -> Made {
    match kind % 5 {
        0 => fs.sync()?,
        1 => fs.tick()?,
        2 => open[at].fsync()?,
        3 => _ = fs.trim(0..u64::MAX, 0)?,
        _ => _ = open.swap_remove(at),
    }
    Ok(None)
}
