//! `completion <shell>`: a script that completes commands and flags.

use clap_complete::Shell;

use super::{Context, done};
use crate::args;
use crate::error::CliError;

/// What the program is called by those who type.
const NAMES: [&str; 2] = ["paddlectl", "paddlecloud"];

/// Print a completion script for a shell
///
/// For bash: `source <(paddlectl completion bash)`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell the script is for
    shell: Shell,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    context.world.out.bytes(script(args.shell).as_bytes())?;
    done()
}

/// The script for both names of the program, whichever was typed.
fn script(shell: Shell) -> String {
    let [first, second] = NAMES;
    let one = script_of(shell, first);
    match shell {
        Shell::Bash => both_dashes(&one.replace(
            &format!("-o default {first}\n"),
            &format!("-o default {first} {second}\n"),
        )),
        Shell::Zsh => one
            .replace(
                &format!("#compdef {first}\n"),
                &format!("#compdef {first} {second}\n"),
            )
            .replace(
                &format!("compdef _{first} {first}\n"),
                &format!("compdef _{first} {first} {second}\n"),
            ),
        Shell::PowerShell => one.replace(
            &format!("-CommandName '{first}'"),
            &format!("-CommandName '{first}', '{second}'"),
        ),
        _ => one + &script_of(shell, second),
    }
}

/// Bash's script, with long flags after one dash as well, which is how the documents write them: `-job<Tab>`. Who has
/// typed one dash and nothing else is shown each flag once.
fn both_dashes(script: &str) -> String {
    let spellings = r#"_paddlectl_spellings() {
    local cur="$1"
    shift
    case "${cur}" in
        --* | -) echo "$*" ;;
        -*) echo "$*" "${*/#--/-}" ;;
        *) echo "$*" ;;
    esac
}

"#;
    let script = script
        .replace(
            r#"compgen -W "${opts}" --"#,
            r#"compgen -W "$(_paddlectl_spellings "${cur}" ${opts})" --"#,
        )
        .replacen(
            "    prev=\"$3\"\n",
            "    prev=\"$3\"\n    [[ \"${prev}\" == -[a-z][a-z]* ]] && prev=\"-${prev}\"\n",
            1,
        );
    format!("{spellings}{script}")
}

fn script_of(shell: Shell, name: &str) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::definition(name), name, &mut script);
    String::from_utf8(script).expect("names and help are text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_are_registered_with_every_shell() {
        let registers = [
            (
                Shell::Bash,
                "-F _paddlectl -o nosort -o bashdefault -o default paddlectl paddlecloud",
            ),
            (Shell::Zsh, "#compdef paddlectl paddlecloud"),
            (Shell::Zsh, "compdef _paddlectl paddlectl paddlecloud"),
            (Shell::Fish, "complete -c paddlecloud "),
            (Shell::Elvish, "arg-completer[paddlecloud]"),
            (Shell::PowerShell, "-CommandName 'paddlectl', 'paddlecloud'"),
        ];
        for (shell, line) in registers {
            assert!(script(shell).contains(line), "{shell}: {line}");
        }
    }
}
