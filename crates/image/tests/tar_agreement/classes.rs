//! The disagreements that have a name and a reason; `docs/tar-reader.md` shows them as tables.

use std::collections::{BTreeMap, BTreeSet};

use crate::readers::Reader::{self, Bsd, Gnu, Go, Python};
use crate::tree::Outcome;

/// How we and another reader disagree about an archive.
pub struct Disagreement<'a> {
    pub reader: Reader,
    pub ours: &'a Outcome,
    pub theirs: &'a Outcome,
    /// What differs if both accept.
    pub differences: BTreeMap<&'static str, String>,
    /// What the archive has in it, see [`crate::features`].
    pub features: &'a BTreeSet<&'static str>,
}

/// What belongs to a class.
pub enum Test {
    /// We refuse with one of these texts, and another reader accepts.
    WeRefuse(&'static [&'static str]),
    /// We accept, and these readers refuse with one of these texts; the archive has one of these
    /// features, or any if there is nothing here.
    TheyRefuse(
        &'static [Reader],
        &'static [&'static str],
        &'static [&'static str],
    ),
    /// We accept what these readers take for another tree, which differs in no more than this, or
    /// in anything if there is nothing here; the archive has one of these features.
    TreesDiffer(
        &'static [Reader],
        &'static [&'static str],
        &'static [&'static str],
    ),
}

/// A named disagreement.
pub struct Class {
    pub name: &'static str,
    pub test: Test,
    /// What the readers do.
    pub readers: &'static str,
    /// Why what we do is the safe choice.
    pub why: &'static str,
}

impl Class {
    pub fn holds(&self, it: &Disagreement<'_>) -> bool {
        let any = |texts: &[&str], said: &str| texts.iter().any(|text| said.contains(text));
        match (&self.test, it.ours, it.theirs) {
            (Test::WeRefuse(texts), Outcome::Refused(said), _) => any(texts, said),
            (
                Test::TheyRefuse(readers, texts, features),
                Outcome::Accepted { .. },
                Outcome::Refused(said),
            ) => readers.contains(&it.reader) && any(texts, said) && it.has_one_of(features),
            (
                Test::TreesDiffer(readers, aspects, features),
                Outcome::Accepted { .. },
                Outcome::Accepted { .. },
            ) => {
                let within = |aspect: &&str| aspects.is_empty() || aspects.contains(aspect);
                readers.contains(&it.reader)
                    && it.differences.keys().all(within)
                    && it.has_one_of(features)
            }
            _ => false,
        }
    }
}

impl Disagreement<'_> {
    fn has_one_of(&self, features: &[&'static str]) -> bool {
        let has = |feature: &&str| self.features.contains(feature);
        features.is_empty() || features.iter().any(has)
    }

    /// A line for a failure.
    pub fn text(&self) -> String {
        let short = |text: &str| text.lines().collect::<Vec<_>>().join(" | ");
        match (self.ours, self.theirs) {
            (Outcome::Refused(ours), Outcome::Accepted { remarks, .. }) => {
                format!("refused by us ({ours}), accepted ({})", short(remarks))
            }
            (Outcome::Accepted { .. }, Outcome::Refused(theirs)) => {
                format!("accepted by us, refused ({})", short(theirs))
            }
            _ => format!("trees differ: {:?}", self.differences),
        }
    }
}

