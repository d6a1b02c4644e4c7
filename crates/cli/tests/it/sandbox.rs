//! What a daemon gives up, and that it still unmounts.

use std::fs;
use std::path::Path;

use crate::host::{run, text, uext4_ok};
use crate::mounting::{Place, by_user, can_mount, daemon, failed, shell_by_user, user_can_mount};

/// A line of a thread's status.
fn status(daemon: &str, thread: &str, field: &str) -> String {
    let path = format!("/proc/{daemon}/task/{thread}/status");
    let status = fs::read_to_string(path).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap().trim().to_owned()
}

#[test]
fn the_daemon_gives_up_what_it_does_not_need() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 32);
    // Over rings it may keep CAP_SYS_NICE.
    place.mount("rw,transport=dev");
    fs::write(place.dir().join("file"), vec![1; 1 << 20]).unwrap();
    let pid = daemon(&place);
    for thread in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
        let thread = thread.file_name().into_string().unwrap();
        let of = |field| status(&pid, &thread, field);
        assert_eq!(
            (of("Seccomp:"), of("NoNewPrivs:")),
            ("2".into(), "1".into())
        );
        assert_eq!(of("CapEff:"), "0000000000000000");
        assert_eq!(of("CapPrm:"), "0000000000000000");
    }
    run("kill", &["-TERM", &pid]);
    while Path::new("/proc").join(&pid).exists() {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let table = fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!table.contains(text(&place.dir())));
    place.judge();
    place.mount("nosandbox");
    let pid = daemon(&place);
    assert_eq!(status(&pid, &pid, "Seccomp:"), "0");
    place.unmount();
    place.judge();
}

/// The process that unmounts for a daemon.
fn helper_of(place: &Place) -> String {
    let found = fs::read_dir("/proc").unwrap().flatten().find(|entry| {
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        line.contains("--when-notified=0:") && line.contains(text(&place.dir()))
    });
    found.unwrap().file_name().into_string().unwrap()
}

#[test]
fn a_signal_to_all_that_belong_to_a_daemon_ends_it_well() {
    if !can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4"], 32);
    for signal in ["-TERM", "-INT", "-HUP"] {
        place.mount("rw");
        fs::write(place.dir().join("file"), vec![1; 1 << 20]).unwrap();
        let (pid, helper) = (daemon(&place), helper_of(&place));
        // As systemd and a closing terminal do.
        run("kill", &[signal, &helper, &pid]);
        for pid in [pid, helper] {
            while Path::new("/proc").join(&pid).exists() {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
        }
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!table.contains(text(&place.dir())), "{signal}");
        place.judge();
    }
}

#[test]
fn a_users_daemon_unmounts_out_of_its_sandbox() {
    if !user_can_mount() {
        return;
    }
    let place = Place::new(&["-t", "ext4", "-E", "root_owner=1:1"], 32);
    let (image, dir) = (place.image(), place.dir());
    for options in ["rw", "nosandbox"] {
        let output = by_user(&["mount", "-o", options, text(&image), text(&dir)]).output();
        failed(&output.unwrap(), 0, &[]);
        let script = format!("echo x > {}/{options}", text(&dir));
        shell_by_user(&script);
        let pid = daemon(&place);
        let sandboxed = if options == "rw" { "2" } else { "0" };
        assert_eq!(status(&pid, &pid, "Seccomp:"), sandboxed);
        run("kill", &["-TERM", &pid]);
        while Path::new("/proc").join(&pid).exists() {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let table = fs::read_to_string("/proc/self/mounts").unwrap();
        assert!(!table.contains(text(&dir)), "{options}");
        assert_eq!(
            uext4_ok(&["cat", text(&image), &format!("/{options}")]),
            b"x\n"
        );
    }
    place.judge();
}
