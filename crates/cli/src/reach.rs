//! Which paths of this machine a command line names, and what for: what the sandbox of the command
//! leaves it.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use tempfile::TempDir;
use uext4_fuse::{addresses, mountinfo};

use crate::commands;
use crate::ending;
use crate::preload;
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
    ("stats", &[IMAGE]),
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

/// Whether a command only reads its image. Not `clone`: it may give up what protects the copy.
pub fn only_reads(command: &str) -> bool {
    let paths = paths_of(command).unwrap_or_default();
    paths.contains(&IMAGE) && command != "clone"
}

fn paths_of(command: &str) -> Option<&'static [(&'static str, Use)]> {
    let of = PATHS.iter().find(|(name, _)| *name == command);
    of.map(|(_, paths)| *paths)
}

/// Commands that make no temporary files.
const WITHOUT_TEMPORARY: [&str; 30] = [
    "ls",
    "tree",
    "find",
    "grep",
    "du",
    "cat",
    "stat",
    "stats",
    "tar",
    "get",
    "manifest",
    "frag",
    "diff",
    "lsattr",
    "getfacl",
    "getfattr",
    "mkdir",
    "rm",
    "mv",
    "ln",
    "chmod",
    "chown",
    "setfattr",
    "chattr",
    "setfacl",
    "truncate",
    "fallocate",
    "touch",
    "sync",
    "clone",
];

/// Confines this process to what the command line names, unless that says otherwise. There must be
/// no other thread. Returns the directory of its temporary files, which goes when it is dropped.
pub fn keep_to(matches: &ArgMatches) -> Option<TempDir> {
    let (name, given) = matches.subcommand()?;
    let paths = paths_of(name)?;
    // What is preloaded may need anything.
    if given.get_flag("no_sandbox") || preload::library().is_some() {
        return None;
    }
    wait_for_others(given);
    let temporary = match WITHOUT_TEMPORARY.contains(&name) {
        true => None,
        // Without one, what needs a temporary file says so.
        false => tempfile::Builder::new().prefix("uext4-").tempdir().ok(),
    };
    let mut reach = reach(name, paths, given);
    if let Some(dir) = &temporary {
        // Nothing has asked for it before.
        _ = tempfile::env::override_temp_dir(dir.path());
        reach.temporary = Some(dir.path().to_owned());
    }
    // Where the kernel has only a part of it, that part holds.
    _ = confine(&reach);
    temporary
}

/// Waits as the user says for those who have the image: they may put another file in its place,
/// which must be there when paths are given up.
fn wait_for_others(given: &ArgMatches) {
    let seconds = given.try_get_one::<u32>("wait").ok().flatten().copied();
    let Some(seconds) = seconds else {
        return;
    };
    ending::wait_for_others(seconds);
    for image in values(given, "image").filter(|image| Path::new(image).is_file()) {
        ending::wait_for_ending(Path::new(image));
    }
}

/// Whether a daemon of ours has, or may have, one of these.
fn has_daemon(paths: &[(PathBuf, Use)]) -> bool {
    let mounts = mountinfo::all().unwrap_or_default();
    paths.iter().any(|(path, _)| {
        let Ok(found) = std::fs::metadata(path) else {
            return false;
        };
        let device = (
            rustix::fs::major(found.dev()),
            rustix::fs::minor(found.dev()),
        );
        let mut mounts = mounts.iter().map(|(_, shown)| shown);
        let is_mounted = match found.is_dir() {
            true => mounts.any(|shown| (shown.number.major, shown.number.minor) == device),
            false => mounts.any(|shown| addresses::is_same(&shown.source, &found)),
        };
        is_mounted || addresses::has_daemon(&found)
    })
}