/// The classes; the first that holds counts.
pub const CLASSES: &[Class] = &[
    Class {
        name: "two headers of one kind",
        test: Test::WeRefuse(&["a second one for the same member"]),
        readers: "Of two x, L or K before one member GNU tar and Go take the last, Python the \
                  first, bsdtar both.",
        why: "The readers see different names and sizes.",
    },
    Class {
        name: "a record and a long name",
        test: Test::WeRefuse(&["a header of GNU tar says something else"]),
        readers: "GNU tar takes the name of the record, Go that of the L header, bsdtar and \
                  Python go by the order.",
        why: "The readers see different names.",
    },
    Class {
        name: "two global headers",
        test: Test::WeRefuse(&[
            "leaves out what an earlier one says",
            "says something twice",
        ]),
        readers: "GNU tar forgets the first header, and takes the first of two equal keys; the \
                  others add up, and take the last.",
        why: "The readers see different attributes. A second header that says all again is \
              accepted.",
    },
    Class {
        name: "a global name, size or map",
        test: Test::WeRefuse(&["the same name, size or holes"]),
        readers: "GNU tar and Python give it to every member, bsdtar ignores global records.",
        why: "The readers see different members, and no archive can mean it.",
    },
    Class {
        name: "a size of what has no contents",
        test: Test::WeRefuse(&["of what has no contents", "of a hard link, in a record"]),
        readers: "By a size record of a link, device or directory bsdtar skips contents; the \
                  others read what follows as headers.",
        why: "The readers see different members. It is how an archive hides members from a \
              scanner (as CVE-2025-62518 does).",
    },
    Class {
        name: "a file whose name ends in a slash",
        test: Test::WeRefuse(&["whose name ends in a slash"]),
        readers: "GNU tar takes it for a directory without contents, Python and Go for a file \
                  unless the type is that of v7.",
        why: "With contents, the readers see different members. Without, it is a directory, as \
              for GNU tar.",
    },
    Class {
        name: "an unknown type with a slash",
        test: Test::WeRefuse(&["unknown, of a name that ends in a slash"]),
        readers: "bsdtar takes it for a directory, the others for a file.",
        why: "The readers see different members.",
    },
    Class {
        name: "a sparse map with an odd piece",
        test: Test::WeRefuse(&["is not of whole blocks", "ends before the file does"]),
        readers: "GNU tar begins every piece at a block of the archive and ends the file with the \
                  map; the others put pieces end to end and go by the real size.",
        why: "The readers see different contents. No writer makes such maps.",
    },
    Class {
        name: "a wrong sparse map",
        test: Test::WeRefuse(&[
            "pieces overlap",
            "passes the end",
            "longer than what is stored",
            "shorter than what is stored",
            "offsets and lengths do not alternate",
            "sparse map: ",
        ]),
        readers: "Some readers write what they can.",
        why: "The contents are damaged.",
    },
    Class {
        name: "a number that is none",
        test: Test::WeRefuse(&[
            "not an octal number",
            "not a decimal",
            "number out of range",
            "header: out of range",
        ]),
        readers: "Python and bsdtar take zero or a part of the digits, GNU tar fails or warns.",
        why: "An owner, a time or a size would be made up. The owner 2^32 - 1 means \"leave it\" \
              to system calls.",
    },
    Class {
        name: "a record that cannot be read",
        test: Test::WeRefuse(&[
            "no length",
            "length is wrong",
            "no line end",
            "no \"=\"",
            "an empty value",
            "a zero byte in a name",
            "name of the attribute",
        ]),
        readers: "Some readers skip the record, cut the value, or read on behind it.",
        why: "What the rest of the header says depends on the reader. An empty value deletes the \
              header's own by POSIX, which no reader does.",
    },
    Class {
        name: "an archive without its end",
        test: Test::WeRefuse(&["cut short", "not a tar archive (empty"]),
        readers: "The others accept an archive that ends between two members, or in a header.",
        why: "It may be half of an archive. A layer whose digest is right is not: it is accepted \
              with a note.",
    },
    Class {
        name: "not a header",
        test: Test::WeRefuse(&["header checksum", "not a tar archive"]),
        readers: "bsdtar looks for the next header; the others fail or take it for the end.",
        why: "Members may be missing.",
    },
    Class {
        name: "names that no image can hold",
        test: Test::WeRefuse(&["a name longer than 255 bytes", "\"..\" in the path"]),
        readers: "Lists of members have them; extracting fails, or leaves them out.",
        why: "The file system has no such names.",
    },
    Class {
        name: "members in each other's way",
        test: Test::WeRefuse(&[
            "the root can only be",
            "would replace a directory",
            "hard link to",
            "is not a directory",
            "too many symbolic links",
            "target is empty",
        ]),
        readers: "What is extracted depends on the order and on the reader's options.",
        why: "Whatever is left would not be what the archive says.",
    },
    Class {
        name: "hard links with contents",
        test: Test::TheyRefuse(
            &[Gnu, Go, Python],
            &[
                "Skipping to next header",
                "invalid tar header",
                "cannot be read taken as the end",
                "end of file header",
                "invalid header",
                "unexpected EOF",
                "Unexpected EOF",
            ],
            &["hard link"],
        ),
        readers: "POSIX lets a hard link repeat the contents. bsdtar skips them, the others take \
                  them for a header and stop.",
        why: "They are skipped only if they cannot be a header, so no reader sees other members.",
    },
    Class {
        name: "bsdtar skips and warns",
        test: Test::TheyRefuse(
            &[Bsd],
            &["Damaged tar archive", "Unrecognized archive format"],
            &[],
        ),
        readers: "bsdtar checks more of a header (or less of its numbers) than GNU tar.",
        why: "The tree is that of GNU tar, or it refuses, too.",
    },
    Class {
        name: "bsdtar extracts less",
        test: Test::TheyRefuse(
            &[Bsd],
            &[
                "Cannot restore extended attributes",
                "pointing to itself",
                "through symlink",
                "can't be converted",
                "empty or unreadable filename",
                "cannot be sparse",
                "malformed pax",
                "(null)",
                "Can't",
                "Could not",
            ],
            &[],
        ),
        readers: "bsdtar does not follow links, recode names that are not UTF-8, or link a file \
                  to itself.",
        why: "The tree is that of GNU tar.",
    },
    Class {
        name: "hard links with contents, extracted",
        test: Test::TreesDiffer(&[Bsd], &[], &["hard link"]),
        readers: "bsdtar writes the contents into the file that is linked.",
        why: "By POSIX they are those of the file. GNU tar refuses such archives.",
    },
    Class {
        name: "odd numbers that an image does not hold",
        test: Test::TheyRefuse(
            &[Gnu, Go, Python],
            &[
                "value expected",
                "is out of",
                "Archive value",
                "invalid tar header",
                "invalid header",
                "taken as the end",
                "extraction: number",
            ],
            &[],
        ),
        readers: "GNU tar, Go and Python fail at any number of a header.",
        why: "It is in a label, in a hard link, in the mode of a symbolic link, or in bits that a \
              mode does not have.",
    },
    Class {
        name: "a link to nothing as a directory",
        test: Test::TheyRefuse(&[Gnu], &["Cannot hard link to"], &["hard link"]),
        readers: "GNU tar fails to make a hard link to what a link to nothing leads to.",
        why: "The directory that the link leads to is made, as it is for other members.",
    },
    Class {
        name: "an empty name",
        test: Test::TheyRefuse(&[Gnu], &["Substituting `.'", "Cannot open"], &[]),
        readers: "GNU tar takes it for \".\", as we do, but fails to replace the directory.",
        why: "A directory of that name is the root. Anything else is refused.",
    },
    Class {
        name: "a time as 1e-09",
        test: Test::TreesDiffer(&[Gnu, Bsd, Go], &["mtime"], &["exponent"]),
        readers: "Python writes times close to 1970 so. GNU tar and bsdtar read one second.",
        why: "It is what the writer meant; 1e3 and the like, which no writer makes, are refused.",
    },
    Class {
        name: "a leading zero byte",
        test: Test::TreesDiffer(
            &[Bsd, Python],
            &["mode", "owner", "mtime"],
            &["leading zero byte"],
        ),
        readers: "GNU tar and Go skip one in front of a number; bsdtar and Python read 0.",
        why: "As GNU tar.",
    },
    Class {
        name: "negative times with a fraction",
        test: Test::TreesDiffer(&[Bsd], &["mtime"], &["negative time"]),
        readers: "bsdtar cuts the fraction of -1.5 off, the others go down to -2.",
        why: "As GNU tar.",
    },
    Class {
        name: "volume labels",
        test: Test::TreesDiffer(&[Bsd, Python, Go], &[], &["volume label"]),
        readers: "To GNU tar a member of type V is the name of the archive, with the headers \
                  before it; the others make a file of it, or apply them to the next member.",
        why: "As GNU tar, which alone writes them.",
    },
    Class {
        name: "labels, dumped directories and slashes in the way",
        test: Test::TheyRefuse(
            &[Python, Go, Bsd, Gnu],
            &[
                "extraction: ",
                "Hard-link target",
                "Member name contains '..'",
                "taken as the end",
                "invalid header",
                "invalid tar header",
            ],
            &["volume label", "slash", "hard link", "dumped directory"],
        ),
        readers: "Who takes a label or a list of names for a file, or goes by the slash of a name \
                  that a long name replaces, cannot extract it, or reads on at another place.",
        why: "As GNU tar, which fails only at labels with \"..\".",
    },
    Class {
        name: "headers without a member",
        test: Test::TheyRefuse(&[Python], &["end of file header"], &[]),
        readers: "Python fails if an extended header is the last of an archive.",
        why: "As GNU tar, bsdtar and Go. An archive that was cut there has no end, and is refused.",
    },
    Class {
        name: "half of the second zero block",
        test: Test::TheyRefuse(&[Go], &["unexpected EOF"], &[]),
        readers: "Go wants two blocks of zeroes, or the end of the file between them.",
        why: "One block of zeroes ends an archive for all.",
    },
    Class {
        name: "files whose name ends in a slash, empty",
        test: Test::TreesDiffer(&[Python, Go], &[], &["slash"]),
        readers: "Python and Go take them for files, unless the type is that of v7.",
        why: "As GNU tar and bsdtar.",
    },
    Class {
        name: "dumped directories",
        test: Test::TreesDiffer(&[Python, Go], &[], &["dumped directory"]),
        readers: "Python and Go take type D (GNU tar's incremental archives) for a file with the \
                  list of names.",
        why: "As GNU tar, which alone writes them, and bsdtar.",
    },
    Class {
        name: "a prefix in another format",
        test: Test::TreesDiffer(&[Python, Go], &[], &["prefix of another format"]),
        readers: "Old GNU headers have times where POSIX has the prefix, v7 headers nothing. Go \
                  guesses, Python takes it for a prefix.",
        why: "As GNU tar and bsdtar.",
    },
    Class {
        name: "a sparse name without a map",
        test: Test::TreesDiffer(&[Go], &[], &["sparse"]),
        readers: "Go ignores the name of a sparse file that has no map.",
        why: "As GNU tar.",
    },
    Class {
        name: "devices in v7 headers",
        test: Test::TreesDiffer(&[Python], &["device", "mtime", "owner"], &["device in v7"]),
        readers: "Python reads a number where the format has none.",
        why: "As GNU tar, bsdtar and Go.",
    },
    Class {
        name: "global records ignored",
        test: Test::TreesDiffer(&[Bsd, Python], &["mtime", "owner"], &["global records"]),
        readers: "bsdtar ignores them, Python for members of type S.",
        why: "As GNU tar.",
    },
    Class {
        name: "a directory twice",
        test: Test::TreesDiffer(&[Bsd], &["mtime"], &["directory twice"]),
        readers: "bsdtar gives it the first time, the others the last.",
        why: "As GNU tar.",
    },
];

/// The class of a disagreement.
pub fn class_of(it: &Disagreement<'_>) -> Option<&'static Class> {
    CLASSES.iter().find(|class| class.holds(it))
}
