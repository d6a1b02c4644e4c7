//! No import cycle among the modules of a crate.
//!
//! Modules that stand side by side in one folder import each other in one direction only; two or
//! more that reach each other are a *knot*: none of them can be read, tested or replaced alone. A
//! module and the modules inside it are one thing, so imports between them do not count, and
//! neither do those of tests.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use super::source::{is_product_code, is_test};
use super::{Complaint, File};

/// Modules of one folder that import each other in a circle.
#[derive(Debug, PartialEq, Eq)]
pub struct Knot {
    /// The crate's folder below `crates`.
    pub package: String,
    /// The folder inside the crate, as names of modules; empty for the root.
    pub folder: Vec<String>,
    /// The modules, sorted.
    pub members: Vec<String>,
}

/// Complains about every knot.
pub fn check(files: &[File], complaints: &mut Vec<Complaint>) {
    for knot in knots(files) {
        complaints.push(Complaint {
            path: format!("crates/{}/src/{}", knot.package, knot.folder.join("/")),
            line: 0,
            what: format!(
                "modules import each other in a circle: {}",
                knot.members.join(" ")
            ),
        });
    }
}

/// Every knot of every crate.
pub fn knots(files: &[File]) -> Vec<Knot> {
    let knots = packages(files)
        .into_iter()
        .map(|package| Crate::read(package, files).knots());
    knots.flatten().collect()
}

fn packages(files: &[File]) -> BTreeSet<&str> {
    let product = files.iter().filter(|file| is_product_code(&file.path));
    product
        .filter_map(|file| split(&file.path))
        .map(|(package, _)| package)
        .collect()
}

/// The crate of a source file, and the file below `src`.
fn split(path: &str) -> Option<(&str, &str)> {
    path.strip_prefix("crates/")?.split_once("/src/")
}

/// Names of modules from the root of a crate.
type Path = Vec<String>;

/// The modules of one crate.
struct Crate<'a> {
    package: &'a str,
    modules: BTreeMap<Path, Paths>,
}

impl<'a> Crate<'a> {
    fn read(package: &'a str, files: &[File]) -> Self {
        let mut modules = BTreeMap::new();
        for file in files
            .iter()
            .filter(|f| f.is_rust() && is_product_code(&f.path))
        {
            if let Some((owner, file_path)) = split(&file.path)
                && owner == package
            {
                let at = module_path(file_path);
                modules.insert(at.clone(), Paths::of(at, &file.text));
            }
        }
        Self { package, modules }
    }

    fn knots(&self) -> Vec<Knot> {
        let mut graphs: BTreeMap<Path, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
        for (from, module) in &self.modules {
            for (named, _) in &module.named {
                let Some(to) = self.resolve(named) else {
                    continue;
                };
                let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
                if let (Some(one), Some(other)) = (from.get(common), to.get(common)) {
                    let graph = graphs.entry(from[..common].to_vec()).or_default();
                    graph.entry(one).or_default().insert(other);
                }
            }
        }
        let knots = graphs.iter().flat_map(|(folder, graph)| {
            circles(graph).into_iter().map(|members| Knot {
                package: self.package.to_owned(),
                folder: folder.clone(),
                members: members.into_iter().map(str::to_owned).collect(),
            })
        });
        knots.collect()
    }

    /// The module in which what a path names stands.
    fn resolve<'b>(&'b self, named: &'b [String]) -> Option<&'b [String]> {
        let mut path = named;
        // An alias of an alias is rare, and a circle of them does not compile.
        for _ in 0..8 {
            let inside = (0..=path.len())
                .rev()
                .find(|len| self.modules.contains_key(&path[..*len]))?;
            let alias = path
                .get(inside)
                .and_then(|name| self.modules[&path[..inside]].aliases.get(name));
            match alias {
                Some(next) if next.as_slice() != path => path = next,
                _ => return Some(&path[..inside]),
            }
        }
        None
    }
}

/// The module that a file below `src` is.
pub fn module_path(file: &str) -> Path {
    let stem = file.strip_suffix(".rs").unwrap_or(file);
    // A folder's own file is the folder.
    match stem.strip_suffix("/mod").unwrap_or(stem) {
        "lib" | "main" => Vec::new(),
        stem => stem
            .split('/')
            .map(|name| match name {
                // `super` is a word of the language.
                "super" => "super_".to_owned(),
                _ => name.to_owned(),
            })
            .collect(),
    }
}

/// Sets of modules that reach each other, of two or more.
fn circles<'a>(graph: &BTreeMap<&'a str, BTreeSet<&'a str>>) -> Vec<BTreeSet<&'a str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> = graph
        .keys()
        .map(|from| (*from, reach(graph, from)))
        .collect();
    let mut circles = BTreeSet::new();
    for (from, all) in &reached {
        let back = |other: &&&str| reached.get(**other).is_some_and(|all| all.contains(from));
        let circle: BTreeSet<&str> = all.iter().filter(back).copied().collect();
        if circle.len() > 1 {
            circles.insert(circle);
        }
    }
    circles.into_iter().collect()
}

