//! Finds the program that a command line starts, as far as possible without running a shell.

/// Characters with a meaning to the shell.
const SHELL: [char; 16] = [
    '$', '`', ';', '&', '|', '<', '>', '(', ')', '*', '?', '\\', '\n', '"', '\'', '~',
];

/// Commands built into `sh`.
const BUILT_IN: [&str; 41] = [
    "!", ".", ":", "[", "alias", "bg", "break", "case", "cd", "command", "continue", "echo", "eval", "exec",
    "exit", "export", "false", "fg", "for", "getopts", "hash", "if", "jobs", "kill", "local", "printf",
    "pwd", "read", "set", "shift", "test", "times", "trap", "true", "type", "ulimit", "umask", "unset",
    "until", "wait", "while",
];

/// The words of a command after its assignments (`A=1 program x`); `None` if a shell is needed to split it.
pub fn plain_words(command: &str) -> Option<Vec<&str>> {
    if command.contains(SHELL) {
        return None;
    }
    let words = command.split_whitespace().skip_while(|word| is_assignment(word));
    Some(words.collect())
}

/// The program that is looked up in `PATH`, if any: neither a path nor built into `sh`.
pub fn program_by_name(command: &str) -> Option<&str> {
    let first = *plain_words(command)?.first()?;
    let is_own = first.contains(['/', '{', '#', '[']) || BUILT_IN.contains(&first);
    // The assignments may set `PATH`.
    (!is_own && command.trim_start().starts_with(first)).then_some(first)
}

/// The name by which a command starts Python, if it shows one: `python3.11` of `cd src && python3.11 train.py`. Programs that run
/// Python themselves start `python`.
pub fn python_by_name(command: &str) -> Option<&str> {
    match program_by_name(command) {
        Some("paddle" | "sh" | "bash") => Some("python"),
        Some(program) => is_python(program).then_some(program),
        // Either may choose another one.
        None if command.contains("PATH=") || command.contains("activate") => None,
        None => command
            .split(|c: char| !c.is_ascii_alphanumeric() && !['.', '/', '_', '-'].contains(&c))
            .find(|word| is_python(word)),
    }
}

fn is_python(program: &str) -> bool {
    let version = program.strip_prefix("python");
    version.is_some_and(|version| version.chars().all(|c| c.is_ascii_digit() || c == '.'))
}

fn is_assignment(word: &str) -> bool {
    let name = word.split_once('=').map_or("", |(name, _)| name);
    !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_looked_up_by_name_is_found() {
        assert_eq!(program_by_name("  python train.py"), Some("python"));
        assert_eq!(program_by_name("torchrun --nproc 2 x"), Some("torchrun"));
        for command in [
            "",
            "cd x",
            "exec python x",
            "./train",
            "/usr/bin/python x",
            "PATH=/x python y",
            "$PROGRAM x",
            "true && python",
            "[ -f x ]",
            "{ x",
        ] {
            assert_eq!(program_by_name(command), None, "{command}");
        }
    }

    #[test]
    fn python_is_found_by_the_name_that_the_shell_searches() {
        for (command, name) in [
            ("python train.py", "python"),
            ("SEED=1 python3 -u train.py", "python3"),
            ("cd src && python3.11 train.py", "python3.11"),
            ("paddle train", "python"),
            ("bash run.sh", "python"),
        ] {
            assert_eq!(python_by_name(command), Some(name), "{command}");
        }
        for command in [
            "/opt/venv/bin/python train.py",
            "venv/bin/python train.py",
            "./train",
            "torchrun train.py",
            "PATH=/opt/venv/bin:$PATH python train.py",
            ". /opt/venv/bin/activate && python train.py",
            "cd python-programs && ./train",
        ] {
            assert_eq!(python_by_name(command), None, "{command}");
        }
    }

    #[test]
    fn words_follow_the_assignments() {
        assert_eq!(plain_words("A=1 B= bash run.sh"), Some(vec!["bash", "run.sh"]));
        assert_eq!(plain_words("bash 'run.sh'"), None);
    }
}
