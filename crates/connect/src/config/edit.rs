//! Selects a datacenter or sets one of its fields: changes only those values, and no other byte.

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
        return Err(too_unusual(path));
    }
    save(path, &text)
}

/// The fields that [`set`] sets.
pub const SETTABLE: [&str; 7] = [
    "username", "password", "token", "usercert", "userkey", "cacert", "endpoint",
];

/// Sets a field of a datacenter, by default of the current one. Returns the datacenter's name.
pub fn set(path: &Path, name: Option<&str>, key: &str, value: &str) -> Result<String, ConfigError> {
    let location = super::Location {
        path: path.to_owned(),
        named: true,
    };
    let file = load(&location)?.ok_or_else(|| ConfigError::Missing(path.to_owned()))?;
    let entry = file.chosen(name)?;
    let mut lines: Vec<String> = file.text.split_inclusive('\n').map(str::to_owned).collect();
    match line_of(&file, &lines, entry, key) {
        Some(at) => set_value(&mut lines, at as u64 + 1, &quoted(value)),
        None => insert_field(&file, &mut lines, entry, key, &quoted(value)),
    }
    let text = lines.concat();
    let check = ConfigFile::parse(path, text.clone()).map_err(|_| too_unusual(path))?;
    let is_as_expected = |before: &EntryLines, after: &EntryLines| {
        before.name == after.name
            && SETTABLE.iter().all(|field| {
                let is_set = before.name == entry.name && *field == key;
                let expected = if is_set {
                    Some(value.to_owned())
                } else {
                    before.field(field)
                };
                after.field(field) == expected
            })
    };
    let mut pairs = file.entries.iter().zip(&check.entries);
    if file.entries.len() != check.entries.len()
        || !pairs.all(|(before, after)| is_as_expected(before, after))
    {
        return Err(too_unusual(path));
    }
    check.datacenter(Some(&entry.name))?;
    save(path, &text)?;
    Ok(entry.name.clone())
}

fn too_unusual(path: &Path) -> ConfigError {
    ConfigError::Unwritable {
        path: path.to_owned(),
        problem: "its format is too unusual to edit automatically; change it by hand".to_owned(),
    }
}

fn save(path: &Path, text: &str) -> Result<(), ConfigError> {
    write(path, text).map_err(|error| ConfigError::Unwritable {
        path: path.to_owned(),
        problem: error.to_string(),
    })
}

/// The index of the line with this key of an entry.
fn line_of(file: &ConfigFile, lines: &[String], entry: &EntryLines, key: &str) -> Option<usize> {
    let own = entry.line as usize - 1;
    let dash = |line: &String| line.trim_start().starts_with("- ");
    let first = match file.shape {
        Shape::List => (0..=own).rev().find(|at| dash(&lines[*at]))?,
        Shape::Mapping => own + 1,
    };
    // The key itself stands behind the dash of a list.
    let key_at = |line: &str| line.len() - line.trim_start_matches([' ', '-']).len();
    let depth = key_at(lines.get(first)?);
    let is_text = |line: &str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
    let inside = |(at, line): &(usize, &String)| {
        !is_text(line) || (key_at(line) >= depth && (*at == first || !dash(line) || indent(line) >= depth))
    };
    let mut own_lines = lines.iter().enumerate().skip(first).take_while(inside);
    own_lines
        .find(|(_, line)| {
            let rest = &line[key_at(line)..];
            key_at(line) == depth && rest.strip_prefix(key).is_some_and(|rest| rest.starts_with(':'))
        })
        .map(|(at, _)| at)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
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
        None if active => insert_field(file, lines, entry, "active", "true"),
        None => {}
    }
}

fn insert_field(file: &ConfigFile, lines: &mut Vec<String>, entry: &EntryLines, key: &str, value: &str) {
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
    lines.insert(at, format!("{}{key}: {value}\n", " ".repeat(indent)));
}

/// Replaces the value after the colon and keeps every other byte of the line.
fn set_value(lines: &mut [String], line: u64, value: &str) {
    let Some(line) = lines.get_mut(line as usize - 1) else {
        return;
    };
    let Some(colon) = line.find(':') else {
        return;
    };
    let rest = &line[colon + 1..];
    let start = rest.len() - rest.trim_start_matches([' ', '\t']).len();
    let length = value_length(&rest[start..]);
    let gap = if start == 0 { " " } else { &rest[..start] };
    *line = format!("{}:{gap}{value}{}", &line[..colon], &rest[start + length..]);
}

/// How long the value is that a text begins with: up to its closing quote, or to the comment or the end of the line.
fn value_length(text: &str) -> usize {
    if let Some(rest) = text.strip_prefix('\'') {
        // A doubled quote stands for one.
        let mut quotes = rest.match_indices('\'').map(|(at, _)| at);
        while let Some(at) = quotes.next() {
            match rest[at + 1..].starts_with('\'') {
                true => drop(quotes.next()),
                false => return at + 2,
            }
        }
    }
    if let Some(rest) = text.strip_prefix('"') {
        let mut escaped = false;
        for (at, c) in rest.char_indices() {
            if c == '"' && !escaped {
                return at + 2;
            }
            escaped = c == '\\' && !escaped;
        }
    }
    let line = text.trim_end_matches(['\r', '\n']);
    let value = match line.starts_with('#') {
        true => "",
        false => line.split(" #").next().unwrap_or_default(),
    };
    value.trim_end().len()
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
