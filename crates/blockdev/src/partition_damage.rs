//! What can be wrong with a partition table.

/// What is wrong with a partition table.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Damage {
    /// A table of the chain of logical partitions has no signature.
    #[error("the extended table at sector {sector} ends with {found:#06x} instead of 0xaa55")]
    ExtendedSignature {
        /// Sector of the table.
        sector: u64,
        /// What stands in the signature's place.
        found: u16,
    },
    /// The chain of logical partitions leads back into itself.
    #[error("the chain of extended tables comes back to sector {sector}")]
    ExtendedCycle {
        /// Sector of the table met twice.
        sector: u64,
    },
    /// The chain of logical partitions does not end.
    #[error("the chain of extended tables has more than {max} links")]
    ExtendedTooLong {
        /// Links followed.
        max: usize,
    },
    /// A table or header lies past the end of the device.
    #[error("{what} at sector {sector} lies past the end of the device of {device_len} bytes")]
    Outside {
        /// Which structure.
        what: &'static str,
        /// Where it should be.
        sector: u64,
        /// Bytes on the device.
        device_len: u64,
    },
    /// The header has no signature.
    #[error("no GPT header at sector {sector}")]
    GptSignature {
        /// Sector of the header.
        sector: u64,
    },
    /// The header's length is impossible.
    #[error("the GPT header at sector {sector} says it has {len} bytes")]
    GptHeaderLen {
        /// Sector of the header.
        sector: u64,
        /// The length it gives.
        len: u32,
    },
    /// The header's checksum is wrong.
    #[error("the GPT header at sector {sector} has checksum {stored:#010x}, not {computed:#010x}")]
    GptHeaderChecksum {
        /// Sector of the header.
        sector: u64,
        /// In the header.
        stored: u32,
        /// Of the header.
        computed: u32,
    },
    /// The header says it is somewhere else.
    #[error("the GPT header at sector {sector} says it is at sector {stored}")]
    GptHeaderPlace {
        /// Sector of the header.
        sector: u64,
        /// Where it says it is.
        stored: u64,
    },
    /// The list of entries is impossible or too large to be meant.
    #[error("the GPT header at sector {sector} has {count} entries of {entry_size} bytes")]
    GptEntries {
        /// Sector of the header.
        sector: u64,
        /// Entries.
        count: u32,
        /// Bytes of each.
        entry_size: u32,
    },
    /// The checksum of the entries is wrong.
    #[error(
        "the GPT entries at sector {sector} have checksum {computed:#010x}, not {stored:#010x}"
    )]
    GptEntriesChecksum {
        /// First sector of the entries.
        sector: u64,
        /// In the header.
        stored: u32,
        /// Of the entries.
        computed: u32,
    },
    /// An entry ends before it begins, or lies where no byte number reaches.
    #[error("GPT entry {number} goes from sector {first} to {last}")]
    GptEntry {
        /// Number of the partition.
        number: u32,
        /// First sector.
        first: u64,
        /// Last sector.
        last: u64,
    },
}