fn reach(name: &str, paths: &[(&str, Use)], given: &ArgMatches) -> Reach {
    let mut reach = Reach::default();
    // A file as standard input is opened once more, to be read in place.
    reach.paths.push((PathBuf::from(STDIN), Use::Read));
    for (id, use_of) in paths {
        for value in values(given, id) {
            match (name, *id) {
                ("build", "sources") | ("mkfs", "source") | ("untar", "file") => {
                    source(value, &mut reach);
                }
                ("build", "file") => reach.paths.extend(single(value)),
                ("build", "output") | ("mkfs", "image") if is_within(Path::new(value), given) => {
                    add(Path::new(value), Use::Change, &mut reach);
                }
                _ => add(Path::new(value), *use_of, &mut reach),
            }
        }
    }
    match name {
        // What its lines name is not known yet.
        "script" => reach.paths.push((PathBuf::from("/"), Use::Read)),
        // Temporary files of an image for standard output or a device.
        "build" | "mkfs" => {
            let output = values(given, "output").chain(values(given, "image")).next();
            if output.is_some_and(|output| !is_file_or_none(Path::new(output))) {
                let named = env::var_os("TMPDIR").map(PathBuf::from);
                let dirs = named.into_iter().chain([PathBuf::from("/var/tmp")]);
                reach
                    .paths
                    .extend(dirs.map(|dir| (dir.join("x"), Use::Make)));
            }
        }
        "put" => {
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
    reach.daemon = has_daemon(&reach.paths);
    reach
}

/// Whether the file system fills a part of a disk that is there, which is written in place.
fn is_within(disk: &Path, given: &ArgMatches) -> bool {
    let has_offset = |list: &OsStr| list.as_bytes().windows(7).any(|part| part == b"offset=");
    let is_part =
        values(given, "partition").next().is_some() || values(given, "extended").any(has_offset);
    is_part && disk.exists()
}

/// Whether a path is that of a file, which is replaced, or of nothing yet.
fn is_file_or_none(path: &Path) -> bool {
    let is_other = std::fs::metadata(path).is_ok_and(|found| !found.is_file());
    path.as_os_str() != "-" && !is_other
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
                if Some(text) == behind_prefix {
                    reach.paths.extend(linked(path));
                }
            }
        }
    }
}

/// What of an image layout are symbolic links, as some build tools make them: its documents, the
/// directories of its blobs, blobs.
fn linked(layout: &Path) -> Vec<(PathBuf, Use)> {
    let entries = |dir: PathBuf| {
        let all = std::fs::read_dir(dir).into_iter().flatten().flatten();
        all.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let blobs = layout.join("blobs");
    let kinds = entries(blobs);
    let of_kinds = kinds.iter().flat_map(|kind| entries(kind.clone()));
    let all = entries(layout.to_owned()).into_iter().chain(of_kinds);
    let links = all
        .chain(kinds.iter().cloned())
        .filter(|path| path.is_symlink());
    links.map(|path| (path, Use::Read)).collect()
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
    const OTHERS: [&str; 6] = ["mount", "umount", "doctor", "help", "completions", "man"];

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
        let of_put = [("disk.img", Use::Change), ("./", Use::List)];
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
        for words in [
            &["mkfs", "-d", &layer, "disk.img", "16M"][..],
            &["untar", "-f", &layer, "disk.img"],
        ] {
            assert!(
                paths(of(words)).contains(&(file.to_owned(), Use::Read)),
                "{words:?}"
            );
        }
        assert!(of(&["mkfs", "-d", "docker://host/name", "disk.img", "16M"]).network);
        // A part of a disk is written in place.
        for words in [
            &["mkfs", "-E", "offset=1048576", file, "16M"][..],
            &["build", "source", "--partition", "1", "-o", file],
        ] {
            let found = paths(of(words));
            assert!(found.contains(&(file.to_owned(), Use::Change)), "{found:?}");
            assert!(
                found.iter().all(|(_, use_of)| *use_of != Use::Make),
                "{found:?}"
            );
        }
    }

    #[test]
    fn a_layout_of_links_is_reached_whole() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir_all(at("real/sha256")).unwrap();
        std::fs::create_dir(at("layout")).unwrap();
        for name in ["real/index.json", "real/sha256/blob"] {
            std::fs::write(at(name), "").unwrap();
        }
        let link = std::os::unix::fs::symlink::<PathBuf, PathBuf>;
        link(at("real/index.json"), at("layout/index.json")).unwrap();
        link(at("real"), at("layout/blobs")).unwrap();
        let oci = format!("oci:{}:tag", at("layout").display());
        let reach = of(&["build", &oci, "-o", "made"]);
        for name in ["layout/index.json", "layout/blobs"] {
            let wanted = (at(name), Use::Read);
            assert!(reach.paths.contains(&wanted), "{name}: {reach:?}");
        }
    }
}
