//! The structure of the tree in figures, as `cargo xtask house` prints them.
//!
//! They are what a reader of the whole meets: how long files and functions are, how many modules
//! hang together in a knot, how many names the library shows, and habits that make code hard to
//! read. Parsed with `syn`, so they are exact but for what macros make.

mod functions;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use crate::tidy::{self, File, is_product_code, knots};
use functions::Functions;

/// The library's root.
const ENGINE_ROOT: &str = "crates/ext4/src/lib.rs";

/// What is counted of a package.
#[derive(Debug, Default)]
struct Package {
    /// Lines of each file.
    files: Vec<usize>,
    /// Lines without blanks and comments, of the product and of everything else.
    product: usize,
    other: usize,
    /// Lines of the product that hold a comment inside a function.
    comments: usize,
    functions: Functions,
    /// Modules of the largest import cycle.
    knot: usize,
}

/// The figures of all packages, and of the library's root.
#[derive(Debug)]
pub struct House {
    packages: BTreeMap<String, Package>,
    root_names: usize,
}

impl House {
    /// Counts what git tracks below `root`.
    ///
    /// # Errors
    /// If git cannot be asked.
    pub fn measure(root: &Path) -> Result<Self, String> {
        let files = tidy::tracked_files(root)?;
        let mut packages: BTreeMap<String, Package> = BTreeMap::new();
        for file in files.iter().filter(|file| file.is_rust()) {
            let name = file.path.trim_start_matches("crates/").split('/').next();
            let package = packages
                .entry(name.unwrap_or_default().to_owned())
                .or_default();
            package.add(file);
        }
        for knot in knots::knots(&files) {
            let package = packages.entry(knot.package).or_default();
            package.knot = package.knot.max(knot.members.len());
        }
        let library = files.iter().find(|file| file.path == ENGINE_ROOT);
        let root_names = library.map_or(0, |file| functions::root_names(&file.text));
        Ok(Self {
            packages,
            root_names,
        })
    }
}

impl Package {
    fn add(&mut self, file: &File) {
        self.files.push(file.text.lines().count());
        let is_product = is_product_code(&file.path);
        // The tests of a file stand at its end.
        let product = match file.text.find("\n#[cfg(test)]\nmod tests") {
            Some(at) if is_product => at,
            _ if is_product => file.text.len(),
            _ => 0,
        };
        self.product += code(&file.text[..product]);
        self.other += code(&file.text[product..]);
        self.comments += comments(&file.text[..product]);
        self.functions.add(&file.text, is_product);
    }
}

/// Lines that are neither blank nor comment.
fn code(text: &str) -> usize {
    let lines = text.lines().map(str::trim);
    lines
        .filter(|line| !line.is_empty() && !line.starts_with("//"))
        .count()
}

/// Comments that are no documentation.
fn comments(text: &str) -> usize {
    let lines = text.lines().map(str::trim);
    lines.filter(|line| line.starts_with("// ")).count()
}

/// The value below which `part` of 100 lie.
fn percentile(sorted: &[usize], part: usize) -> usize {
    let at = (sorted.len() * part / 100).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or(0)
}

impl fmt::Display for House {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:14}{:>6}{:>6}{:>5}{:>5}{:>8}{:>8}{:>6}{:>6}{:>5}{:>5}{:>5}{:>7}{:>6}{:>8}{:>9}{:>6}{:>6}",
            "package",
            "files",
            "p50",
            "p90",
            "max",
            "product",
            "other",
            "cm%",
            "fn",
            "p50",
            "p90",
            "max",
            "tuples",
            "bools",
            "errors",
            "forwards",
            "as",
            "knot"
        )?;
        let mut all = Package::default();
        for (name, package) in &self.packages {
            package.row(f, name)?;
            all.files.extend(&package.files);
            all.product += package.product;
            all.other += package.other;
            all.comments += package.comments;
            all.functions.merge(&package.functions);
            all.knot = all.knot.max(package.knot);
        }
        all.row(f, "all")?;
        writeln!(f, "names at the root of the library: {}", self.root_names)
    }
}

impl Package {
    fn row(&self, f: &mut fmt::Formatter<'_>, name: &str) -> fmt::Result {
        let mut files = self.files.clone();
        files.sort_unstable();
        let mut lengths = self.functions.lengths.clone();
        lengths.sort_unstable();
        let most = |sorted: &[usize]| sorted.last().copied().unwrap_or(0);
        let commented = self.comments as f64 * 100.0 / self.product.max(1) as f64;
        writeln!(
            f,
            "{name:14}{:>6}{:>6}{:>5}{:>5}{:>8}{:>8}{commented:>6.1}{:>6}{:>5}{:>5}{:>5}{:>7}{:>6}{:>8}{:>9}{:>6}{:>6}",
            files.len(),
            percentile(&files, 50),
            percentile(&files, 90),
            most(&files),
            self.product,
            self.other,
            lengths.len(),
            percentile(&lengths, 50),
            percentile(&lengths, 90),
            most(&lengths),
            self.functions.tuple_parameters,
            self.functions.bool_parameters,
            self.functions.private_errors,
            self.functions.forwards,
            self.functions.casts,
            self.knot,
        )
    }
}

/// What the columns mean.
pub const LEGEND: &str = "\
files: Rust files, and the lines of the median, the 90th percentile, the longest
product, other: lines of code of the product, and of tests, benches, examples and scripts
cm%: comment lines that are no documentation, of 100 lines of product code
fn: functions, and their lines in the same way; what follows is of the product alone
tuples: functions with a tuple as a parameter; bools: public functions with a bool parameter
errors: `# Errors` sections of functions that are not public; forwards: bodies of one call to another
as: casts by `as`; knot: modules of the largest import cycle";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_sorted_into_code_and_comments() {
        let text = "//! Doc.\n\nfn f() {\n    // Why.\n    g();\n}\n";
        assert_eq!((code(text), comments(text)), (3, 1));
    }

    #[test]
    fn percentiles_of_short_lists() {
        assert_eq!(percentile(&[], 50), 0);
        assert_eq!(percentile(&[1, 2, 3, 4], 50), 3);
        assert_eq!(percentile(&[7], 90), 7);
    }

    #[test]
    fn the_tree_itself_is_measured() {
        let house = House::measure(&crate::workspace_root()).unwrap();
        let engine = &house.packages["ext4"];
        assert!(engine.product > 1000 && engine.functions.lengths.len() > 100);
        assert!(house.root_names > 0);
        assert!(house.to_string().lines().count() > house.packages.len());
    }
}
