//! The readers: uext4, GNU tar and bsdtar by what they extract, Python and Go by what they say.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use sha2::{Digest, Sha256};
use uext4::device::{Access, FileDevice};
use uext4::{Image, OpenOptions};
use uext4_image::walk::{Order, Step, Walk};
use uext4_image::{BuildOptions, Source, build};
use uext4_testkit::{has_tool, is_root};

use crate::tree::{Entry, Extraction, Outcome, Tree};

/// Files larger than this are not read.
const LARGE: u64 = 16 << 20;
/// The time of directories that have no entry in an archive: no archive has it.
const IMPLIED: i64 = 1_111_111_111;
/// What ext4 can date, in seconds.
const TIMES: std::ops::RangeInclusive<i64> = -0x8000_0000..=0x3_7FFF_FFFF;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reader {
    Gnu,
    Bsd,
    Python,
    Go,
}

impl Reader {
    pub fn name(self) -> &'static str {
        match self {
            Self::Gnu => "GNU tar",
            Self::Bsd => "bsdtar",
            Self::Python => "Python",
            Self::Go => "Go",
        }
    }
}

fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Builds an image of the archive and reads it back.
pub fn ours(archive: &Path, scratch: &Path) -> Outcome {
    let image = scratch.join("image");
    let options = BuildOptions {
        time: Some(IMPLIED),
        ..BuildOptions::default()
    };
    let report = match build(
        &Source::TarFile(archive.to_path_buf()),
        &image,
        &options,
        &(),
    ) {
        Ok(report) => report,
        Err(error) => {
            let text = error.to_string();
            let prefix = format!("{}: ", archive.display());
            return Outcome::Refused(text.strip_prefix(&prefix).unwrap_or(&text).to_owned());
        }
    };
    let tree = read_image(&image);
    fs::remove_file(&image).unwrap();
    Outcome::Accepted {
        tree,
        remarks: report.warnings.shown.join("\n"),
    }
}

fn read_image(image: &Path) -> Tree {
    let device = Arc::new(FileDevice::open(image, Access::ReadOnly).unwrap());
    let fs = Image::open(device, &OpenOptions::default()).unwrap();
    let (mut tree, mut hidden) = (Tree::new(), None);
    let top = fs.metadata("/").unwrap();
    let mut walk = Walk::new(&fs, top, Order::Nested);
    while let Some(step) = walk.step() {
        let Step::Entry(entry) = step else { continue };
        let inode = entry.inode.unwrap();
        let path = walk.path().strip_prefix(b"/").unwrap_or(walk.path());
        if path == b"lost+found" {
            hidden = Some(path.to_vec());
        }
        let (mut size, mut digest, mut target) = (0, "-".to_owned(), Vec::new());
        let kind = match inode.mode >> 12 {
            0o1 => 'p',
            0o2 => 'c',
            0o4 => 'd',
            0o6 => 'b',
            0o12 => {
                target = fs.read_link(&inode).unwrap();
                'l'
            }
            _ => {
                size = inode.size;
                if size <= LARGE {
                    let mut contents = vec![0; size as usize];
                    assert_eq!(
                        fs.read_at(&inode, 0, &mut contents).unwrap(),
                        contents.len()
                    );
                    digest = hash(&contents);
                }
                'f'
            }
        };
        let path = if path.is_empty() { b"." } else { path };
        let made = Entry {
            kind,
            mode: u32::from(inode.mode & 0o7777),
            uid: inode.uid.into(),
            gid: inode.gid.into(),
            mtime: inode.mtime.sec,
            size,
            hash: digest,
            target,
            device: inode.rdev.map(|n| (n.major.into(), n.minor.into())),
            node: inode.ino.0.into(),
            implied: kind == 'd' && inode.mtime.sec == IMPLIED,
        };
        tree.insert(path.to_vec(), made);
    }
    if let Some(hidden) = hidden {
        tree.remove(&hidden);
    }
    tree
}

/// Whether trees can be extracted with owners and devices by this tool.
pub fn can_extract(tool: &str) -> bool {
    if !is_root() {
        println!("skipped: {tool} can restore owners only as root");
        return false;
    }
    has_tool(tool)
}

/// What GNU tar extracts.
pub fn gnu(archive: &Path, scratch: &Path) -> Outcome {
    let mut tar = Command::new("tar");
    tar.args(["--numeric-owner", "--same-owner", "--same-permissions"]);
    tar.arg("--warning=no-timestamp");
    extracted(tar, archive, scratch)
}

/// What bsdtar extracts.
pub fn bsd(archive: &Path, scratch: &Path) -> Outcome {
    let mut tar = Command::new("bsdtar");
    tar.args(["--numeric-owner", "--same-owner", "-p"]);
    extracted(tar, archive, scratch)
}

fn extracted(mut tar: Command, archive: &Path, scratch: &Path) -> Outcome {
    let root = scratch.join("root");
    fs::create_dir(&root).unwrap();
    let began = fs::metadata(&root).unwrap().mtime();
    tar.arg("-C").arg(&root).arg("-xf").arg(archive);
    tar.env("LC_ALL", "C.UTF-8")
        .env("TZ", "UTC")
        .stdin(Stdio::null());
    let output = tar.output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let outcome = match output.status.success() {
        false => Outcome::Refused(said),
        // bsdtar succeeds though it has skipped what it could not read.
        true if said.contains("Damaged tar archive") => Outcome::Refused(said),
        true => {
            let mut tree = Tree::new();
            walk(&root, &root, began, &mut tree);
            Outcome::Accepted {
                tree,
                remarks: said,
            }
        }
    };
    fs::remove_dir_all(&root).unwrap();
    outcome
}

