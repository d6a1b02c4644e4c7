//! In which groups a run is looked for.

/// A policy of the search; see each one's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// Vanilla 3.15: four criteria, each over all groups one after the other.
    Linear,
    /// Linux since 2023: five criteria with indexes of groups by order.
    Criteria,
    /// The exact longest run of each group, in sets of groups; bounded work.
    #[default]
    LargestRun,
}
