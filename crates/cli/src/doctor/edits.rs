//! The changes that Python 3 and today's files need: `print`, `cPickle`, binary files, pickles of Python 2, renamed functions, lists.

use std::ops::Range;

use tree_sitter::Node;

use super::lists;
use super::syntax::{ParsedProgram, below, call, children};

/// Replaces a range of the text.
#[derive(Debug, PartialEq, Eq)]
pub struct Edit {
    range: Range<usize>,
    text: String,
}

impl Edit {
    fn new(range: Range<usize>, text: impl Into<String>) -> Edit {
        Edit {
            range,
            text: text.into(),
        }
    }

    fn insert(at: usize, text: impl Into<String>) -> Edit {
        Edit::new(at..at, text)
    }
}

/// The text after all edits. Of two that overlap, the one that begins first is applied.
pub fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| (edit.range.start, edit.range.end));
    let (mut made, mut at) = (String::with_capacity(text.len()), 0);
    for edit in edits {
        if edit.range.start < at {
            continue;
        }
        made.push_str(&text[at..edit.range.start]);
        made.push_str(&edit.text);
        at = edit.range.end;
    }
    made + &text[at..]
}

/// All changes that a file needs.
pub fn of(source: &ParsedProgram<'_>) -> Vec<Edit> {
    let mut edits = Vec::new();
    for node in source.nodes() {
        match node.kind() {
            "print_statement" => print(source, node, &mut edits),
            "expression_statement" => print_expression(source, node, &mut edits),
            "import_statement" => import(source, node, &mut edits),
            "import_from_statement" => import_from(source, node, &mut edits),
            "except_clause" => except(source, node, &mut edits),
            "raise_statement" => raise(source, node, &mut edits),
            "call" => called(source, node, &mut edits),
            "attribute" => renamed_attribute(source, node, &mut edits),
            "identifier" if source.of(node) == "basestring" => {
                edits.push(Edit::new(node.byte_range(), "str"))
            }
            "integer" => integer(source, node, &mut edits),
            "string" => repr(source, node, &mut edits),
            "<>" => edits.push(Edit::new(node.byte_range(), "!=")),
            _ => {}
        }
    }
    for result in lists::needed(source) {
        edits.push(Edit::insert(result.start_byte(), "list("));
        edits.push(Edit::insert(result.end_byte(), ")"));
    }
    edits
}

/// `print a, b` as `print(a, b)`; a comma at the end means no new line, and `>>f` another file.
fn print(source: &ParsedProgram<'_>, node: Node<'_>, edits: &mut Vec<Edit>) {
    let word = node.start_byte()..node.start_byte() + "print".len();
    let (files, values): (Vec<Node<'_>>, Vec<Node<'_>>) = children(node)
        .into_iter()
        .partition(|part| part.kind() == "chevron");
    let is_open = source.of(node).trim_end().ends_with(',');
    let file = files.first().and_then(|chevron| chevron.named_child(0));
    let Some((first, last)) = values.first().zip(values.last()) else {
        let text = file.map_or("print()".to_owned(), |file| {
            format!("print(file={})", source.of(file))
        });
        edits.push(Edit::new(node.byte_range(), text));
        return;
    };
    // Between the word and the first value there may be a chevron, which moves to the end.
    edits.push(Edit::new(word.start..first.start_byte(), "print("));
    let mut rest = String::new();
    if is_open {
        rest.push_str(", end=\" \"");
    }
    if let Some(file) = file {
        rest.push_str(&format!(", file={}", source.of(file)));
    }
    edits.push(Edit::new(last.end_byte()..node.end_byte(), rest + ")"));
}

/// `print` alone ends a line. `print(a + 5) / 2` divides what is printed in Python 2, and the result of `print` in Python 3.
fn print_expression(source: &ParsedProgram<'_>, node: Node<'_>, edits: &mut Vec<Edit>) {
    let Some(whole) = node.named_child(0) else {
        return;
    };
    if source.of(node) == "print" {
        edits.push(Edit::insert(node.end_byte(), "()"));
    }
    if whole.kind() != "binary_operator" {
        return;
    }
    let mut left = whole;
    while let Some(next) = left
        .child_by_field_name("left")
        .filter(|_| left.kind() == "binary_operator")
    {
        left = next;
    }
    let is_print = call(left).is_some_and(|(function, _)| source.of(function) == "print");
    if is_print {
        edits.push(Edit::insert(left.start_byte() + "print".len(), "("));
        edits.push(Edit::insert(whole.end_byte(), ")"));
    }
}

const RENAMED_MODULES: [(&str, &str); 7] = [
    ("cPickle", "pickle"),
    ("StringIO", "io"),
    ("cStringIO", "io"),
    ("urllib2", "urllib.request"),
    ("Queue", "queue"),
    ("ConfigParser", "configparser"),
    ("__builtin__", "builtins"),
];

