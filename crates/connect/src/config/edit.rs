//! Selects a datacenter: changes only the one or two lines that do so, and no other byte.

use std::path::Path;

use super::file::{ConfigFile, EntryLines, Shape};
use super::{ConfigError, load};
use crate::private_file::replace_private_file;

/// Makes `name` the current datacenter of its file.
pub fn choose(path: &Path, name: &str) -> Result<(), ConfigError> {
    let location = super::Location {
        path: path.to_owned(),
        named: true,
    };
    let file = load(&location)?.ok_or_else(|| ConfigError::Missing(path.to_owned()))?;
    let text = edited(&file, name)?;
    let check = ConfigFile::parse(path, text.clone())?;
    if check.chosen(None)?.name != name {
        return Err(ConfigError::Unwritable {
            path: path.to_owned(),
            problem: "its format is too unusual to edit automatically; change it by hand".to_owned(),
        });
    }
    write(path, &text).map_err(|error| ConfigError::Unwritable {
        path: path.to_owned(),
        problem: error.to_string(),
    })
}

fn edited(file: &ConfigFile, name: &str) -> Result<String, ConfigError> {
    file.chosen(Some(name))?;
    let mut lines: Vec<String> = file.text.split_inclusive('\n').map(str::to_owned).collect();
    if let Some(current) = &file.current {
        set_value(&mut lines, current.referenced.line(), &quoted(name));
        return Ok(lines.concat());
    }
    let by_active =
        file.shape == Shape::Mapping || file.entries.iter().any(|entry| entry.fields.active.is_some());
    if !by_active {
        end_last_line(&mut lines);
        lines.push(format!("current-datacenter: {}\n", quoted(name)));
        return Ok(lines.concat());
    }
    // From the last to the first, so that an inserted line does not move those still to be edited.
    for entry in file.entries.iter().rev() {
        mark(file, &mut lines, entry, entry.name == name);
    }
    Ok(lines.concat())
}

fn mark(file: &ConfigFile, lines: &mut Vec<String>, entry: &EntryLines, active: bool) {
    match &entry.fields.active {
        Some(present) if present.value != active => {
            set_value(
                lines,
                present.referenced.line(),
                if active { "true" } else { "false" },
            );
        }
        Some(_) => {}
        None if active => insert_active(file, lines, entry),
        None => {}
    }
}

fn insert_active(file: &ConfigFile, lines: &mut Vec<String>, entry: &EntryLines) {
    let at = entry.line as usize;
    let own = lines.get(at - 1).map_or("", String::as_str);
    let indent = match file.shape {
        // Below `- name: x` or below a `name:` further down: as deep as the key itself.
        Shape::List => own.find("name").unwrap_or(2),
        Shape::Mapping => {
            let next = lines.get(at).map_or("", String::as_str);
            next.len() - next.trim_start().len()
        }
    };
    end_last_line(lines);
    lines.insert(at, format!("{}active: true\n", " ".repeat(indent)));
}

/// Replaces the value after the colon and keeps indentation, comment and line end.
fn set_value(lines: &mut [String], line: u64, value: &str) {
    let Some(line) = lines.get_mut(line as usize - 1) else {
        return;
    };
    let Some(colon) = line.find(':') else {
        return;
    };
    let rest = &line[colon + 1..];
    let comment = rest
        .find(" #")
        .map_or("", |at| rest[at..].trim_end_matches(['\r', '\n']));
    let end = &line[line.trim_end_matches(['\r', '\n']).len()..];
    *line = format!("{}: {value}{comment}{end}", &line[..colon]);
}

fn end_last_line(lines: &mut [String]) {
    if let Some(last) = lines.last_mut()
        && !last.ends_with('\n')
    {
        last.push('\n');
    }
}

fn quoted(name: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let word = name.chars().all(plain) && name.starts_with(|c: char| c.is_ascii_alphabetic());
    if word {
        name.to_owned()
    } else {
        format!("'{}'", name.replace('\'', "''"))
    }
}

/// Replaces the file behind any link and keeps its permissions.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let real = std::fs::canonicalize(path)?;
    let permissions = std::fs::metadata(&real)?.permissions();
    replace_private_file(&real, text)?;
    std::fs::set_permissions(&real, permissions)
}
