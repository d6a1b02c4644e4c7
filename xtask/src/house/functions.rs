//! What is counted of functions and of the names at a root.

use syn::visit::{self, Visit};

use crate::tidy::{is_test, takes_tuple};

/// Counts over many files.
#[derive(Debug, Default)]
pub struct Functions {
    /// Lines of each, from `fn` to the closing brace.
    pub lengths: Vec<usize>,
    /// Functions of the product with a tuple as a parameter.
    pub tuple_parameters: usize,
    /// Public functions with a parameter that is a bare `bool`.
    pub bool_parameters: usize,
    /// `# Errors` sections of functions that are not public.
    pub private_errors: usize,
    /// Functions whose body is one call to another with what they were given.
    pub forwards: usize,
    /// Casts by `as`.
    pub casts: usize,
}

impl Functions {
    /// Adds those of a file.
    pub fn add(&mut self, text: &str, is_product: bool) {
        if let Ok(file) = syn::parse_file(text) {
            let mut counting = Counting {
                counts: self,
                is_product,
            };
            counting.visit_file(&file);
        }
    }

    /// Adds all that `other` has.
    pub fn merge(&mut self, other: &Self) {
        self.lengths.extend(&other.lengths);
        self.tuple_parameters += other.tuple_parameters;
        self.bool_parameters += other.bool_parameters;
        self.private_errors += other.private_errors;
        self.forwards += other.forwards;
        self.casts += other.casts;
    }
}

struct Counting<'a> {
    counts: &'a mut Functions,
    is_product: bool,
}

/// A function of any kind.
struct Function<'a> {
    attributes: &'a [syn::Attribute],
    is_public: bool,
    signature: &'a syn::Signature,
    body: &'a syn::Block,
}

impl Counting<'_> {
    fn function(&mut self, function: &Function<'_>) {
        let start = function.signature.fn_token.span.start().line;
        let end = function.body.brace_token.span.close().end().line;
        self.counts.lengths.push(end - start + 1);
        if !self.is_product || is_test(function.attributes) {
            return;
        }
        let inputs = || {
            function
                .signature
                .inputs
                .iter()
                .filter_map(|input| match input {
                    syn::FnArg::Typed(typed) => Some(&*typed.ty),
                    syn::FnArg::Receiver(_) => None,
                })
        };
        let counts = &mut *self.counts;
        counts.tuple_parameters += usize::from(takes_tuple(function.signature));
        counts.bool_parameters += usize::from(function.is_public && inputs().any(is_bool));
        counts.private_errors +=
            usize::from(!function.is_public && reports_errors(function.attributes));
        counts.forwards += usize::from(forwards(function.body));
    }

    /// Visits without counting the product's habits where the item is a test.
    fn within(&mut self, attributes: &[syn::Attribute], visit: impl FnOnce(&mut Self)) {
        let before = self.is_product;
        self.is_product &= !is_test(attributes);
        visit(self);
        self.is_product = before;
    }
}

fn is_bool(ty: &syn::Type) -> bool {
    matches!(ty, syn::Type::Path(path) if path.path.is_ident("bool"))
}

fn reports_errors(attributes: &[syn::Attribute]) -> bool {
    let docs = attributes.iter().filter(|a| a.path().is_ident("doc"));
    let mut texts = docs.filter_map(|doc| match &doc.meta.require_name_value().ok()?.value {
        syn::Expr::Lit(syn::ExprLit {
            lit: syn::Lit::Str(text),
            ..
        }) => Some(text.value()),
        _ => None,
    });
    texts.any(|text| text.trim() == "# Errors")
}

/// One expression: a call whose arguments are plain names or fields.
fn forwards(body: &syn::Block) -> bool {
    let [syn::Stmt::Expr(expression, None)] = &body.stmts[..] else {
        return false;
    };
    match expression {
        syn::Expr::Call(call) => is_plain(&call.func) && call.args.iter().all(is_plain),
        syn::Expr::MethodCall(call) => is_plain(&call.receiver) && call.args.iter().all(is_plain),
        _ => false,
    }
}

fn is_plain(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Path(_) | syn::Expr::Lit(_) => true,
        syn::Expr::Field(field) => is_plain(&field.base),
        syn::Expr::Reference(reference) => is_plain(&reference.expr),
        _ => false,
    }
}

impl<'ast> Visit<'ast> for Counting<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.within(&item.attrs, |v| visit::visit_item_mod(v, item));
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.function(&Function {
            attributes: &item.attrs,
            is_public: matches!(item.vis, syn::Visibility::Public(_)),
            signature: &item.sig,
            body: &item.block,
        });
        self.within(&item.attrs, |v| visit::visit_item_fn(v, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.function(&Function {
            attributes: &item.attrs,
            is_public: matches!(item.vis, syn::Visibility::Public(_)),
            signature: &item.sig,
            body: &item.block,
        });
        self.within(&item.attrs, |v| visit::visit_impl_item_fn(v, item));
    }

    fn visit_expr_cast(&mut self, cast: &'ast syn::ExprCast) {
        self.counts.casts += usize::from(self.is_product);
        visit::visit_expr_cast(self, cast);
    }
}

/// Names that a root shows: its public items, and what it re-exports.
pub fn root_names(text: &str) -> usize {
    let Ok(file) = syn::parse_file(text) else {
        return 0;
    };
    let is_public = |visibility: &syn::Visibility| matches!(visibility, syn::Visibility::Public(_));
    let names = file.items.iter().map(|item| match item {
        syn::Item::Use(item) if is_public(&item.vis) => leaves(&item.tree),
        syn::Item::Mod(item) => usize::from(is_public(&item.vis)),
        syn::Item::Struct(item) => usize::from(is_public(&item.vis)),
        syn::Item::Enum(item) => usize::from(is_public(&item.vis)),
        syn::Item::Fn(item) => usize::from(is_public(&item.vis)),
        syn::Item::Type(item) => usize::from(is_public(&item.vis)),
        syn::Item::Trait(item) => usize::from(is_public(&item.vis)),
        syn::Item::Const(item) => usize::from(is_public(&item.vis)),
        _ => 0,
    });
    names.sum()
}

fn leaves(tree: &syn::UseTree) -> usize {
    match tree {
        syn::UseTree::Path(path) => leaves(&path.tree),
        syn::UseTree::Group(group) => group.items.iter().map(leaves).sum(),
        syn::UseTree::Name(_) | syn::UseTree::Rename(_) | syn::UseTree::Glob(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn habits_are_counted_in_the_product_alone() {
        let text = "
            pub fn a((x, y): (u8, u8), on: bool) -> u8 { x as u8 }
            /// Does.
            ///
            /// # Errors
            /// Always.
            fn b(it: &(u8, u8)) { c(it.0) }
            #[cfg(test)] mod tests { pub fn d(a: (u8, u8), on: bool) { a as u8; } }";
        let mut counts = Functions::default();
        counts.add(text, true);
        assert_eq!(counts.lengths.len(), 3);
        assert_eq!((counts.tuple_parameters, counts.bool_parameters), (2, 1));
        assert_eq!(
            (counts.private_errors, counts.forwards, counts.casts),
            (1, 1, 1)
        );
        let mut counts = Functions::default();
        counts.add(text, false);
        assert_eq!((counts.tuple_parameters, counts.casts), (0, 0));
    }

    #[test]
    fn names_of_a_root_are_counted() {
        let text = "mod a; pub mod b; pub use a::{B, c::{D, E as F}}; use g::G; pub struct H;";
        assert_eq!(root_names(text), 5);
    }
}