fn renamed_module(name: &str) -> Option<&'static str> {
    let found = RENAMED_MODULES.iter().find(|(before, _)| *before == name);
    found.map(|(_, now)| *now)
}

/// `import cPickle as pickle` as `import pickle`, and other renamed modules.
fn import(source: &ParsedProgram<'_>, node: Node<'_>, edits: &mut Vec<Edit>) {
    for name in children(node) {
        let (module, alias) = match name.kind() {
            "aliased_import" => (
                name.child_by_field_name("name"),
                name.child_by_field_name("alias"),
            ),
            _ => (Some(name), None),
        };
        let Some((module, now)) =
            module.and_then(|module| Some((module, renamed_module(source.of(module))?)))
        else {
            continue;
        };
        match alias {
            Some(alias) if source.of(alias) == now => edits.push(Edit::new(name.byte_range(), now)),
            Some(_) => edits.push(Edit::new(module.byte_range(), now)),
            None => edits.push(Edit::new(
                name.byte_range(),
                format!("{now} as {}", source.of(module)),
            )),
        }
    }
}

fn import_from(source: &ParsedProgram<'_>, node: Node<'_>, edits: &mut Vec<Edit>) {
    let Some(module) = node.child_by_field_name("module_name") else {
        return;
    };
    if let Some(now) = renamed_module(source.of(module)) {
        edits.push(Edit::new(module.byte_range(), now));
    }
    // `from itertools import izip`: its name stays, so that no other line changes.
    if let [_, name] = children(node)[..]
        && source.of(module) == "itertools"
        && let Some((_, now)) = ITERATORS.iter().find(|(before, _)| *before == source.of(name))
    {
        edits.push(Edit::new(module.byte_range(), "builtins"));
        edits.push(Edit::new(
            name.byte_range(),
            format!("{now} as {}", source.of(name)),
        ));
    }
}

/// `0644` as `0o644`, `10L` as `10`.
fn integer(source: &ParsedProgram<'_>, node: Node<'_>, edits: &mut Vec<Edit>) {
    let text = source.of(node);
    let digits = text.trim_end_matches(['l', 'L']);
    let is_octal = digits.len() > 1
        && digits.starts_with('0')
        && digits.bytes().all(|byte| byte.is_ascii_digit())
        && digits.bytes().any(|byte| byte != b'0');
    let now = match is_octal {
        true => format!("0o{}", digits.trim_start_matches('0')),
        false => digits.to_owned(),
    };
    if now != text {
        edits.push(Edit::new(node.byte_range(), now));
    }
}

/// Text in backquotes, which the parser takes for a string, as `repr(…)`.
fn repr(source: &ParsedProgram<'_>, node: Node<'_>, edits: &mut Vec<Edit>) {
    let inner = source
        .of(node)
        .strip_prefix('`')
        .and_then(|text| text.strip_suffix('`'));
    if let Some(inner) = inner {
        edits.push(Edit::new(node.byte_range(), format!("repr({inner})")));
    }
}

/// `except Error, e:` as `except Error as e:`.
fn except(source: &ParsedProgram<'_>, node: Node<'_>, edits: &mut Vec<Edit>) {
    let mut cursor = node.walk();
    let comma = node.children(&mut cursor).find(|child| child.kind() == ",");
    if let Some(comma) = comma {
        let spaces = source.text[comma.end_byte()..].len()
            - source.text[comma.end_byte()..].trim_start_matches(' ').len();
        edits.push(Edit::new(comma.start_byte()..comma.end_byte() + spaces, " as "));
    }
}

/// `raise Error, "text"` as `raise Error("text")`.
fn raise(source: &ParsedProgram<'_>, node: Node<'_>, edits: &mut Vec<Edit>) {
    let Some(list) = node
        .named_child(0)
        .filter(|child| child.kind() == "expression_list")
    else {
        return;
    };
    if let [kind, message] = children(list)[..] {
        let text = format!("{}({})", source.of(kind), source.of(message));
        edits.push(Edit::new(list.byte_range(), text));
    }
}

const ITERATORS: [(&str, &str); 3] = [("izip", "zip"), ("imap", "map"), ("ifilter", "filter")];

/// Pillow 10 has no `Image.ANTIALIAS`, which programs from 2017 shrink pictures with; its other name works in every version.
fn renamed_attribute(source: &ParsedProgram<'_>, node: Node<'_>, edits: &mut Vec<Edit>) {
    let Some(name) = node.child_by_field_name("attribute") else {
        return;
    };
    let text = source.of(node);
    if text.ends_with("Image.ANTIALIAS") {
        edits.push(Edit::new(name.byte_range(), "LANCZOS"));
    } else if text == "sys.maxint" {
        edits.push(Edit::new(name.byte_range(), "maxsize"));
    } else if let Some(short) = text.strip_prefix("itertools.")
        && let Some((_, now)) = ITERATORS.iter().find(|(before, _)| *before == short)
    {
        edits.push(Edit::new(node.byte_range(), *now));
    }
}

