//! Which paths of this machine a command line names, and what for: what the sandbox of the command
//! leaves it.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use uext4_fuse::mountinfo;

use crate::commands;
use crate::sandbox::command::{Reach, Use, confine};

/// The image that a command changes, the image that it reads.
const CHANGED: (&str, Use) = ("image", Use::Change);
const IMAGE: (&str, Use) = ("image", Use::Read);

/// Where standard input can be opened.
const STDIN: &str = "/proc/self/fd/0";

/// The arguments of each command that are paths of this machine. All others are in the image.
/// Commands that are not here read nothing that others wrote, or, as the daemon of a mount, confine
/// themselves.
const PATHS: &[(&str, &[(&str, Use)])] = &[
    (
        "build",
        &[
            ("sources", Use::Read),
            ("base", Use::Read),
            ("order", Use::Read),
            ("file", Use::Read),
            ("output", Use::Make),
            ("root_hash", Use::Make),
        ],
    ),
    (
        "mkfs",
        &[
            ("image", Use::Make),
            ("source", Use::Read),
            ("bad_blocks", Use::Read),
            ("undo", Use::Make),
        ],
    ),
    ("clone", &[IMAGE, ("to", Use::Make)]),
    ("info", &[IMAGE]),
    ("ls", &[IMAGE]),
    ("tree", &[IMAGE]),
    ("find", &[IMAGE, ("more", Use::Read)]),
    ("grep", &[IMAGE, ("more", Use::Read)]),
    ("du", &[IMAGE]),
    ("diff", &[IMAGE, ("new", Use::Read), ("tar", Use::Make)]),
    ("cat", &[IMAGE]),
    ("stat", &[IMAGE]),
    ("get", &[IMAGE, ("dest", Use::Fill)]),
    ("tar", &[IMAGE]),
    ("manifest", &[IMAGE]),
    ("frag", &[IMAGE]),
    ("check", &[IMAGE]),
    (
        "repair",
        &[
            CHANGED,
            ("apply", Use::Read),
            ("undo", Use::Make),
            ("into", Use::Make),
        ],
    ),
    ("undo", &[CHANGED, ("file", Use::Read)]),
    ("tune", &[CHANGED, ("undo", Use::Make)]),
    (
        "salvage",
        &[IMAGE, ("output", Use::Fill), ("map", Use::Read)],
    ),
    ("scan", &[IMAGE]),
    ("undelete", &[CHANGED, ("into", Use::Fill)]),
    (
        "fsck",
        &[
            ("device", Use::Change),
            ("undo", Use::Make),
            ("bad_block_list", Use::Read),
            ("external_journal", Use::Read),
        ],
    ),
    ("put", &[CHANGED, ("source", Use::Read)]),
    ("untar", &[CHANGED, ("file", Use::Read)]),
    ("mkdir", &[CHANGED]),
    ("rm", &[CHANGED]),
    ("mv", &[CHANGED]),
    ("ln", &[CHANGED]),
    ("chmod", &[CHANGED]),
    ("chown", &[CHANGED]),
    ("setfattr", &[CHANGED]),
    ("chattr", &[CHANGED]),
    ("lsattr", &[IMAGE]),
    (
        "setfacl",
        &[
            CHANGED,
            ("modify_file", Use::Read),
            ("remove_file", Use::Read),
            ("set_file", Use::Read),
            ("restore", Use::Read),
        ],
    ),
    ("getfacl", &[IMAGE]),
    ("getfattr", &[IMAGE]),
    ("truncate", &[CHANGED]),
    ("fallocate", &[CHANGED]),
    ("touch", &[CHANGED]),
    ("sync", &[CHANGED]),
    ("dedup-xattrs", &[CHANGED]),
    ("grow", &[CHANGED]),
    ("shrink", &[CHANGED]),
    ("trim", &[CHANGED]),
    ("quota", &[CHANGED]),
    ("script", &[CHANGED, ("file", Use::Read)]),
];

/// Whether a command confines itself to what it is given.
pub fn is_confined(command: &str) -> bool {
    paths_of(command).is_some()
}

/// Whether a command does no more with an image than read it, or copy it.
pub fn only_reads(command: &str) -> bool {
    let paths = paths_of(command).unwrap_or_default();
    paths.contains(&IMAGE) && command != "clone"
}

fn paths_of(command: &str) -> Option<&'static [(&'static str, Use)]> {
    let of = PATHS.iter().find(|(name, _)| *name == command);
    of.map(|(_, paths)| *paths)
}

