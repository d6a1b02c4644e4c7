//! What is at the name of an image before, meanwhile and after.

use super::*;

fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).unwrap();
    let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
    entries.map(name).collect()
}

#[test]
fn the_name_comes_last() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.img");
    let draft = Output::look_at(&path).unwrap().begin(4096).unwrap();
    draft.device().write_at(0, b"abc").unwrap();
    assert!(!path.exists());
    draft.finish().unwrap();
    assert_eq!(names(dir.path()), ["x.img"]);
    assert_eq!(fs::read(&path).unwrap()[..4], *b"abc\0");
}

#[test]
fn a_hidden_name_does_as_well() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("n".repeat(255));
    let made = hidden_name(&path, dir.path(), |p| {
        FileDevice::create(p, 9).map_err(io_error)
    });
    let (device, name) = made.unwrap().into_parts();
    let draft = Draft {
        path: path.clone(),
        device: Arc::new(device),
        being: Being::Named(name),
        present: None,
    };
    assert!(names(dir.path())[0].starts_with(".nnn"));
    draft.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), [0; 9]);
    assert_eq!(names(dir.path()).len(), 1);
}

#[test]
fn a_stream_gets_a_copy_and_the_directory_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("copy");
    let output = Output::to_stream(File::create(&path).unwrap(), dir.path()).unwrap();
    assert_eq!(
        (output.directory(), output.device_len()),
        (dir.path(), None)
    );
    let draft = output.begin(1 << 20).unwrap();
    draft.device().write_at(4096, b"abc").unwrap();
    assert_eq!(names(dir.path()), ["copy"]);
    assert_eq!(fs::metadata(&path).unwrap().len(), 0);
    draft.finish().unwrap();
    assert_eq!(names(dir.path()), ["copy"]);
    let bytes = fs::read(&path).unwrap();
    assert_eq!((bytes.len(), &bytes[4096..4099]), (1 << 20, &b"abc"[..]));
}

#[test]
fn an_unfinished_image_leaves_no_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("y".repeat(255));
    fs::write(&path, "before").unwrap();
    let draft = Output::look_at(&path).unwrap().begin(1 << 20).unwrap();
    drop(draft);
    assert_eq!(names(dir.path()).len(), 1);
    assert_eq!(fs::read(&path).unwrap(), b"before");
}

#[test]
fn a_link_stays_one() {
    let dir = tempfile::tempdir().unwrap();
    let (real, link) = (dir.path().join("real"), dir.path().join("link"));
    fs::write(&real, "before").unwrap();
    std::os::unix::fs::symlink("real", &link).unwrap();
    let draft = Output::look_at(&link).unwrap().begin(10).unwrap();
    draft.finish().unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(fs::read(&real).unwrap(), [0; 10]);
}

#[test]
fn a_file_in_use_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    fs::write(&path, "before").unwrap();
    let user = FileDevice::open(&path, Access::ReadOnly).unwrap();
    user.lock_shared().unwrap();
    let error = Output::look_at(&path).unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    drop(user);
    let draft = Output::look_at(&path).unwrap().begin(10).unwrap();
    let user = FileDevice::open(&path, Access::ReadOnly).unwrap();
    assert!(user.lock_shared().is_err(), "the draft gave its lock up");
    // Another program replaces the file, and uses it.
    let other = dir.path().join("other");
    fs::write(&other, "other").unwrap();
    fs::rename(&other, &path).unwrap();
    let user = FileDevice::open(&path, Access::ReadOnly).unwrap();
    user.lock_shared().unwrap();
    let error = draft.finish().unwrap_err();
    assert!(error.to_string().contains("in use"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"other");
}

#[test]
fn a_file_that_appears_meanwhile_stays() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let draft = Output::look_at(&path).unwrap().begin(10).unwrap();
    fs::write(&path, "new").unwrap();
    let error = draft.finish().unwrap_err();
    assert!(error.to_string().contains("meanwhile"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"new");
    assert_eq!(names(dir.path()), ["image"]);
    // What is there is no file: a link that leads nowhere.
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let draft = Output::look_at(&link).unwrap().begin(10).unwrap();
    draft.finish().unwrap();
    assert_eq!(fs::read(&link).unwrap(), [0; 10]);
}

#[test]
fn the_permission_bits_stay() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    for mode in [0o600, 0o664] {
        fs::write(&path, "before").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let draft = Output::look_at(&path).unwrap().begin(10).unwrap();
        draft.finish().unwrap();
        let found = fs::metadata(&path).unwrap();
        assert_eq!((found.mode() & 0o7777, found.len()), (mode, 10));
    }
}

#[test]
fn what_cannot_be_an_image_is_refused() {
    for path in ["/dev/null", "/"] {
        let error = Output::look_at(Path::new(path)).unwrap_err().to_string();
        assert!(
            error.contains("neither a file nor a block device"),
            "{error}"
        );
    }
    let nowhere = Output::look_at(Path::new("/no/such/dir/x.img")).unwrap();
    assert!(
        nowhere
            .begin(1)
            .unwrap_err()
            .to_string()
            .contains("/no/such/dir/x.img")
    );
}
