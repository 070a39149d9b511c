//! Finds out, before anything is sent, that an entry's program is not in the package.
//!
//! Looks only at simple commands: whatever a shell would have to work out is left to the shell.

use std::path::Path;

use paddlecloud_api::jobs::JobRequest;

use crate::error::ConnectError;
use crate::package::Package;

/// The programs of a job must be in its package; it is cheaper to hear of it before anything is sent.
pub fn check_programs(request: &JobRequest, package: &Package) -> Result<(), ConnectError> {
    let trainer = match (&request.topology, &request.entry) {
        (Some(file), _) => program_of(&format!("python {file}")),
        (None, Some(entry)) => program_of(entry),
        (None, None) => None,
    };
    let server = request.psentry.as_deref().filter(|_| request.pservers != Some(0));
    for program in trainer.into_iter().chain(server.and_then(program_of)) {
        check_program(&program, package)?;
    }
    Ok(())
}

fn check_program(program: &str, package: &Package) -> Result<(), ConnectError> {
    let entries = &package.scan.entries;
    if entries
        .iter()
        .any(|entry| entry.path.as_bytes() == program.as_bytes())
    {
        return Ok(());
    }
    let folder = package.folder.display();
    if package.folder.join(program).exists() {
        let error = ConnectError::refused(format!("`{program}` is not part of the package `{folder}`"));
        return Err(error.with_hint("a rule in `.gitignore` or `.paddleignore` leaves it out"));
    }
    let last = program.rsplit('/').next().unwrap_or(program);
    let elsewhere = entries
        .iter()
        .find(|entry| entry.path.name() == Some(last.as_bytes()));
    let error = ConnectError::refused(format!("there is no `{program}` in the package `{folder}`"));
    Err(match elsewhere {
        Some(entry) => error.with_hint(format!(
            "there is `{}`; commands run in the package's folder",
            entry.path
        )),
        None => {
            error.with_hint("commands run in the package's folder; name another package or another entry")
        }
    })
}

/// The file of the package that a command starts, if that can be told from its words.
fn program_of(command: &str) -> Option<String> {
    if command.contains([
        '$', '`', ';', '&', '|', '<', '>', '(', ')', '*', '?', '\\', '\n', '"', '\'', '~',
    ]) {
        return None;
    }
    let mut words = command
        .split_whitespace()
        .skip_while(|word| is_assignment(word))
        .peekable();
    let first = words.next()?;
    if first.contains('/') && !first.starts_with('/') {
        return inside_package(first);
    }
    let interpreter = Path::new(first).file_name()?.to_str()?;
    if !is_interpreter(interpreter) {
        return None;
    }
    let script = words.find(|word| !is_harmless_flag(word))?;
    if script.starts_with('-') {
        return None;
    }
    inside_package(script)
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn is_interpreter(program: &str) -> bool {
    let stem = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    matches!(
        stem,
        "python" | "pypy" | "sh" | "bash" | "dash" | "zsh" | "perl" | "ruby" | "node"
    )
}

/// Switches without a value that may stand before the script.
fn is_harmless_flag(word: &str) -> bool {
    matches!(
        word,
        "-u" | "-B" | "-O" | "-OO" | "-s" | "-S" | "-E" | "-I" | "-e" | "-x" | "-ex"
    )
}

/// A relative path inside the package, in normal form.
fn inside_package(word: &str) -> Option<String> {
    if word.starts_with('/') {
        return None;
    }
    let parts: Vec<&str> = word
        .split('/')
        .filter(|part| !part.is_empty() && *part != ".")
        .collect();
    let named = word.contains('/') || word.contains('.');
    (named && !parts.is_empty() && !parts.contains(&"..")).then(|| parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn simple_commands_name_their_program() {
        let program = |command: &str| program_of(command).unwrap_or_default();
        assert_eq!(program("python train.py"), "train.py");
        assert_eq!(program("python3.11 -u ./src//train.py --lr 0.1"), "src/train.py");
        assert_eq!(program("LR=1 bash run.sh"), "run.sh");
        assert_eq!(program("./run.sh a b"), "run.sh");
        assert_eq!(program("bin/run"), "bin/run");
    }

    #[test]
    fn what_a_shell_must_work_out_is_left_to_it() {
        for command in [
            "paddle train",
            "python -m trainer",
            "python -c 1",
            "python /opt/train.py",
            "cd x && python train.py",
            "python $PROGRAM",
            "python ../train.py",
            "torchrun train.py",
            "python",
            "",
        ] {
            assert_eq!(program_of(command), None, "{command}");
        }
    }
}
