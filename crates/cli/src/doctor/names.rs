//! Names of 2017 that are not supported, each with what to use instead.
//!
//! The tables are those of the Python package, so that both give the same advice.

use std::collections::{BTreeMap, HashMap};
use std::sync::LazyLock;

use tree_sitter::Node;

use super::Problem;
use super::syntax::{ParsedProgram, call, children, line};

const TABLES: &str = include_str!("../../../py/python/paddlecloud/legacy/unsupported.py");

/// What to use instead of a name, by its table: `LAYERS`, `NETWORKS`, `EVALUATORS`, `POOLINGS`, `DATASETS`, `MODULES`, `OTHER_MODULES`.
static INSTEAD: LazyLock<BTreeMap<String, BTreeMap<String, String>>> = LazyLock::new(read_tables);

/// Modules below `paddle.v2` whose names are in a table.
const MODULES: [(&str, &str); 5] = [
    ("layer", "LAYERS"),
    ("networks", "NETWORKS"),
    ("evaluator", "EVALUATORS"),
    ("pooling", "POOLINGS"),
    ("dataset", "DATASETS"),
];

/// All lines of a program that use a name which is not supported.
pub fn unsupported(source: &ParsedProgram<'_>) -> Vec<Problem> {
    let program = Program::of(source);
    let mut found = Vec::new();
    for node in source.nodes() {
        let hint = match node.kind() {
            "attribute" => program.attribute(source, node),
            "import_statement" | "import_from_statement" => program.import(source, node),
            "call" => program.call(source, node),
            _ => None,
        };
        found.extend(hint.map(|message| Problem {
            line: line(node),
            message,
        }));
    }
    found
}

/// What a program's names refer to.
struct Program {
    /// `paddle` for `paddle.v2`, `layer` for `paddle.v2.layer`.
    aliases: HashMap<String, String>,
    is_v1: bool,
}

impl Program {
    fn of(source: &ParsedProgram<'_>) -> Program {
        let mut program = Program {
            aliases: HashMap::new(),
            is_v1: false,
        };
        for node in source.nodes() {
            match node.kind() {
                "import_statement" => program.add_imports(source, node, ""),
                "import_from_statement" => {
                    let module = node
                        .child_by_field_name("module_name")
                        .map_or("", |name| source.of(name));
                    program.is_v1 |= module.starts_with("paddle.trainer_config_helpers");
                    program.add_imports(source, node, module);
                }
                _ => {}
            }
        }
        program
    }

    fn add_imports(&mut self, source: &ParsedProgram<'_>, node: Node<'_>, module: &str) {
        for (path, name) in imported(source, node, module) {
            if path.starts_with("paddle") {
                self.aliases.insert(name, path);
            }
        }
    }

    /// `paddle.layer.ctc` by the table of `paddle.v2.layer`.
    fn attribute(&self, source: &ParsedProgram<'_>, node: Node<'_>) -> Option<String> {
        let text = source.of(node);
        let (first, rest) = text.split_once('.')?;
        let path = format!("{}.{rest}", self.aliases.get(first)?);
        refused(&path, text)
    }

    fn import(&self, source: &ParsedProgram<'_>, node: Node<'_>) -> Option<String> {
        let module = node
            .child_by_field_name("module_name")
            .map_or("", |name| source.of(name));
        let paths = imported(source, node, module).into_iter().map(|(path, _)| path);
        paths
            .chain([module.to_owned()])
            .find_map(|path| refused(&path, &path))
    }

    fn call(&self, source: &ParsedProgram<'_>, node: Node<'_>) -> Option<String> {
        let (function, arguments) = call(node)?;
        let name = source.of(function);
        if self.is_v1
            && function.kind() == "identifier"
            && let Some(instead) = of_v1(name)
        {
            return Some(format!("`{name}` is not supported: {instead}"));
        }
        let is_init = name.ends_with(".init") && self.aliases.contains_key(name.trim_end_matches(".init"));
        let uses_gpu = arguments
            .iter()
            .any(|each| source.of(*each).replace(' ', "") == "use_gpu=True");
        (is_init && uses_gpu)
            .then(|| "programs from 2017 run on CPUs only: call `paddle.init(use_gpu=False)`".to_owned())
    }
}

