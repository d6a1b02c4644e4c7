//! The ways in which a file system can be wrong: one typed variant for each, and what is known of
//! it. `docs/problems.md` is generated from these tables.
//!
//! Each structure has its own enumeration, made by `problems!`; [`Problem`] holds any of them.

use std::fmt;

mod directory;
mod group;
mod inode;
mod journal;
mod links;
mod mapping;
mod quota;
mod superblock;
mod table;
mod xattr;

pub use directory::DirectoryProblem;
pub use group::GroupProblem;
pub use inode::InodeProblem;
pub use journal::JournalProblem;
pub use links::LinksProblem;
pub use mapping::MappingProblem;
pub use quota::QuotaProblem;
pub use superblock::SuperblockProblem;
pub use table::document;
pub use xattr::XattrProblem;

/// Who may decide on the remedy of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The file system is consistent; the next mount or an unattended run completes it.
    Note,
    /// An unattended run (`-p`) mends it: nothing can be lost by the remedy.
    Safe,
    /// Damage; a human should read the plan before it is applied.
    Damage,
}

impl Severity {
    /// For programs and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Safe => "safe",
            Self::Damage => "damage",
        }
    }
}

/// What the remedy of a problem loses, at worst.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loss {
    /// Nothing that the damage did not take.
    Nothing,
    /// A name; the file goes to `lost+found`.
    Name,
    /// Attributes of a file: times, flags, extended attributes.
    Attributes,
    /// A part of a file's contents.
    Data,
    /// A file with all that it holds.
    File,
}

impl Loss {
    /// For programs and documents.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Name => "name",
            Self::Attributes => "attributes",
            Self::Data => "data",
            Self::File => "file",
        }
    }
}

/// What is known of one problem.
#[derive(Clone, Copy, Debug)]
pub struct Info {
    /// A stable name for programs and documents, such as `superblock-magic`.
    pub name: &'static str,
    /// Who may decide.
    pub severity: Severity,
    /// What the remedy loses.
    pub loss: Loss,
    /// The remedy, as a sentence without a full stop.
    pub remedy: &'static str,
    /// The names of the e2fsck problems that it corresponds to.
    pub e2fsck: &'static [&'static str],
    /// What is wrong. `{found}` and `{right}` stand for the numbers of a finding.
    pub text: &'static str,
}

/// Makes the enumeration of a structure's problems. One row for a problem:
///
/// ```text
/// Variant = "stable-name", Severity, Loss, ["PR_…", …],
///     "what is wrong, {found} where {right} should be",
///     "the remedy";
/// ```
macro_rules! problems {
    (
        $(#[$doc:meta])*
        $enumeration:ident:
        $($variant:ident = $name:literal, $severity:ident, $loss:ident, [$($code:literal),*],
            $text:literal, $remedy:literal;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum $enumeration {
            $(
                #[doc = concat!("`", $name, "`: ", $text, ".")]
                $variant,
            )*
        }

        impl $enumeration {
            /// All problems of this structure, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// What is known of this problem.
            pub const fn info(self) -> crate::problem::Info {
                match self {
                    $(Self::$variant => crate::problem::Info {
                        name: $name,
                        severity: crate::problem::Severity::$severity,
                        loss: crate::problem::Loss::$loss,
                        remedy: $remedy,
                        e2fsck: &[$($code),*],
                        text: $text,
                    },)*
                }
            }
        }
    };
}
use problems;

macro_rules! structures {
    ($($variant:ident($enumeration:ident) = $name:literal;)*) => {
        /// A way in which a structure can be wrong.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Problem {
            $(
                #[doc = concat!("Of ", $name, ".")]
                $variant($enumeration),
            )*
        }

        impl Problem {
            /// All problems, structure by structure.
            pub fn all() -> impl Iterator<Item = Self> {
                let none = std::iter::empty();
                $(let none = none.chain($enumeration::ALL.iter().map(|&p| Self::$variant(p)));)*
                none
            }

            /// What is known of this problem.
            pub const fn info(self) -> Info {
                match self {
                    $(Self::$variant(problem) => problem.info(),)*
                }
            }

            /// The structure that is wrong, in words.
            pub const fn structure(self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)*
                }
            }
        }

        $(
            impl From<$enumeration> for Problem {
                fn from(problem: $enumeration) -> Self {
                    Self::$variant(problem)
                }
            }
        )*
    };
}

structures! {
    Superblock(SuperblockProblem) = "superblock";
    Group(GroupProblem) = "block group";
    Journal(JournalProblem) = "journal";
    Inode(InodeProblem) = "inode";
    Mapping(MappingProblem) = "block map";
    Xattr(XattrProblem) = "extended attributes";
    Directory(DirectoryProblem) = "directory";
    Links(LinksProblem) = "links";
    Quota(QuotaProblem) = "quota";
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.info().name)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_problem_has_its_own_name_in_kebab_case() {
        let mut names = HashSet::new();
        for info in Problem::all().map(Problem::info) {
            let kebab = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
            assert!(info.name.bytes().all(kebab), "{}", info.name);
            assert!(names.insert(info.name), "{} twice", info.name);
        }
    }
}
