//! Checks, before anything is sent, that an entry's program is in the package.
//!
//! Only simple commands are checked: anything that needs a shell is left to the shell.

use std::path::Path;

use paddlecloud_api::jobs::JobRequest;
use paddlecloud_core::command::plain_words;
use paddlecloud_core::spec::DEFAULT_ENTRY;
use paddlecloud_pfs::RelPath;
use paddlecloud_pfs::package::BuiltIn;

use crate::error::ConnectError;
use crate::package::Package;

/// The programs of a job must be in its package; an early error saves an upload.
pub fn check_programs(request: &JobRequest, package: &Package) -> Result<(), ConnectError> {
    let trainer = match (&request.topology, &request.entry, &request.image) {
        (Some(file), ..) => program_of(&format!("python {file}")),
        (None, Some(entry), _) => program_of(entry),
        (None, None, Some(_)) => None,
        (None, None, None) => program_of(DEFAULT_ENTRY),
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
        return Err(error.with_hint(why_left_out(program, package)));
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
        None if program == "trainer_config.py" => error.with_hint(
            "without `-entry` a job runs `paddle train`, which reads it; name your own program, for example \
             `-entry 'python train.py'`",
        ),
        None => {
            error.with_hint("commands run in the package's folder; name another package or another entry")
        }
    })
}

fn why_left_out(program: &str, package: &Package) -> String {
    let around = |(left_out, _): &&(RelPath, BuiltIn)| {
        RelPath::from_bytes(program.as_bytes()).is_ok_and(|program| program.is_within(left_out))
    };
    match package.scan.built_in.iter().find(around) {
        Some((folder, BuiltIn::VirtualEnvironment)) => {
            format!("the virtual environment `{folder}` is not uploaded; activate it and write `python`")
        }
        Some((folder, BuiltIn::Cache)) => {
            format!("the cache `{folder}` is not uploaded; `!{folder}` in `.paddleignore` includes it")
        }
        Some((file, BuiltIn::Credentials | BuiltIn::PrivateKey)) => {
            format!("`{file}` may hold passwords or keys; `!{file}` in `.paddleignore` includes it")
        }
        None => "a rule in `.gitignore` or `.paddleignore` leaves it out".to_owned(),
    }
}

/// The file of the package that a command starts, if its words show that.
fn program_of(command: &str) -> Option<String> {
    let mut words = plain_words(command)?.into_iter();
    let first = words.next()?;
    if first.contains('/') && !first.starts_with('/') {
        return inside_package(first);
    }
    if first == "paddle" {
        return configuration_of(words);
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

/// The configuration of `paddle train`; without `--config` it is `trainer_config.py`.
fn configuration_of<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<String> {
    if words.next() != Some("train") {
        return None;
    }
    let mut config = "trainer_config.py";
    while let Some(word) = words.next() {
        match word.trim_start_matches('-').split_once('=') {
            Some(("config", file)) => config = file,
            None if word.trim_start_matches('-') == "config" => config = words.next()?,
            _ => {}
        }
    }
    inside_package(config)
}

fn is_interpreter(program: &str) -> bool {
    let stem = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    matches!(
        stem,
        "python" | "pypy" | "sh" | "bash" | "dash" | "zsh" | "perl" | "ruby" | "node"
    )
}

/// Switches without a value that may precede the script.
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
        assert_eq!(program("paddle train"), "trainer_config.py");
        assert_eq!(
            program("paddle train --use_gpu=0 --config=conf/a.py"),
            "conf/a.py"
        );
        assert_eq!(program("paddle train --config a.py --num_passes 3"), "a.py");
    }

    #[test]
    fn commands_that_need_a_shell_are_not_checked() {
        for command in [
            "paddle version",
            "paddle train --config=/pfs/dc1/home/me/a.py",
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