const RENAMED: [(&str, &str); 5] = [
    ("xrange", "range"),
    ("long", "int"),
    ("raw_input", "input"),
    ("unicode", "str"),
    ("unichr", "chr"),
];
const RENAMED_METHODS: [(&str, &str); 6] = [
    ("iteritems", "items"),
    ("itervalues", "values"),
    ("iterkeys", "keys"),
    ("viewitems", "items"),
    ("viewvalues", "values"),
    ("viewkeys", "keys"),
];

fn called(source: &ParsedProgram<'_>, node: Node<'_>, edits: &mut Vec<Edit>) {
    let Some((function, arguments)) = call(node) else {
        return;
    };
    if function.kind() == "identifier" {
        let name = source.of(function);
        if let Some((_, now)) = RENAMED.iter().find(|(before, _)| *before == name) {
            edits.push(Edit::new(function.byte_range(), *now));
        }
        if name == "open" {
            open(source, node, &arguments, edits);
        }
        return;
    }
    let Some(method) = function.child_by_field_name("attribute") else {
        return;
    };
    let name = source.of(method);
    if let Some((_, now)) = RENAMED_METHODS.iter().find(|(before, _)| *before == name) {
        edits.push(Edit::new(method.byte_range(), *now));
    } else if name == "has_key" && arguments.len() == 1 {
        let object = function
            .child_by_field_name("object")
            .map_or("", |object| source.of(object));
        edits.push(Edit::new(
            node.byte_range(),
            format!("({} in {object})", source.of(arguments[0])),
        ));
    } else if matches!(name, "load" | "loads") && is_pickle(source, function) {
        unpickle(source, &arguments, edits);
    }
}

fn is_pickle(source: &ParsedProgram<'_>, function: Node<'_>) -> bool {
    let module = function
        .child_by_field_name("object")
        .map_or("", |module| source.of(module));
    matches!(module, "pickle" | "cPickle")
}

/// Strings and arrays pickled by Python 2 are bytes in Python 3, unless an encoding is given.
fn unpickle(source: &ParsedProgram<'_>, arguments: &[Node<'_>], edits: &mut Vec<Edit>) {
    let has_encoding = arguments
        .iter()
        .any(|each| source.of(*each).starts_with("encoding"));
    if let (Some(last), false) = (arguments.last(), has_encoding) {
        edits.push(Edit::insert(last.end_byte(), ", encoding=\"latin1\""));
    }
}

/// Functions whose file must be binary: parameters, networks and pickles.
const BINARY: [&str; 9] = [
    "to_tar",
    "from_tar",
    "init_from_tar",
    "save_parameter_to_tar",
    "serialize",
    "deserialize",
    "serialize_for_inference",
    "dump",
    "load",
];

/// Opens a file as bytes if it is passed to a function that needs bytes.
fn open(source: &ParsedProgram<'_>, node: Node<'_>, arguments: &[Node<'_>], edits: &mut Vec<Edit>) {
    let Some((name, scope)) = bound(node) else {
        return;
    };
    let name = source.of(name);
    let needs_bytes = below(scope)
        .into_iter()
        .filter_map(call)
        .any(|(function, given)| {
            let method = function
                .child_by_field_name("attribute")
                .map_or("", |method| source.of(method));
            let pickles = !matches!(method, "dump" | "load") || is_pickle(source, function);
            BINARY.contains(&method) && pickles && given.iter().any(|each| source.of(*each) == name)
        });
    if !needs_bytes {
        return;
    }
    let mode = arguments.get(1).copied().map(|mode| match mode.kind() {
        "keyword_argument" => mode.child_by_field_name("value").unwrap_or(mode),
        _ => mode,
    });
    match mode {
        None => edits.extend(
            arguments
                .last()
                .map(|last| Edit::insert(last.end_byte(), ", \"rb\"")),
        ),
        Some(mode) if mode.kind() == "string" && !source.of(mode).contains('b') => {
            edits.push(Edit::insert(mode.end_byte() - 1, "b"));
        }
        Some(_) => {}
    }
}

/// The name an opened file gets, and where that name is used: a `with` block, or what follows an assignment.
fn bound(opened: Node<'_>) -> Option<(Node<'_>, Node<'_>)> {
    let parent = opened.parent()?;
    if parent.kind() == "assignment" {
        let block = parent.parent()?.parent()?;
        return Some((parent.child_by_field_name("left")?, block));
    }
    let alias = (parent.kind() == "as_pattern").then(|| parent.child_by_field_name("alias"))??;
    let mut around = parent;
    while around.kind() != "with_statement" {
        around = around.parent()?;
    }
    Some((alias, around))
}
