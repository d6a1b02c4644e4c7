//! What is made of a finished image: a disk, a verified one, a stream, one for several hosts.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

use crate::host::{
    Mount, UEXT4, assert_clean, can_mount, dumpe2fs, has_tool, run, scratch, text, uext4, uext4_ok,
};

const ALIGN: usize = 1 << 20;

/// A directory with some files, one of them mostly a hole.
fn source(dir: &Path) -> std::path::PathBuf {
    let source = dir.join("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    fs::write(source.join("hello"), "hello, world\n").unwrap();
    fs::write(source.join("sub/data"), vec![7; 3_000_000]).unwrap();
    let sparse = File::create(source.join("sub/sparse")).unwrap();
    sparse.set_len(200 << 20).unwrap();
    let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_700_000_000);
    sparse.set_modified(old).unwrap();
    source
}

/// Builds, and returns what `--json` says.
fn build(source: &Path, image: &Path, more: &[&str]) -> Value {
    let mut arguments = vec!["build", "--json", text(source), "-o", text(image), "-F"];
    arguments.extend(more);
    serde_json::from_slice(&uext4_ok(&arguments)).unwrap()
}

fn used(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// What veritysetup says of data and tree, each a file of its own.
fn verify(dir: &Path, data: &[u8], tree: &[u8], hash_file: &Path) -> Result<Vec<u8>, String> {
    let (data_path, tree_path) = (dir.join("data"), dir.join("tree"));
    fs::write(&data_path, data).unwrap();
    fs::write(&tree_path, tree).unwrap();
    let hash_file = format!("--root-hash-file={}", text(hash_file));
    let arguments = ["verify", text(&data_path), text(&tree_path), &hash_file];
    uext4_testkit::try_run("veritysetup", arguments)
}

fn partitions(image: &Path) -> Vec<Value> {
    let said = run("sfdisk", &["--json", text(image)]);
    let said: Value = serde_json::from_slice(&said).unwrap();
    said["partitiontable"]["partitions"]
        .as_array()
        .unwrap()
        .clone()
}

fn bytes_of<'a>(image: &'a [u8], partition: &Value) -> &'a [u8] {
    let number = |key: &str| partition[key].as_u64().unwrap() as usize * 512;
    &image[number("start")..][..number("size")]
}

#[test]
fn a_disk_image_has_the_file_system_in_a_partition() {
    let scratch = scratch();
    let source = source(scratch.path());
    let [image, again] = ["image", "again"].map(|name| scratch.path().join(name));
    let flags = ["--gpt", "--gpt-type", "root-arm64", "--gpt-name", "wurzel"];
    let made = build(&source, &image, &flags);
    let len = fs::metadata(&image).unwrap().len();
    assert_eq!(
        (made["size"].as_u64().unwrap(), len % ALIGN as u64),
        (len, 0)
    );
    let listed = uext4_ok(&["cat", text(&image), "/hello"]);
    assert_eq!(listed, b"hello, world\n");
    uext4_ok(&["check", text(&image)]);
    build(&source, &again, &flags);
    assert!(fs::read(&image).unwrap() == fs::read(&again).unwrap());
    assert!(used(&image) < 20 << 20, "{} bytes", used(&image));
    if has_tool("sfdisk") {
        run("sfdisk", &["--verify", text(&image)]);
        let partitions = partitions(&image);
        assert_eq!(partitions.len(), 1);
        assert_eq!(partitions[0]["name"], "wurzel");
        let fs_path = scratch.path().join("fs");
        fs::write(
            &fs_path,
            bytes_of(&fs::read(&image).unwrap(), &partitions[0]),
        )
        .unwrap();
        assert_clean(&fs_path);
    }
    // --size is that of the whole.
    build(&source, &image, &["--gpt", "--size", "64M"]);
    assert_eq!(fs::metadata(&image).unwrap().len(), 64 << 20);
    uext4_ok(&["check", text(&image)]);
}

