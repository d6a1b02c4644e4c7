//! What is unpacked: the Linux source, and four of its folders; of these the first as a repository
//! that is cloned.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::subject::run;

/// The folders of the small tree.
const FOLDERS: [&str; 4] = ["fs", "kernel", "net", "sound"];

/// A plain tar on tmpfs.
#[derive(Debug)]
pub struct Tar {
    pub path: PathBuf,
    pub entries: usize,
}

/// Both tars, and a repository; none without the package.
#[derive(Debug)]
pub struct Input {
    pub linux: Option<Tar>,
    pub folders: Option<Tar>,
    pub repository: Option<PathBuf>,
    _dir: TempDir,
}

impl Input {
    pub fn new() -> Result<Self, String> {
        let dir = tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string())?;
        let mut input = Self {
            linux: None,
            folders: None,
            repository: None,
            _dir: dir,
        };
        let Some(packed) = source() else {
            eprintln!(
                "tree: skipped, no linux-source tar below /usr/src (apt-get install linux-source)"
            );
            return Ok(input);
        };
        let (linux, folders) = (input.at("linux.tar"), input.at("folders.tar"));
        unpack(&packed, &linux)?;
        let (from, to) = (linux.to_str().unwrap(), input.at("tree"));
        let entries = run("tar", &["-tf", from])?;
        let top = entries.split('/').next().unwrap_or_default().to_owned();
        input.linux = Some(Tar {
            entries: entries.lines().count(),
            path: linux.clone(),
        });
        fs::create_dir(&to).map_err(|error| error.to_string())?;
        let wanted = FOLDERS.map(|name| format!("{top}/{name}"));
        let mut args = vec!["-xf", from, "-C", to.to_str().unwrap()];
        args.extend(wanted.iter().map(|name| &**name));
        run("tar", &args)?;
        let mut args = vec!["-cf", folders.to_str().unwrap(), "-C", to.to_str().unwrap()];
        args.extend(wanted.iter().map(|name| &**name));
        run("tar", &args)?;
        let first = to.join(&top).join(FOLDERS[0]);
        input.repository = Some(repository(&first, input.at("repository"))?);
        fs::remove_dir_all(&to).map_err(|error| error.to_string())?;
        let entries = run("tar", &["-tf", folders.to_str().unwrap()])?;
        input.folders = Some(Tar {
            // And the directory they are in.
            entries: entries.lines().count() + 1,
            path: folders,
        });
        Ok(input)
    }

    fn at(&self, name: &str) -> PathBuf {
        self._dir.path().join(name)
    }
}

/// Makes a bare repository of a tree, in one commit.
fn repository(tree: &Path, at: PathBuf) -> Result<PathBuf, String> {
    let (tree, to) = (tree.to_str().unwrap(), at.to_str().unwrap());
    run("git", &["init", "--quiet", "--bare", to])?;
    let git = |args: &[&str]| {
        run(
            "git",
            &[&["--git-dir", to, "--work-tree", tree][..], args].concat(),
        )
    };
    git(&["add", "--all", "--force"])?;
    let author = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
    git(&[&author[..], &["commit", "--quiet", "--message", "all"]].concat())?;
    Ok(at)
}

/// The tar of Debian's package, the newest if there are several.
fn source() -> Option<PathBuf> {
    let entries = fs::read_dir("/usr/src").ok()?.flatten();
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    found.retain(|path| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("linux-source-") && name.ends_with(".tar.xz")
    });
    found.sort();
    found.pop()
}

fn unpack(packed: &Path, to: &Path) -> Result<(), String> {
    let out = File::create(to).map_err(|error| error.to_string())?;
    let status = Command::new("xz")
        .arg("-dc")
        .arg(packed)
        .stdout(out)
        .status();
    let done = status.map_err(|error| format!("xz: {error}"))?.success();
    done.then_some(())
        .ok_or(format!("{}: not unpacked", packed.display()))
}
