//! Types of partitions that hold a file system, by the names that systemd and its
//! [Discoverable Partitions Specification][dps] use.
//!
//! [dps]: https://uapi-group.org/specifications/specs/discoverable_partitions_specification/

use std::str::FromStr;

use uuid::{Uuid, uuid};

/// Type of a partition with a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionType {
    /// Its name, such as "root-x86-64"; "" for a GUID that has none here.
    name: &'static str,
    guid: Uuid,
    /// Type of the partition with its hash tree, where the specification has one.
    verity: Option<Uuid>,
}

/// Why something is no type of a partition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is neither a GUID nor a partition type: linux, home, srv, tmp, var, root-ARCH or \
     usr-ARCH, such as root-x86-64 or root-arm64"
)]
pub struct UnknownType {
    text: String,
}

impl PartitionType {
    /// Any file system of Linux.
    pub const LINUX: Self = TYPES[0];

    /// Its name, such as "root-x86-64"; "" for a GUID that has none here.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its GUID.
    #[must_use]
    pub fn guid(&self) -> Uuid {
        self.guid
    }

    /// Type of the partition with the hash tree of one of this type; `None` if the specification
    /// has none.
    #[must_use]
    pub fn verity(&self) -> Option<Uuid> {
        self.verity
    }

    /// All that have a name.
    #[must_use]
    pub fn all() -> &'static [Self] {
        TYPES
    }
}

/// A name or a GUID.
impl FromStr for PartitionType {
    type Err = UnknownType;

    fn from_str(text: &str) -> Result<Self, UnknownType> {
        if let Some(known) = TYPES.iter().find(|known| known.name == text) {
            return Ok(*known);
        }
        let unknown = |_| UnknownType {
            text: text.to_owned(),
        };
        let guid = Uuid::try_parse(text).map_err(unknown)?;
        let known = TYPES.iter().find(|known| known.guid == guid);
        Ok(known.copied().unwrap_or(plain("", guid)))
    }
}

const fn plain(name: &'static str, guid: Uuid) -> PartitionType {
    PartitionType {
        name,
        guid,
        verity: None,
    }
}

