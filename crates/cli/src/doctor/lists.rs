//! What was a list in Python 2 and is an iterator, a view or a range in Python 3: `map(f, x)[0]`, `len(zip(a, b))`, `d.keys() + more`.
//!
//! A result is made a list only where Python 3 would fail or print something else. A name counts until it is assigned again.

use tree_sitter::Node;

use super::syntax::{ParsedProgram, below, call, children};

/// What Python 3 returns where Python 2 returned a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lazy {
    /// `map`, `filter`, `zip`: has neither a length nor items.
    Iterator,
    /// `d.keys()`: has a length, but no items.
    View,
    /// `range`: has both, but cannot be changed.
    Range,
}

/// The calls whose result must be a list.
pub fn needed<'a>(source: &'a ParsedProgram<'_>) -> Vec<Node<'a>> {
    let mut calls = source.nodes();
    calls.retain(|node| {
        kind(source, *node)
            .is_some_and(|lazy| is_used_as_list(source, *node, lazy) || is_named_list(source, *node, lazy))
    });
    calls
}

fn kind(source: &ParsedProgram<'_>, node: Node<'_>) -> Option<Lazy> {
    let (function, arguments) = call(node)?;
    match function.child_by_field_name("attribute") {
        None => match source.of(function) {
            "map" | "filter" | "zip" => Some(Lazy::Iterator),
            "range" | "xrange" => Some(Lazy::Range),
            _ => None,
        },
        Some(method) => {
            let is_view = arguments.is_empty() && matches!(source.of(method), "keys" | "values" | "items");
            is_view.then_some(Lazy::View)
        }
    }
}

/// Methods that only lists have, or whose result is another one.
const METHODS: [&str; 7] = ["append", "extend", "insert", "pop", "remove", "reverse", "sort"];

fn is_used_as_list(source: &ParsedProgram<'_>, node: Node<'_>, lazy: Lazy) -> bool {
    let Some(parent) = node.parent() else {
        return false;
    };
    let is_field = |name| parent.child_by_field_name(name) == Some(node);
    match parent.kind() {
        "parenthesized_expression" => is_used_as_list(source, parent, lazy),
        "binary_operator" => parent
            .child_by_field_name("operator")
            .is_some_and(|operator| matches!(source.of(operator), "+" | "*")),
        "subscript" => is_field("value") && (lazy != Lazy::Range || is_assigned(parent)),
        "attribute" => {
            let name = parent.child_by_field_name("attribute");
            is_field("object") && name.is_some_and(|name| METHODS.contains(&source.of(name)))
        }
        "print_statement" => lazy != Lazy::Range,
        "argument_list" => {
            let function = parent
                .parent()
                .and_then(call)
                .map(|(function, _)| source.of(function));
            match function {
                Some("len") => lazy == Lazy::Iterator,
                Some("shuffle" | "random.shuffle") => true,
                _ => false,
            }
        }
        _ => false,
    }
}

/// `x[0] = …`, `x[0] += …`, `del x[0]`
fn is_assigned(item: Node<'_>) -> bool {
    item.parent().is_some_and(|parent| match parent.kind() {
        "assignment" | "augmented_assignment" => parent.child_by_field_name("left") == Some(item),
        kind => kind == "delete_statement",
    })
}

/// Whether the call gets a name that is used as a list afterwards.
fn is_named_list(source: &ParsedProgram<'_>, node: Node<'_>, lazy: Lazy) -> bool {
    let Some((name, scope)) = name_of(node) else {
        return false;
    };
    let mut uses = below(scope);
    uses.retain(|each| {
        each.kind() == "identifier"
            && each.start_byte() > node.end_byte()
            && source.of(*each) == source.of(name)
    });
    let next = uses.iter().find_map(|each| assigned_value(*each));
    let end = next.map_or(usize::MAX, |value| value.end_byte());
    uses.retain(|each| each.start_byte() < end);
    uses.into_iter().any(|each| is_used_as_list(source, each, lazy))
}

/// What a name is assigned, if it stands for that.
fn assigned_value(name: Node<'_>) -> Option<Node<'_>> {
    let parent = name
        .parent()
        .filter(|parent| matches!(parent.kind(), "assignment" | "for_statement"))?;
    (parent.child_by_field_name("left") == Some(name)).then(|| parent.child_by_field_name("right"))?
}

/// The name that a call is assigned to, and the function or module around it.
fn name_of(node: Node<'_>) -> Option<(Node<'_>, Node<'_>)> {
    let parent = node.parent().filter(|parent| parent.kind() == "assignment")?;
    let name = parent
        .child_by_field_name("left")
        .filter(|left| left.kind() == "identifier" && children(*left).is_empty())?;
    let mut scope = parent;
    while !matches!(scope.kind(), "function_definition" | "module") {
        scope = scope.parent()?;
    }
    Some((name, scope))
}