/// Confines this process to what the command line names, unless that says otherwise. There must be
/// no other thread.
pub fn keep_to(matches: &ArgMatches) {
    if let Some((name, given)) = matches.subcommand()
        && let Some(paths) = paths_of(name)
        && !given.get_flag("no_sandbox")
        && !is_preloaded()
    {
        // Where the kernel has only a part of it, that part holds.
        _ = confine(&reach(name, paths, given));
    }
}

/// Whether a library is preloaded, which may need anything, as that of fakeroot and pseudo does.
fn is_preloaded() -> bool {
    env::var_os("LD_PRELOAD").is_some_and(|libraries| !libraries.is_empty())
        || Path::new("/etc/ld.so.preload").exists()
}

fn reach(name: &str, paths: &[(&str, Use)], given: &ArgMatches) -> Reach {
    let mut reach = Reach::default();
    // A file as standard input is opened once more, to be read in place.
    reach.paths.push((PathBuf::from(STDIN), Use::Read));
    for (id, use_of) in paths {
        for value in values(given, id) {
            match (name, *id) {
                ("build", "sources") => source(value, &mut reach),
                ("build", "file") => reach.paths.extend(single(value)),
                _ => add(Path::new(value), *use_of, &mut reach),
            }
        }
    }
    match name {
        // What its lines name is not known yet.
        "script" => reach.paths.push((PathBuf::from("/"), Use::Read)),
        // Temporary files of an image for standard output or a device.
        "build" | "mkfs" => reach.paths.push((PathBuf::from("/var/tmp/x"), Use::Make)),
        "put" => {
            // Copies of files that have no size, as in /proc.
            reach.paths.push((PathBuf::from("x"), Use::Make));
            // A source is opened in its directory.
            let dirs = values(given, "source").filter_map(|source| Path::new(source).parent());
            let dirs = dirs.map(|dir| (Path::new(".").join(dir), Use::List));
            reach.paths.extend(dirs);
        }
        // By -C, an open file that is opened once more.
        "fsck" => {
            let number = values(given, "progress").next();
            let number = number.map(|number| Path::new("/proc/self/fd").join(number));
            reach.paths.extend(number.map(|file| (file, Use::Change)));
        }
        _ => {}
    }
    reach
}

fn values<'a>(given: &'a ArgMatches, id: &str) -> impl Iterator<Item = &'a OsStr> {
    let raw = given.try_get_raw(id).ok().flatten();
    raw.into_iter().flatten()
}

fn add(path: &Path, use_of: Use, reach: &mut Reach) {
    if path.as_os_str() == "-" {
        return;
    }
    // A directory of a mount stands for its image, which some mounts let others read.
    if path.is_dir()
        && use_of != Use::Fill
        && let (Ok(real), Ok(all)) = (std::fs::canonicalize(path), mountinfo::all())
    {
        let here = all.into_iter().filter(|(place, _)| real.starts_with(place));
        let images = here.map(|(_, shown)| (shown.source, Use::Read));
        reach.paths.extend(images);
    }
    reach.paths.push((path.to_owned(), use_of));
}

/// `layer:FILE`, `oci:PATH:TAG`, `docker://HOST/NAME`, or a path: every beginning before a colon or
/// an at sign that names something.
fn source(value: &OsStr, reach: &mut Reach) {
    let bytes = value.as_bytes();
    if bytes.windows(3).any(|part| part == b"://") {
        reach.network = true;
        let login = commands::build::docker_config();
        reach.paths.extend(login.map(|path| (path, Use::Read)));
        // Certificates of authorities besides the system's.
        let named = ["SSL_CERT_FILE", "SSL_CERT_DIR"]
            .into_iter()
            .filter_map(env::var_os);
        reach
            .paths
            .extend(named.map(|path| (path.into(), Use::Read)));
        return;
    }
    let behind_prefix = bytes
        .iter()
        .position(|&byte| byte == b':')
        .map(|at| &bytes[at + 1..]);
    for text in [Some(bytes), behind_prefix].into_iter().flatten() {
        let ends = (0..text.len()).filter(|&at| matches!(text[at], b':' | b'@'));
        for end in ends.chain([text.len()]) {
            let path = Path::new(OsStr::from_bytes(&text[..end]));
            if path.exists() {
                reach.paths.push((path.to_owned(), Use::Read));
                reach.paths.extend(linked_blobs(path));
            }
        }
    }
}

