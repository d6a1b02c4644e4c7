//! Rules on Rust source: length of files and functions, parameters with names, module docs,
//! proofs in addition to `unwrap`.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use super::{Complaint, File};

/// Lines a file may have.
const FILE_LINES_MAX: usize = 600;
/// Lines a function may have, from `fn` to its closing brace.
const FUNCTION_LINES_MAX: usize = 70;
/// Lines above an `unwrap` in which its proof may begin.
const PROOF_LINES: usize = 6;
/// The words a proof begins with.
const PROOF: &str = "OK to unwrap:";

/// Checks one Rust file.
pub fn check(file: &File, complaints: &mut Vec<Complaint>) {
    let lines = file.text.lines().count();
    if lines > FILE_LINES_MAX {
        complaints.push(file.complain(0, format!("{lines} lines, at most {FILE_LINES_MAX}")));
    }
    let parsed = match syn::parse_file(&file.text) {
        Ok(parsed) => parsed,
        Err(error) => {
            let line = error.span().start().line;
            complaints.push(file.complain(line, format!("does not parse: {error}")));
            return;
        }
    };
    if !parsed.attrs.iter().any(|a| a.path().is_ident("doc")) {
        complaints.push(file.complain(1, "no module docs (`//!`)"));
    }
    let mut visitor = Visitor {
        file,
        lines: file.text.lines().collect(),
        is_product: is_product_code(&file.path),
        complaints,
    };
    visitor.visit_file(&parsed);
}

/// True where an `unwrap` could meet a user: not in tests, benches, scripts or fuzz targets.
pub fn is_product_code(path: &str) -> bool {
    path.starts_with("crates/")
        && !path.starts_with("crates/testkit/")
        && path.contains("/src/")
        && !path.contains("/tests.rs")
        && !path.contains("/testing.rs")
        && !path.contains("/tests/")
}

/// True for `#[cfg(test)]` and `#[test]`.
pub fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|a| {
        a.path().is_ident("test")
            || a.path().is_ident("cfg")
                && a.meta.require_list().is_ok_and(|list| {
                    let condition = list.tokens.to_string();
                    condition
                        .split(|c: char| !c.is_alphanumeric())
                        .any(|w| w == "test")
                })
    })
}

/// A tuple with something in it, also behind a reference.
fn is_tuple(ty: &syn::Type) -> bool {
    match ty {
        syn::Type::Tuple(tuple) => !tuple.elems.is_empty(),
        syn::Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}

/// Whether a function takes a tuple, whose parts have no names.
pub fn takes_tuple(signature: &syn::Signature) -> bool {
    let mut inputs = signature.inputs.iter();
    inputs.any(|input| matches!(input, syn::FnArg::Typed(typed) if is_tuple(&typed.ty)))
}

struct Visitor<'a> {
    file: &'a File,
    lines: Vec<&'a str>,
    is_product: bool,
    complaints: &'a mut Vec<Complaint>,
}

impl Visitor<'_> {
    fn signature(&mut self, signature: &syn::Signature) {
        if self.is_product && takes_tuple(signature) {
            let what = format!("fn {} takes a tuple: name what is in it", signature.ident);
            let line = signature.fn_token.span().start().line;
            self.complaints.push(self.file.complain(line, what));
        }
    }

    fn function(&mut self, signature: &syn::Signature, body: &syn::Block) {
        let start = signature.fn_token.span().start().line;
        let lines = body.brace_token.span.close().end().line - start + 1;
        if lines > FUNCTION_LINES_MAX {
            let what = format!(
                "fn {} has {lines} lines, at most {FUNCTION_LINES_MAX}",
                signature.ident
            );
            self.complaints.push(self.file.complain(start, what));
        }
    }

    fn unwrap(&mut self, span: Span) {
        let line = span.start().line;
        let first = line.saturating_sub(PROOF_LINES + 1);
        let proven = self.lines[first..line].iter().any(|l| l.contains(PROOF));
        if !proven {
            let what = format!("unwrap without its proof (`// {PROOF} …` above it)");
            self.complaints.push(self.file.complain(line, what));
        }
    }

    /// Visits without the rules for the product where the item is a test.
    fn within(&mut self, attributes: &[syn::Attribute], visit: impl FnOnce(&mut Self)) {
        let before = self.is_product;
        self.is_product &= !is_test(attributes);
        visit(self);
        self.is_product = before;
    }
}

impl<'ast> Visit<'ast> for Visitor<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.within(&item.attrs, |v| visit::visit_item_mod(v, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        self.within(&item.attrs, |v| visit::visit_item_impl(v, item));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&item.sig, &item.block);
        self.within(&item.attrs, |v| {
            v.signature(&item.sig);
            visit::visit_item_fn(v, item);
        });
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&item.sig, &item.block);
        self.within(&item.attrs, |v| {
            v.signature(&item.sig);
            visit::visit_impl_item_fn(v, item);
        });
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.signature(&item.sig);
        if let Some(body) = &item.default {
            self.function(&item.sig, body);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        let unwraps = call.method == "unwrap" || call.method == "expect";
        if unwraps && self.is_product {
            self.unwrap(call.method.span());
        }
        visit::visit_expr_method_call(self, call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints_on(path: &str, text: &str) -> Vec<String> {
        let file = File {
            path: path.to_owned(),
            text: text.to_owned(),
        };
        let mut complaints = Vec::new();
        check(&file, &mut complaints);
        complaints.into_iter().map(|c| c.to_string()).collect()
    }

    #[test]
    fn long_functions_are_found_also_in_tests() {
        let body = "let a = 1;\n".repeat(FUNCTION_LINES_MAX - 1);
        let text = format!("//! Doc.\n#[test]\nfn long() {{\n{body}}}\n");
        let found = complaints_on("crates/x/tests/it/main.rs", &text);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].contains("main.rs:3: fn long has 71 lines"),
            "{found:?}"
        );
        let found = complaints_on("a.rs", &text.replacen("let a = 1;\n", "", 1));
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn long_files_and_missing_docs_are_found() {
        let found = complaints_on("a.rs", &"\n".repeat(FILE_LINES_MAX + 1));
        assert_eq!(found.len(), 2, "{found:?}");
    }

    #[test]
    fn parameters_have_names_outside_tests() {
        for parameter in ["(a, b): (u8, u8)", "pair: &(u8, u8)"] {
            let text = format!("//! Doc.\nfn f({parameter}) {{}}");
            assert_eq!(complaints_on("crates/x/src/a.rs", &text).len(), 1);
            assert_eq!(complaints_on("crates/x/tests/a.rs", &text).len(), 0);
        }
        let named = "//! Doc.\nfn f(a: u8, nothing: ()) -> (u8, u8) { (a, a) }";
        assert_eq!(complaints_on("crates/x/src/a.rs", named).len(), 0);
    }

    #[test]
    fn an_unwrap_wants_its_proof_outside_tests() {
        let bare = "//! Doc.\nfn f() { g().unwrap(); }";
        assert_eq!(complaints_on("crates/x/src/a.rs", bare).len(), 1);
        assert_eq!(complaints_on("crates/x/tests/a.rs", bare).len(), 0);
        let proven = format!("//! Doc.\nfn f() {{\n// {PROOF} g knows.\ng().unwrap(); }}");
        assert_eq!(complaints_on("crates/x/src/a.rs", &proven).len(), 0);
        let test = "//! Doc.\n#[cfg(test)]\nmod tests { fn f() { g().unwrap(); } }";
        assert_eq!(complaints_on("crates/x/src/a.rs", test).len(), 0);
    }
}