const TYPES: &[PartitionType] = &[
    plain("linux", uuid!("0fc63daf-8483-4772-8e79-3d69d8477de4")),
    plain("home", uuid!("933ac7e1-2eb4-4f13-b844-0e14e2aef915")),
    plain("srv", uuid!("3b8f8425-20e0-4f3b-907f-1a25a76f98e8")),
    plain("tmp", uuid!("7ec6f557-3bc5-4aca-b293-16ef5df639d1")),
    plain("var", uuid!("4d21b016-b534-45c2-a9fb-5c16e091fd2d")),
    PartitionType {
        name: "root-alpha",
        guid: uuid!("6523f8ae-3eb1-4e2a-a05a-18b695ae656f"),
        verity: Some(uuid!("fc56d9e9-e6e5-4c06-be32-e74407ce09a5")),
    },
    PartitionType {
        name: "root-arc",
        guid: uuid!("d27f46ed-2919-4cb8-bd25-9531f3c16534"),
        verity: Some(uuid!("24b2d975-0f97-4521-afa1-cd531e421b8d")),
    },
    PartitionType {
        name: "root-arm",
        guid: uuid!("69dad710-2ce4-4e3c-b16c-21a1d49abed3"),
        verity: Some(uuid!("7386cdf2-203c-47a9-a498-f2ecce45a2d6")),
    },
    PartitionType {
        name: "root-arm64",
        guid: uuid!("b921b045-1df0-41c3-af44-4c6f280d3fae"),
        verity: Some(uuid!("df3300ce-d69f-4c92-978c-9bfb0f38d820")),
    },
    PartitionType {
        name: "root-ia64",
        guid: uuid!("993d8d3d-f80e-4225-855a-9daf8ed7ea97"),
        verity: Some(uuid!("86ed10d5-b607-45bb-8957-d350f23d0571")),
    },
    PartitionType {
        name: "root-loongarch64",
        guid: uuid!("77055800-792c-4f94-b39a-98c91b762bb6"),
        verity: Some(uuid!("f3393b22-e9af-4613-a948-9d3bfbd0c535")),
    },
    PartitionType {
        name: "root-mips-le",
        guid: uuid!("37c58c8a-d913-4156-a25f-48b1b64e07f0"),
        verity: Some(uuid!("d7d150d2-2a04-4a33-8f12-16651205ff7b")),
    },
    PartitionType {
        name: "root-mips64-le",
        guid: uuid!("700bda43-7a34-4507-b179-eeb93d7a7ca3"),
        verity: Some(uuid!("16b417f8-3e06-4f57-8dd2-9b5232f41aa6")),
    },
    PartitionType {
        name: "root-ppc",
        guid: uuid!("1de3f1ef-fa98-47b5-8dcd-4a860a654d78"),
        verity: Some(uuid!("98cfe649-1588-46dc-b2f0-add147424925")),
    },
    PartitionType {
        name: "root-ppc64",
        guid: uuid!("912ade1d-a839-4913-8964-a10eee08fbd2"),
        verity: Some(uuid!("9225a9a3-3c19-4d89-b4f6-eeff88f17631")),
    },
    PartitionType {
        name: "root-ppc64-le",
        guid: uuid!("c31c45e6-3f39-412e-80fb-4809c4980599"),
        verity: Some(uuid!("906bd944-4589-4aae-a4e4-dd983917446a")),
    },
    PartitionType {
        name: "root-riscv32",
        guid: uuid!("60d5a7fe-8e7d-435c-b714-3dd8162144e1"),
        verity: Some(uuid!("ae0253be-1167-4007-ac68-43926c14c5de")),
    },
    PartitionType {
        name: "root-riscv64",
        guid: uuid!("72ec70a6-cf74-40e6-bd49-4bda08e8f224"),
        verity: Some(uuid!("b6ed5582-440b-4209-b8da-5ff7c419ea3d")),
    },
    PartitionType {
        name: "root-s390",
        guid: uuid!("08a7acea-624c-4a20-91e8-6e0fa67d23f9"),
        verity: Some(uuid!("7ac63b47-b25c-463b-8df8-b4a94e6c90e1")),
    },
    PartitionType {
        name: "root-s390x",
        guid: uuid!("5eead9a9-fe09-4a1e-a1d7-520d00531306"),
        verity: Some(uuid!("b325bfbe-c7be-4ab8-8357-139e652d2f6b")),
    },
    PartitionType {
        name: "root-tilegx",
        guid: uuid!("c50cdd70-3862-4cc3-90e1-809a8c93ee2c"),
        verity: Some(uuid!("966061ec-28e4-4b2e-b4a5-1f0a825a1d84")),
    },
    PartitionType {
        name: "root-x86",
        guid: uuid!("44479540-f297-41b2-9af7-d131d5f0458a"),
        verity: Some(uuid!("d13c5d3b-b5d1-422a-b29f-9454fdc89d76")),
    },
    PartitionType {
        name: "root-x86-64",
        guid: uuid!("4f68bce3-e8cd-4db1-96e7-fbcaf984b709"),
        verity: Some(uuid!("2c7357ed-ebd2-46d9-aec1-23d437ec2bf5")),
    },
    PartitionType {
        name: "usr-alpha",
        guid: uuid!("e18cf08c-33ec-4c0d-8246-c6c6fb3da024"),
        verity: Some(uuid!("8cce0d25-c0d0-4a44-bd87-46331bf1df67")),
    },
    PartitionType {
        name: "usr-arc",
        guid: uuid!("7978a683-6316-4922-bbee-38bff5a2fecc"),
        verity: Some(uuid!("fca0598c-d880-4591-8c16-4eda05c7347c")),
    },
    PartitionType {
        name: "usr-arm",
        guid: uuid!("7d0359a3-02b3-4f0a-865c-654403e70625"),
        verity: Some(uuid!("c215d751-7bcd-4649-be90-6627490a4c05")),
    },
    PartitionType {
        name: "usr-arm64",
        guid: uuid!("b0e01050-ee5f-4390-949a-9101b17104e9"),
        verity: Some(uuid!("6e11a4e7-fbca-4ded-b9e9-e1a512bb664e")),
    },
    PartitionType {
        name: "usr-ia64",
        guid: uuid!("4301d2a6-4e3b-4b2a-bb94-9e0b2c4225ea"),
        verity: Some(uuid!("6a491e03-3be7-4545-8e38-83320e0ea880")),
    },
    PartitionType {
        name: "usr-loongarch64",
        guid: uuid!("e611c702-575c-4cbe-9a46-434fa0bf7e3f"),
        verity: Some(uuid!("f46b2c26-59ae-48f0-9106-c50ed47f673d")),
    },
    PartitionType {
        name: "usr-mips-le",
        guid: uuid!("0f4868e9-9952-4706-979f-3ed3a473e947"),
        verity: Some(uuid!("46b98d8d-b55c-4e8f-aab3-37fca7f80752")),
    },
    PartitionType {
        name: "usr-mips64-le",
        guid: uuid!("c97c1f32-ba06-40b4-9f22-236061b08aa8"),
        verity: Some(uuid!("3c3d61fe-b5f3-414d-bb71-8739a694a4ef")),
    },
    PartitionType {
        name: "usr-ppc",
        guid: uuid!("7d14fec5-cc71-415d-9d6c-06bf0b3c3eaf"),
        verity: Some(uuid!("df765d00-270e-49e5-bc75-f47bb2118b09")),
    },
    PartitionType {
        name: "usr-ppc64",
        guid: uuid!("2c9739e2-f068-46b3-9fd0-01c5a9afbcca"),
        verity: Some(uuid!("bdb528a5-a259-475f-a87d-da53fa736a07")),
    },
    PartitionType {
        name: "usr-ppc64-le",
        guid: uuid!("15bb03af-77e7-4d4a-b12b-c0d084f7491c"),
        verity: Some(uuid!("ee2b9983-21e8-4153-86d9-b6901a54d1ce")),
    },
    PartitionType {
        name: "usr-riscv32",
        guid: uuid!("b933fb22-5c3f-4f91-af90-e2bb0fa50702"),
        verity: Some(uuid!("cb1ee4e3-8cd0-4136-a0a4-aa61a32e8730")),
    },
    PartitionType {
        name: "usr-riscv64",
        guid: uuid!("beaec34b-8442-439b-a40b-984381ed097d"),
        verity: Some(uuid!("8f1056be-9b05-47c4-81d6-be53128e5b54")),
    },
    PartitionType {
        name: "usr-s390",
        guid: uuid!("cd0f869b-d0fb-4ca0-b141-9ea87cc78d66"),
        verity: Some(uuid!("b663c618-e7bc-4d6d-90aa-11b756bb1797")),
    },
    PartitionType {
        name: "usr-s390x",
        guid: uuid!("8a4f5770-50aa-4ed3-874a-99b710db6fea"),
        verity: Some(uuid!("31741cc4-1a2a-4111-a581-e00b447d2d06")),
    },
    PartitionType {
        name: "usr-tilegx",
        guid: uuid!("55497029-c7c1-44cc-aa39-815ed1558630"),
        verity: Some(uuid!("2fb4bf56-07fa-42da-8132-6b139f2026ae")),
    },
    PartitionType {
        name: "usr-x86",
        guid: uuid!("75250d76-8cc6-458e-bd66-bd47cc81a812"),
        verity: Some(uuid!("8f461b0d-14ee-4e81-9aa9-049b6fb97abd")),
    },
    PartitionType {
        name: "usr-x86-64",
        guid: uuid!("8484680c-9521-48c6-9c11-b0720656f69e"),
        verity: Some(uuid!("77ff5f63-e7b6-4633-acf4-1565b864c0e6")),
    },
];
