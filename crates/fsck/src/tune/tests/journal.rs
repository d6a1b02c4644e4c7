//! Journals that are made, where they lie, and the blocks for fast commits.

use super::*;

/// Without a journal.
const BARE: &str = "-t ext4 -b 1024 -O ^has_journal";

/// Changes of the journal, with the options of mke2fs for what they begin with.
pub fn journals() -> Vec<(&'static str, Case)> {
    let features = |list| Change::of_features(list).unwrap();
    let case = |arguments: &str, lists: [Vec<Change>; 2]| {
        let arguments: Vec<_> = arguments.split(' ').collect();
        (
            BARE,
            Case::new("tune2fs", &arguments, lists.into_iter().flatten().collect()),
        )
    };
    let size = || Change::JournalSize(2 << 20);
    let area = |kib: u64| Change::FastCommitSize(kib << 10);
    let at = |place| Change::JournalPlace(place);
    let (block, byte) = (Amount::Blocks, Amount::Bytes);
    let with_fast_commits = || features("fast_commit");
    let none = Vec::new;
    let mut cases = vec![
        case("-j", [features("has_journal"), none()]),
        case("-J size=2", [vec![size()], none()]),
        case(
            "-J size=2,location=9000",
            [vec![size(), at(block(9000))], none()],
        ),
        case(
            "-J size=2,location=12M",
            [vec![size(), at(byte(12 << 20))], none()],
        ),
        case("-J size=2,location=1", [vec![size(), at(block(1))], none()]),
        case(
            "-O fast_commit -j",
            [with_fast_commits(), features("has_journal")],
        ),
        case(
            "-O fast_commit -J size=2",
            [with_fast_commits(), vec![size()]],
        ),
        case(
            "-O fast_commit -J size=2,fast_commit_size=128",
            [with_fast_commits(), vec![size(), area(128)]],
        ),
        // Refused, both.
        case(
            "-O fast_commit -J size=2,fast_commit_size=99999",
            [with_fast_commits(), vec![size(), area(99_999)]],
        ),
        case(
            "-J size=999",
            [vec![Change::JournalSize(999 << 20)], none()],
        ),
    ];
    let has = "-t ext4 -b 1024 -J size=2";
    cases.push((has, case("-O fast_commit", [with_fast_commits(), none()]).1));
    let has = "-t ext4 -b 1024 -J size=2 -O fast_commit";
    cases.push((
        has,
        case("-O ^fast_commit", [features("^fast_commit"), none()]).1,
    ));
    // tune2fs ignores the size where there is a journal.
    let ignored = case(
        "-O fast_commit -J fast_commit_size=512",
        [with_fast_commits(), vec![area(512)]],
    );
    let but: &[_] = &["Max transaction", "Fast commit"];
    cases.push(("-t ext4 -b 1024 -J size=2", Case { but, ..ignored.1 }));
    cases
}

#[test]
fn a_journal_is_that_of_tune2fs() {
    if !has_tools() {
        return;
    }
    let (mut wrong, mut mounts) = (Vec::new(), Mounts::default());
    for (base, case) in journals() {
        let image = filled(base);
        wrong.extend(compare(image.path(), &case, &mut mounts));
        let [ours, theirs] = ["ours", "theirs"].map(|name| image.path().with_extension(name));
        let differs = first_block(&ours) != first_block(&theirs);
        let is_placed = case.arguments.iter().any(|word| word.contains("location"));
        if is_placed && differs {
            wrong.push(format!("{:?}: another place", case.arguments));
        }
    }
    println!("{mounts:?}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Of the journal.
fn first_block(path: &Path) -> String {
    let mut command = Command::new("debugfs");
    let output = command.args(["-R", "bmap <8> 0"]).arg(path).output();
    String::from_utf8_lossy(&output.unwrap().stdout).into_owned()
}

#[test]
fn blocks_for_fast_commits_are_those_of_the_journal_that_is_there() {
    if !has_tools() {
        return;
    }
    let image = filled("-t ext4 -b 1024 -J size=2 -O fast_commit");
    tune_image(image.path(), &[Change::FastCommitSize(512 << 10)]).unwrap();
    assert_eq!(image.found(), [""; 0]);
    assert_clean(image.path());
    let found = dumped(image.path(), &[]);
    assert!(found.contains("Fast commit length:       512"), "{found:?}");
    let large = Change::FastCommitSize(1100 << 10);
    let error = tune_image(image.path(), &[large]).unwrap_err().to_string();
    assert!(error.contains("its log needs 1024"), "{error}");
}

#[test]
fn what_a_journal_cannot_be_is_refused_in_a_sentence() {
    if !has_tools() {
        return;
    }
    let image = filled(BARE);
    let before = fs::read(image.path()).unwrap();
    let cases = [
        (
            Change::JournalPlace(Amount::Bytes(1 << 40)),
            "outside the file system",
        ),
        (
            Change::JournalPlace(Amount::Blocks(0)),
            "outside the file system",
        ),
        (Change::FastCommitSize(1 << 16), "-O fast_commit"),
        (Change::JournalSize(1 << 10), "at least 1024"),
    ];
    for (change, sentence) in cases {
        let error = tune_image(image.path(), &[change]).unwrap_err().to_string();
        assert!(error.contains(sentence), "{error}");
    }
    assert!(fs::read(image.path()).unwrap() == before);
}

#[test]
fn a_journal_on_a_device_that_is_lost_is_given_up() {
    if !has_tools() {
        return;
    }
    let image = filled("-t ext4 -b 1024 -O ^has_journal,^orphan_file");
    let requests = [
        "ssv journal_uuid 11111111-1111-1111-1111-111111111111",
        "ssv journal_dev 0x801",
        "feature has_journal",
    ];
    image.debugfs(&requests);
    let removed = || Change::of_features("^has_journal").unwrap();
    let error = tune_image(image.path(), &removed())
        .unwrap_err()
        .to_string();
    assert!(error.contains("-f -O ^has_journal"), "{error}");
    let mut changes = vec![Change::ForgetJournalDevice];
    changes.extend(removed());
    let case = Case::new("tune2fs", &["-O", "^has_journal"], changes);
    // tune2fs leaves the kind of a copy that it does not make.
    let but: &[_] = &["Journal backup"];
    let complaint = compare(image.path(), &Case { but, ..case }, &mut Mounts::default());
    assert_eq!(complaint, None);
}