fn reach<'a>(graph: &BTreeMap<&'a str, BTreeSet<&'a str>>, from: &'a str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&str> = vec![from];
    while let Some(module) = open.pop() {
        let next = graph.get(module).into_iter().flatten();
        open.extend(next.filter(|next| seen.insert(**next)));
    }
    seen
}

/// The paths of a module outside its tests that begin at the root, at itself, or above.
#[derive(Debug, Default)]
pub struct Paths {
    at: Path,
    /// What they name, from the root, and the line of each.
    pub named: Vec<(Path, usize)>,
    /// What `use` declarations give a name, from the root.
    aliases: BTreeMap<String, Path>,
}

impl Paths {
    /// Those of the module `at`. A text that does not parse has none; another rule complains of it.
    pub fn of(at: Path, text: &str) -> Self {
        let mut paths = Self {
            at,
            ..Self::default()
        };
        if let Ok(parsed) = syn::parse_file(text) {
            paths.visit_file(&parsed);
        }
        paths
    }

    /// The path from the root; none if it begins elsewhere.
    fn absolute(&self, segments: &[String]) -> Option<Path> {
        let ups = segments.iter().take_while(|name| *name == "super").count();
        let base = match segments.first()?.as_str() {
            "crate" => return Some(segments[1..].to_vec()),
            "self" => return Some([&self.at, &segments[1..]].concat()),
            "super" => self.at.len().checked_sub(ups)?,
            _ => return None,
        };
        Some([&self.at[..base], &segments[ups..]].concat())
    }

    fn add(&mut self, segments: &[String], line: usize) {
        let named = self.absolute(segments).map(|path| (path, line));
        self.named.extend(named);
    }

    fn tree(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |name: &syn::Ident| [before, &[name.to_string()]].concat();
        let (path, name) = match tree {
            syn::UseTree::Path(path) => return self.tree(&with(&path.ident), &path.tree),
            syn::UseTree::Group(group) => {
                return group.items.iter().for_each(|tree| self.tree(before, tree));
            }
            syn::UseTree::Glob(glob) => {
                return self.add(before, glob.star_token.spans[0].start().line);
            }
            syn::UseTree::Name(name) if name.ident == "self" => {
                return self.add(before, name.ident.span().start().line);
            }
            syn::UseTree::Name(name) => (with(&name.ident), &name.ident),
            syn::UseTree::Rename(rename) => (with(&rename.ident), &rename.rename),
        };
        self.add(&path, name.span().start().line);
        // Without a first word of the language a path begins at this module or at another crate.
        let alias = self
            .absolute(&path)
            .unwrap_or_else(|| [self.at.clone(), path].concat());
        self.aliases.insert(name.to_string(), alias);
    }
}

impl<'ast> Visit<'ast> for Paths {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_test(&item.attrs) {
            self.tree(&[], &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Path = path.segments.iter().map(|s| s.ident.to_string()).collect();
        // `self` alone is the value of a method.
        if names.len() > 1 {
            self.add(&names, path.segments[0].ident.span().start().line);
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(modules: &[(&str, &str)]) -> Vec<String> {
        let file = |(name, text): &(&str, &str)| File {
            path: format!("crates/x/src/{name}.rs"),
            text: (*text).to_owned(),
        };
        let files: Vec<File> = modules.iter().map(file).collect();
        let knots = knots(&files);
        knots.iter().map(|knot| knot.members.join(" ")).collect()
    }

    #[test]
    fn circles_are_found_however_they_are_written() {
        for one in [
            "use crate::b::B;",
            "use super::b;",
            "fn f(_: crate::b::B) {}",
            "use crate::{c, b::{B, D}};",
            "use crate::B;",
        ] {
            let modules = [("lib", "pub use b::B;"), ("a", one), ("b", "use crate::a;")];
            assert_eq!(members(&modules), ["a b"], "{one}");
        }
        let three = [
            ("a", "use crate::b;"),
            ("b", "use crate::c;"),
            ("c", "use crate::a;"),
        ];
        assert_eq!(members(&three), ["a b c"]);
    }

    #[test]
    fn folders_have_circles_of_their_own() {
        let modules = [
            ("a", "mod b; mod c; use self::b::B;"),
            ("a/b", "use super::c::C; use super::A;"),
            ("a/c", "use crate::a::b::B;"),
        ];
        assert_eq!(members(&modules), ["b c"]);
    }

    #[test]
    fn tests_parents_and_other_crates_make_none() {
        let modules = [
            ("lib", "pub use a::A; pub use std::io;"),
            ("a", "use crate::b; use io::b; mod c; pub use self::c::C;"),
            ("a/c", "use super::A;"),
            (
                "b",
                "#[cfg(test)] mod tests { use crate::a; } use crate::io::Read;",
            ),
        ];
        assert_eq!(members(&modules), Vec::<String>::new());
    }
}
