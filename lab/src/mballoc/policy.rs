//! How the lab spells a pair of allocator policies: normalisation, `+`, search.

use uext4_mballoc::{Normalize, Options, Search};

/// Vanilla 3.15.
pub const VANILLA: &str = "table+linear";
/// The proposal of June 2014 on the same search.
pub const POW2: &str = "pow2+linear";
/// Linux today.
pub const MAINLINE: &str = "table+criteria";
/// The defaults.
pub const DEFAULT: &str = "predict+largest-run";

/// Reads `table+linear`, `pow2+cap=table+criteria`; without a search it is the linear one.
///
/// # Errors
/// What is wrong with the spelling.
pub fn parse(policy: &str) -> Result<Options, String> {
    let (normalize, search) = match policy.rsplit_once('+') {
        Some((before, last)) if last.parse::<Search>().is_ok() => (before, last),
        _ => (policy, "linear"),
    };
    Ok(Options {
        normalize: normalize.parse::<Normalize>().map_err(|e| e.to_string())?,
        search: search
            .parse()
            .map_err(|e: uext4_mballoc::UnknownSearch| e.to_string())?,
        ..Options::default()
    })
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
    fn pairs_are_read() {
        let options = parse("table+logical+criteria").unwrap();
        assert_eq!(options.search, Search::Criteria);
        assert!(options.normalize.logical);
        assert_eq!(parse("pow2-stripe").unwrap().search, Search::Linear);
        assert_eq!(parse(VANILLA).unwrap().normalize, Normalize::TABLE);
        assert_eq!(parse(DEFAULT).unwrap(), Options::default());
        assert!(parse("largest-run").is_err());
        assert!(parse("table+fastest").is_err());
    }
}