/// The names an import statement binds: the full path of each, and the name itself.
fn imported(source: &ParsedProgram<'_>, node: Node<'_>, module: &str) -> Vec<(String, String)> {
    let own = node.child_by_field_name("module_name");
    let names = children(node).into_iter().filter(|name| Some(*name) != own);
    names
        .filter(|name| matches!(name.kind(), "dotted_name" | "aliased_import"))
        .filter_map(|name| {
            let path = name.child_by_field_name("name").unwrap_or(name);
            let full = [module, source.of(path)]
                .into_iter()
                .filter(|part| !part.is_empty());
            let full = full.collect::<Vec<_>>().join(".");
            let alias = name.child_by_field_name("alias").map(|alias| source.of(alias));
            let alias = alias.or_else(|| full.rsplit('.').next()).map(str::to_owned)?;
            Some((full, alias))
        })
        .collect()
}

/// Why a full path is not supported; `None` if it is.
fn refused(path: &str, shown: &str) -> Option<String> {
    if path == "paddle.fluid" || path.starts_with("paddle.fluid.") {
        return Some(
            "fluid became PaddlePaddle itself: this program needs a port, not a translation".to_owned(),
        );
    }
    if let Some((module, instead)) = INSTEAD.get("OTHER_MODULES").and_then(|all| {
        all.iter().find(|(module, _)| {
            path.strip_prefix(module.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    }) {
        return Some(format!("`{module}` is not supported: {instead}"));
    }
    let rest = path.strip_prefix("paddle.v2.")?;
    let (module, name) = rest.split_once('.').unwrap_or(("", rest));
    let table = match MODULES.iter().find(|(known, _)| *known == module) {
        Some((_, table)) => *table,
        None if module.is_empty() => "MODULES",
        None => return None,
    };
    let instead = INSTEAD.get(table)?.get(name)?;
    Some(format!("`{shown}` is not supported: {instead}"))
}

fn of_v1(name: &str) -> Option<&'static String> {
    let found = |table: &str, name: &str| INSTEAD.get(table).and_then(|names| names.get(name));
    if let Some(layer) = name.strip_suffix("_layer") {
        return found("LAYERS", layer);
    }
    if let Some(evaluator) = name.strip_suffix("_evaluator") {
        // v1 writes generated text to files.
        return found("EVALUATORS", evaluator).filter(|_| evaluator != "seqtext_printer");
    }
    let network = found("NETWORKS", name).filter(|_| !matches!(name, "inputs" | "outputs"));
    network.or_else(|| found("BARE_IN_V1", name))
}

/// Reads the dictionaries of text in the Python module.
fn read_tables() -> BTreeMap<String, BTreeMap<String, String>> {
    let mut tables = BTreeMap::new();
    let mut texts = HashMap::new();
    let Some(source) = ParsedProgram::parse(TABLES) else {
        return tables;
    };
    for node in source
        .nodes()
        .into_iter()
        .filter(|node| node.kind() == "assignment")
    {
        let (Some(name), Some(value)) = (
            node.child_by_field_name("left"),
            node.child_by_field_name("right"),
        ) else {
            continue;
        };
        let name = source.of(name).to_owned();
        if value.kind() == "dictionary" {
            let pairs = children(value).into_iter().filter(|pair| pair.kind() == "pair");
            let entries = pairs.filter_map(|pair| {
                let key = text_of(&source, pair.child_by_field_name("key")?, &texts)?;
                Some((key, text_of(&source, pair.child_by_field_name("value")?, &texts)?))
            });
            let entries: BTreeMap<String, String> = entries.collect();
            texts.extend(entries.clone());
            tables.insert(name, entries);
        } else if let Some(text) = text_of(&source, value, &texts) {
            texts.insert(name, text);
        }
    }
    tables
}

/// The value of a string, of a name that stands for one, or of `NAME.format("…")`.
fn text_of(source: &ParsedProgram<'_>, node: Node<'_>, texts: &HashMap<String, String>) -> Option<String> {
    match node.kind() {
        "string" => Some(source.of(node).trim_matches('"').to_owned()),
        "subscript" => {
            // `LAYERS["name"]` of the table before it.
            let key = text_of(source, node.child_by_field_name("subscript")?, texts)?;
            texts.get(&key).cloned()
        }
        "identifier" => texts.get(source.of(node)).cloned(),
        "call" => {
            let (function, arguments) = call(node)?;
            let pattern = texts.get(source.of(function.child_by_field_name("object")?))?;
            Some(pattern.replace("{0}", &text_of(source, *arguments.first()?, texts)?))
        }
        _ => None,
    }
}