/// Verifies an image with nothing but what `--json` says: the superblock of the tree is not read.
fn check_parameters(image: &Path, verity: &Value) {
    if !has_tool("veritysetup") {
        return;
    }
    let number = |key: &str| verity[key].as_u64().unwrap();
    let word = |key: &str| verity[key].as_str().unwrap();
    let options = [
        format!("--format={}", number("hash_type")),
        format!("--hash={}", word("hash_algorithm")),
        format!("--salt={}", word("salt")),
        format!("--data-blocks={}", number("data_blocks")),
        format!("--data-block-size={}", number("data_block_size")),
        format!("--hash-block-size={}", number("hash_block_size")),
        format!(
            "--hash-offset={}",
            number("hash_offset") + number("hash_block_size")
        ),
    ];
    // veritysetup has no offset of data.
    let data = image.with_extension("data");
    let bytes = fs::read(image).unwrap();
    fs::write(&data, &bytes[number("data_offset") as usize..]).unwrap();
    let mut arguments = vec!["verify", "--no-superblock", text(&data), text(image)];
    arguments.push(word("root_hash"));
    arguments.extend(options.iter().map(String::as_str));
    uext4_testkit::try_run("veritysetup", arguments).unwrap();
}

#[test]
fn a_verified_image_has_a_hash_tree_after_the_file_system() {
    let scratch = scratch();
    let source = source(scratch.path());
    let [image, again, hash] = ["image", "again", "hash"].map(|name| scratch.path().join(name));
    let flags = ["--verity", "--root-hash", text(&hash)];
    let made = build(&source, &image, &flags);
    let root = fs::read_to_string(&hash).unwrap();
    assert_eq!((made["root_hash"].as_str(), root.len()), (Some(&*root), 64));
    assert_clean(&image);
    uext4_ok(&["check", text(&image)]);
    build(&source, &again, &flags);
    let bytes = fs::read(&image).unwrap();
    assert!(bytes == fs::read(&again).unwrap());
    assert!(used(&image) < 30 << 20, "{} bytes", used(&image));
    if has_tool("veritysetup") {
        let blocks = made["blocks"].as_u64().unwrap() * made["block_size"].as_u64().unwrap();
        let (data, tree) = bytes.split_at(blocks as usize);
        verify(scratch.path(), data, tree, &hash).unwrap();
        let mut other = data.to_vec();
        other[blocks as usize - 1] ^= 0x80;
        verify(scratch.path(), &other, tree, &hash).unwrap_err();
    }
    check_parameters(&image, &made["verity"]);
    // Another salt, another hash.
    for salt in ["none", "00ff"] {
        let other = build(&source, &again, &["--verity", "--verity-salt", salt]);
        assert_ne!(other["root_hash"], made["root_hash"]);
        check_parameters(&again, &other["verity"]);
    }
    // The text has it too.
    let arguments = ["build", text(&source), "-o", text(&again), "-F", "--verity"];
    let said = String::from_utf8(uext4_ok(&arguments)).unwrap();
    assert!(said.contains(&root), "{said}");
}

#[test]
fn a_verified_disk_has_a_partition_for_each() {
    let scratch = scratch();
    let source = source(scratch.path());
    let [image, hash] = ["image", "hash"].map(|name| scratch.path().join(name));
    let flags = [
        "--gpt",
        "--gpt-type",
        "usr-x86-64",
        "--verity",
        "--size",
        "48M",
    ];
    let mut arguments = flags.to_vec();
    arguments.extend(["--root-hash", text(&hash)]);
    let made = build(&source, &image, &arguments);
    check_parameters(&image, &made["verity"]);
    assert_eq!(fs::metadata(&image).unwrap().len(), 48 << 20);
    uext4_ok(&["check", text(&image)]);
    if has_tool("sfdisk") && has_tool("veritysetup") {
        run("sfdisk", &["--verify", text(&image)]);
        let partitions = partitions(&image);
        let bytes = fs::read(&image).unwrap();
        let [data, tree] = [0, 1].map(|index| bytes_of(&bytes, &partitions[index]));
        verify(scratch.path(), data, tree, &hash).unwrap();
        // The halves of the root hash are the GUIDs of the partitions.
        let guid = |index: usize| {
            let guid = partitions[index]["uuid"].as_str().unwrap();
            guid.replace('-', "").to_lowercase()
        };
        assert_eq!(guid(0) + &guid(1), fs::read_to_string(&hash).unwrap());
    }
}

