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
    fn words_follow_the_assignments() {
        assert_eq!(plain_words("A=1 B= bash run.sh"), Some(vec!["bash", "run.sh"]));
        assert_eq!(plain_words("bash 'run.sh'"), None);
    }
}
