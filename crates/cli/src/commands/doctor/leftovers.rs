//! What daemons that were killed have left: mounts that answer no more, and sockets.

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::io::Errno;
use uext4_fuse::mountinfo;

use super::Finding;
use crate::listener;

/// How long the daemon of a mount may take to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Looks for them.
pub fn check() -> Vec<Finding> {
    let mut findings = match mountinfo::all() {
        Ok(mounts) => dead_mounts(&mounts),
        Err(error) => vec![Finding::note(
            "mounts",
            format!("/proc/self/mountinfo cannot be read: {error}"),
            "mount /proc",
        )],
    };
    findings.extend(dead_sockets());
    findings
}

fn dead_mounts(mounts: &[(PathBuf, mountinfo::Shown)]) -> Vec<Finding> {
    let findings: Vec<Finding> = mounts
        .iter()
        .filter_map(|(place, _)| of_mount(place, answer(place)))
        .collect();
    match findings.is_empty() {
        true => {
            let text = format!("{} of uext4, all with a daemon", mounts.len());
            vec![Finding::ok("mounts", text)]
        }
        false => findings,
    }
}

/// What statfs(2) of a mount returned; `None` if it did not return in time.
fn answer(place: &Path) -> Option<Result<(), Errno>> {
    let (send, answered) = mpsc::sync_channel(1);
    let path = place.to_owned();
    // Not joined: a daemon that hangs keeps the thread until the process ends.
    thread::spawn(move || send.send(rustix::fs::statfs(&path).map(drop)));
    answered.recv_timeout(PATIENCE).ok()
}

fn of_mount(place: &Path, answer: Option<Result<(), Errno>>) -> Option<Finding> {
    let place = place.display();
    match answer {
        Some(Err(Errno::NOTCONN)) => Some(Finding::note(
            "mounts",
            format!("{place}: its daemon has ended without unmounting"),
            format!("`uext4 umount -l {place}`; the next use of the image replays its journal"),
        )),
        None => Some(Finding::note(
            "mounts",
            format!(
                "{place}: its daemon did not answer within {} s",
                PATIENCE.as_secs()
            ),
            format!("look at its standard error, or end it and `uext4 umount -l {place}`"),
        )),
        // Another user's mount is EACCES: its daemon is there.
        Some(_) => None,
    }
}

/// Sockets of this user for statistics that no daemon listens to.
fn dead_sockets() -> Vec<Finding> {
    let Ok(entries) = fs::read_dir(listener::directory_of_sockets()) else {
        return Vec::new();
    };
    entries
        .flatten()
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_socket()))
        .map(|entry| entry.path())
        .filter(|path| is_refused(path))
        .map(|path| {
            Finding::note(
                "sockets",
                format!("{}: its daemon has ended", path.display()),
                format!(
                    "`rm {}`; the next mount with this number replaces it",
                    path.display()
                ),
            )
        })
        .collect()
}

fn is_refused(socket: &Path) -> bool {
    let connected = UnixStream::connect(socket);
    connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_mount_without_its_daemon_is_reported() {
        let of = |answer| of_mount(Path::new("/mnt"), answer).is_some();
        assert!(of(Some(Err(Errno::NOTCONN))));
        assert!(of(None));
        assert!(!of(Some(Err(Errno::ACCESS))));
        assert!(!of(Some(Ok(()))));
        assert_eq!(answer(Path::new("/proc")), Some(Ok(())));
    }

    #[test]
    fn a_socket_that_no_process_listens_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0:1");
        let listening = UnixListener::bind(&path).unwrap();
        assert!(!is_refused(&path));
        drop(listening);
        assert!(is_refused(&path));
    }
}