/// The blobs of an image layout that are symbolic links, as some build tools make them.
fn linked_blobs(layout: &Path) -> Vec<(PathBuf, Use)> {
    let entries = |dir: PathBuf| std::fs::read_dir(dir).into_iter().flatten().flatten();
    let blobs = entries(layout.join("blobs")).flat_map(|kind| entries(kind.path()));
    let links = blobs.filter(|blob| blob.path().is_symlink());
    links.map(|blob| (blob.path(), Use::Read)).collect()
}

/// `PATH=SOURCE,mode=755`.
fn single(value: &OsStr) -> Vec<(PathBuf, Use)> {
    let bytes = value.as_bytes();
    let begins = (0..bytes.len())
        .filter(|&at| bytes[at] == b'=')
        .map(|at| at + 1);
    let mut found = Vec::new();
    for begin in begins {
        let text = &bytes[begin..];
        let ends = (0..text.len()).filter(|&at| text[at] == b',');
        let paths = ends
            .chain([text.len()])
            .map(|end| Path::new(OsStr::from_bytes(&text[..end])));
        found.extend(
            paths
                .filter(|path| path.is_file())
                .map(|path| (path.to_owned(), Use::Read)),
        );
    }
    found
}

#[cfg(test)]
mod tests {
    use std::any::TypeId;

    use super::*;
    use crate::command_line;

    /// Arguments that are paths in the image, of each command; `*` of all.
    const IN_IMAGE: &[(&str, &str)] = &[
        ("*", "path"),
        ("*", "paths"),
        ("diff", "new_path"),
        ("find", "start"),
        ("ln", "target"),
        ("mv", "old"),
        ("mv", "new"),
        ("undelete", "to"),
    ];
    /// Commands that are not confined.
    const OTHERS: [&str; 7] = [
        "mount",
        "umount",
        "stats",
        "doctor",
        "help",
        "completions",
        "man",
    ];

    #[test]
    fn every_argument_that_is_a_path_is_one_of_the_machine_or_of_the_image() {
        for command in command_line::command().get_subcommands() {
            let name = command.get_name();
            let known = PATHS.iter().find(|(of, _)| *of == name);
            let Some((_, paths)) = known else {
                assert!(OTHERS.contains(&name), "{name}");
                continue;
            };
            let ids: Vec<&str> = command
                .get_arguments()
                .map(|arg| arg.get_id().as_str())
                .collect();
            for (id, _) in *paths {
                assert!(ids.contains(id), "{name} has no {id}");
            }
            for arg in command.get_arguments() {
                let id = arg.get_id().as_str();
                let is_path = arg.get_value_parser().type_id() == TypeId::of::<PathBuf>();
                let is_ours = paths.iter().any(|(of, _)| *of == id);
                let is_in_image = IN_IMAGE
                    .iter()
                    .any(|(of, other)| (*of == name || *of == "*") && *other == id);
                assert!(!is_path || is_ours || is_in_image, "{name} {id}");
            }
        }
    }

    fn of(words: &[&str]) -> Reach {
        let words = ["uext4"].iter().chain(words);
        let matches = command_line::command().get_matches_from(words);
        let (name, given) = matches.subcommand().unwrap();
        let (_, paths) = PATHS.iter().find(|(of, _)| *of == name).unwrap();
        reach(name, paths, given)
    }

    #[test]
    fn a_command_reaches_what_it_was_given() {
        let paths = |mut reach: Reach| {
            assert_eq!(reach.paths.remove(0).0, Path::new(STDIN));
            let names = reach
                .paths
                .into_iter()
                .map(|(path, use_of)| (path.to_string_lossy().into_owned(), use_of));
            names.collect::<Vec<_>>()
        };
        let cat = paths(of(&["cat", "disk.img", "/etc/passwd"]));
        assert_eq!(cat, [("disk.img".to_owned(), Use::Read)]);
        let put = paths(of(&["put", "disk.img", "-", "/etc/motd"]));
        let of_put = [
            ("disk.img", Use::Change),
            ("x", Use::Make),
            ("./", Use::List),
        ];
        assert_eq!(put, of_put.map(|(path, use_of)| (path.to_owned(), use_of)));
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a:b");
        std::fs::write(&file, "").unwrap();
        let file = file.to_str().unwrap();
        let (layer, entry) = (format!("oci:{file}:tag"), format!("/x={file},mode=755"));
        let build = of(&["build", &layer, "--file", &entry, "-o", "made"]);
        assert!(!build.network);
        let build = paths(build);
        let given = |path: &str| build.iter().filter(|(of, _)| of == path).count();
        assert_eq!(given(file), 2, "{build:?}");
        assert!(build.contains(&("made".to_owned(), Use::Make)));
        assert!(of(&["build", "docker://host/name", "-o", "made"]).network);
    }
}