fn walk(root: &Path, path: &Path, began: i64, tree: &mut Tree) {
    let meta = fs::symlink_metadata(path).unwrap();
    let file_type = meta.file_type();
    let mut entry = Entry {
        kind: 'f',
        mode: meta.mode() & 0o7777,
        uid: meta.uid().into(),
        gid: meta.gid().into(),
        mtime: meta.mtime().clamp(*TIMES.start(), *TIMES.end()),
        hash: "-".to_owned(),
        node: meta.ino(),
        ..Entry::default()
    };
    if file_type.is_dir() {
        entry.kind = 'd';
        // A directory with an entry has the time of the entry.
        entry.implied = (began - 1..began + 3600).contains(&meta.mtime());
        for child in fs::read_dir(path).unwrap() {
            walk(root, &child.unwrap().path(), began, tree);
        }
    } else if file_type.is_symlink() {
        entry.kind = 'l';
        entry.target = fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec();
    } else if file_type.is_file() {
        entry.size = meta.size();
        if entry.size <= LARGE {
            entry.hash = hash(&fs::read(path).unwrap());
        }
    } else {
        entry.kind = match (file_type.is_char_device(), file_type.is_block_device()) {
            (true, _) => 'c',
            (_, true) => 'b',
            _ => 'p',
        };
        let device = meta.rdev();
        let numbers = (
            rustix::fs::major(device).into(),
            rustix::fs::minor(device).into(),
        );
        entry.device = (entry.kind != 'p').then_some(numbers);
    }
    let inside = path.strip_prefix(root).unwrap().as_os_str().as_bytes();
    let inside = if inside.is_empty() { b"." } else { inside };
    tree.insert(inside.to_vec(), entry);
}

/// What Python says of `count` archives in `dir`.
pub fn python(dir: &Path, count: usize) -> Option<Vec<Outcome>> {
    has_tool("python3").then(|| {
        let script = dir.join("reader.py");
        fs::write(&script, include_str!("reader.py")).unwrap();
        outcomes(Command::new("python3").arg(script), dir, count)
    })
}

/// What Go says of `count` archives in `dir`.
pub fn go(dir: &Path, count: usize) -> Option<Vec<Outcome>> {
    has_tool("go").then(|| {
        let (source, program) = (dir.join("reader.go"), dir.join("reader"));
        fs::write(&source, include_str!("reader.go")).unwrap();
        let mut compiler = Command::new("go");
        compiler.arg("build").arg("-o").arg(&program).arg(&source);
        compiler
            .env("GOFLAGS", "-mod=mod")
            .env("GO111MODULE", "off");
        let output = compiler.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        outcomes(&mut Command::new(program), dir, count)
    })
}

fn outcomes(program: &mut Command, dir: &Path, count: usize) -> Vec<Outcome> {
    let output = program.arg(dir).arg(count.to_string()).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program:?}: {errors}");
    let text = String::from_utf8_lossy(&output.stdout);
    let parts = text.split("archive ").skip(1);
    let all: Vec<_> = parts.map(|part| members(part.lines().skip(1))).collect();
    assert_eq!(all.len(), count, "{program:?}");
    all
}

fn members<'a>(lines: impl Iterator<Item = &'a str>) -> Outcome {
    let mut extraction = Extraction::default();
    for line in lines {
        let (word, rest) = line.split_once(' ').unwrap();
        match word {
            "refused" => return Outcome::Refused(rest.to_owned()),
            "skipped" => return Outcome::Skipped,
            _ => {}
        }
        if let Err(why) = member(&mut extraction, rest) {
            return Outcome::Refused(format!("extraction: {why}"));
        }
    }
    Outcome::Accepted {
        tree: extraction.finish(),
        remarks: String::new(),
    }
}

fn member(extraction: &mut Extraction, line: &str) -> Result<(), String> {
    let words: Vec<_> = line.split(' ').collect();
    let number = |at: usize| words[at].parse::<i128>().unwrap();
    let bytes = |at: usize| match words[at] {
        "-" => Vec::new(),
        text => hex::decode(text).unwrap(),
    };
    let (kind, link) = (words[0].chars().next().unwrap(), bytes(10));
    let unsigned = |at| u64::try_from(number(at)).map_err(|_| format!("number {}", number(at)));
    let entry = Entry {
        kind,
        mode: number(1) as u32,
        uid: unsigned(2)?,
        gid: unsigned(3)?,
        mtime: number(4).clamp((*TIMES.start()).into(), (*TIMES.end()).into()) as i64,
        size: unsigned(5)?,
        hash: words[6].to_owned(),
        target: if kind == 'l' {
            link.clone()
        } else {
            Vec::new()
        },
        device: match kind {
            'c' | 'b' => Some((unsigned(7)?, unsigned(8)?)),
            _ => None,
        },
        ..Entry::default()
    };
    extraction.add(&bytes(9), entry, (kind == 'h').then_some(&link[..]))
}
