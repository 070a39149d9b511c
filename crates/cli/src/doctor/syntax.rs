//! Syntax trees of Python 2 and 3, and walks through them.

use tree_sitter::{Node, Parser, Tree};

use super::Problem;

/// A file with its syntax tree.
pub struct ParsedProgram<'a> {
    pub text: &'a str,
    tree: Tree,
}

impl<'a> ParsedProgram<'a> {
    /// `None` if the parser gives up, which happens only for huge files.
    pub fn parse(text: &'a str) -> Option<ParsedProgram<'a>> {
        let mut parser = Parser::new();
        parser.set_language(&tree_sitter_python::LANGUAGE.into()).ok()?;
        let tree = parser.parse(text, None)?;
        Some(ParsedProgram { text, tree })
    }

    pub fn root(&self) -> Node<'_> {
        self.tree.root_node()
    }

    pub fn of(&self, node: Node<'_>) -> &'a str {
        &self.text[node.byte_range()]
    }

    /// All nodes in the order of the text, parents first.
    pub fn nodes(&self) -> Vec<Node<'_>> {
        below(self.root())
    }

    /// Lines that Python 3 cannot parse and that no edit of ours fixes.
    pub fn errors(&self) -> Vec<Problem> {
        let found = self.nodes().into_iter().filter_map(|node| {
            let message = if node.is_error() || node.is_missing() {
                "this is not Python"
            } else if has_tuple_parameter(node) {
                "Python 3 has no parameters in parentheses: take one parameter, and unpack it inside"
            } else if node.kind() == "exec_statement" {
                "`exec` is a function in Python 3: write `exec(code, names)`"
            } else {
                return None;
            };
            Some(Problem {
                line: line(node),
                message: message.to_owned(),
            })
        });
        found.collect()
    }
}

/// `lambda (a, b): …` and `def f((a, b)): …`
fn has_tuple_parameter(node: Node<'_>) -> bool {
    let is_list = matches!(node.kind(), "lambda_parameters" | "parameters");
    is_list && children(node).iter().any(|each| each.kind() == "tuple_pattern")
}

/// A node and everything below it, parents first.
pub fn below(node: Node<'_>) -> Vec<Node<'_>> {
    let mut found = vec![node];
    let mut cursor = node.walk();
    for child in node.children(&mut cursor) {
        found.extend(below(child));
    }
    found
}

/// The line a node begins in, counted from 1.
pub fn line(node: Node<'_>) -> usize {
    node.start_position().row + 1
}

/// The named children of a node.
pub fn children(node: Node<'_>) -> Vec<Node<'_>> {
    node.named_children(&mut node.walk()).collect()
}

/// What a call calls, and its arguments without comments.
pub fn call(node: Node<'_>) -> Option<(Node<'_>, Vec<Node<'_>>)> {
    if node.kind() != "call" {
        return None;
    }
    let arguments = node.child_by_field_name("arguments")?;
    let given = children(arguments)
        .into_iter()
        .filter(|each| each.kind() != "comment");
    Some((node.child_by_field_name("function")?, given.collect()))
}