#[test]
fn an_image_can_go_to_standard_output() {
    let scratch = scratch();
    let source = source(scratch.path());
    let [image, copy] = ["image", "copy"].map(|name| scratch.path().join(name));
    let built = |arguments: &[&str], to: std::process::Stdio| -> Output {
        let mut command = Command::new(UEXT4);
        command
            .args(["build", text(&source), "-o", "-"])
            .args(arguments);
        command.env("TMPDIR", scratch.path()).stdout(to);
        let child = command
            .stderr(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.wait_with_output().unwrap()
    };
    for flags in [&[][..], &["--gpt", "--min"], &["--verity"]] {
        build(&source, &image, flags);
        let output = built(flags, std::process::Stdio::piped());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{said}");
        assert!(output.stdout == fs::read(&image).unwrap(), "{flags:?}");
        assert!(said.contains("UUID"), "{said}");
    }
    let output = built(&["-q"], File::create(&copy).unwrap().into());
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    build(&source, &image, &[]);
    assert!(fs::read(&copy).unwrap() == fs::read(&image).unwrap());
    assert!(used(&copy) < 20 << 20, "{} bytes", used(&copy));
    let names = fs::read_dir(scratch.path()).unwrap().count();
    assert_eq!(names, 3, "a temporary file was left");
    if let Ok(terminal) = File::options().read(true).write(true).open("/dev/ptmx") {
        let output = built(&[], terminal.into());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("terminal"), "{said}");
    }
}

#[test]
fn an_image_for_several_hosts_can_be_mounted_by_one() {
    let scratch = scratch();
    let source = source(scratch.path());
    let image = scratch.path().join("image");
    for flags in [["--for-network"].as_slice(), &["-O", "mmp"]] {
        build(&source, &image, flags);
        uext4_ok(&["check", text(&image)]);
        if has_tool("e2fsck") {
            assert_clean(&image);
            let shown = dumpe2fs(&image);
            let block = shown
                .lines()
                .find(|line| line.starts_with("MMP block number"));
            assert!(block.is_some_and(|line| !line.ends_with(" 0")), "{shown}");
        }
    }
    if can_mount() {
        // The kernel waits for 11 seconds, and then writes.
        let mount = Mount::new(&image, "rw");
        fs::write(mount.path().join("new"), "new").unwrap();
        assert_eq!(
            fs::read(mount.path().join("hello")).unwrap(),
            b"hello, world\n"
        );
        drop(mount);
        assert_clean(&image);
    }
}

#[test]
fn flags_that_do_not_fit_are_refused() {
    let scratch = scratch();
    let source = source(scratch.path());
    let image = scratch.path().join("image");
    for (flags, said) in [
        (&["--gpt-type", "linux"][..], "--gpt"),
        (&["--gpt-name", "x"], "--gpt"),
        (&["--root-hash", "x"], "--verity"),
        (&["--verity-salt", "00"], "--verity"),
        (&["--verity", "--verity-salt", "abc"], "hexadecimal"),
        (&["--gpt", "--gpt-type", "esp"], "root-ARCH"),
        (
            &[
                "--gpt",
                "--gpt-name",
                "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn",
            ],
            "36",
        ),
        (&["--gpt", "--verity"], "root-ARCH"),
        (&["--gpt", "-E", "offset=1M"], "offset"),
    ] {
        let mut arguments = vec!["build", text(&source), "-o", text(&image)];
        arguments.extend(flags);
        let output = uext4(&arguments);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {stderr}");
        assert!(stderr.contains(said), "{flags:?}: {stderr}");
        assert!(!image.exists());
    }
}
