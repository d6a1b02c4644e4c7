//! How the lab spells a pair of allocator policies: normalisation, `+`, search.

use uext4_lab_policies::mballoc::{Design, ParseSwitchesError};

/// Reads `table+linear`, `pow2+cap=table+criteria`; without a search it is the linear one.
///
/// # Errors
/// What is wrong with the spelling.
pub fn parse(policy: &str) -> Result<Design, String> {
    policy
        .parse()
        .map_err(|e: ParseSwitchesError| e.to_string())
}

/// Whether it is one.
///
/// # Errors
/// What is wrong with the spelling.
pub fn accepts(policy: &str) -> Result<(), String> {
    parse(policy).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_pairs_are_pairs() {
        let default = "predict+largest-run";
        for name in ["table+linear", "pow2+linear", "table+criteria", default] {
            assert_eq!(parse(name).unwrap().to_string(), name);
        }
        assert_eq!(parse(default).unwrap(), Design::default());
        assert!(accepts("table+fastest").is_err());
    }
}
