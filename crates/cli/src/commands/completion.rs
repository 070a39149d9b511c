//! `completion <shell>`: prints a script that lets a shell ask this program for completions, and answers such
//! questions.

use std::time::Duration;

use clap_complete::Shell;
use paddlecloud_api::client::{Client, JobFilter};
use paddlecloud_api::files::below;
use paddlecloud_transfer::{FileService, ListOptions};

use super::{Context, done, on_runtime};
use crate::args;
use crate::complete::{Sought, sought};
use crate::config::{self, Choice};
use crate::error::CliError;
use crate::session;
use crate::transfer::location::{Above, Remote};

/// The name of the program as typed.
const NAMES: [&str; 2] = ["paddlectl", "paddlecloud"];

/// A completion never waits longer than this for a server.
const PATIENCE: Duration = Duration::from_secs(2);
/// More would only be scrolled past.
const MOST: usize = 500;

/// Print a completion script for a shell
///
/// For bash: `source <(paddlectl completion bash)`. In bash, zsh and fish it completes datacenters, job and worker
/// names and paths `/pfs/…` too; it asks the current server and never starts one.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The shell the script is for
    shell: Shell,

    /// The words after the program's name; prints completions of the last one
    #[arg(last = true, hide = true)]
    words: Vec<String>,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    if args.words.is_empty() {
        context.world.out.bytes(script(args.shell).as_bytes())?;
        return done();
    }
    let last = args.words.last().map_or("", String::as_str);
    match sought(&args::definition(context.program), &args.words) {
        Sought::Words(words) => print(words, context),
        Sought::Nothing => done(),
        Sought::Datacenters => print(datacenters(last, context), context),
        asked => on_runtime(async {
            let asking = ask(&asked, last, context);
            // If the server cannot be asked, nothing is completed: a shell prompt is not the place for errors.
            let found = tokio::time::timeout(PATIENCE, asking).await;
            print(found.ok().flatten().unwrap_or_default(), context)
        }),
    }
}

fn print(words: Vec<String>, context: &mut Context<'_>) -> Result<u8, CliError> {
    for word in words.iter().take(MOST).filter(|word| !word.contains('\n')) {
        context.world.out.line(word)?;
    }
    done()
}

/// The datacenters of the configuration that begin with the last word.
fn datacenters(last: &str, context: &Context<'_>) -> Vec<String> {
    let location = config::location(&context.flags.overrides(), &context.world.env);
    let file = location.and_then(|location| config::load(&location).ok().flatten());
    let mut names = file.map(|file| file.names()).unwrap_or_default();
    names.retain(|name| name.starts_with(last));
    names
}

/// The server's names that begin with the last word.
async fn ask(asked: &Sought, last: &str, context: &Context<'_>) -> Option<Vec<String>> {
    let client = client(context)?;
    let mut words = match asked {
        Sought::Jobs => jobs(&client).await?,
        Sought::Workers(job) => workers(&client, job.as_deref()).await?,
        Sought::Remote => paths(&client, last).await?,
        Sought::Words(_) | Sought::Datacenters | Sought::Nothing => return None,
    };
    words.retain(|word| word.starts_with(last));
    Some(words)
}

/// The current server; it is not started for this.
fn client(context: &Context<'_>) -> Option<Client> {
    match config::choice(&context.flags.overrides(), &context.world.env).ok()? {
        Choice::Remote(datacenter) => Some(session::remote(&datacenter, &context.world.env)),
        Choice::Embedded => embedded(context),
    }
}

#[cfg(target_os = "linux")]
fn embedded(context: &Context<'_>) -> Option<Client> {
    let place = crate::embedded::EmbeddedFolder::of(&context.world.env).ok()?;
    place.socket().exists().then(|| place.client())
}

#[cfg(not(target_os = "linux"))]
fn embedded(_: &Context<'_>) -> Option<Client> {
    None
}

/// Names of jobs, the latest first, each once.
async fn jobs(client: &Client) -> Option<Vec<String>> {
    let filter = JobFilter {
        all: true,
        limit: Some(MOST as u32),
        ..JobFilter::default()
    };
    let mut names: Vec<String> = Vec::new();
    for job in client.jobs_list(&filter).await.ok()?.msg {
        if !names.contains(&job.name) {
            names.push(job.name);
        }
    }
    Some(names)
}

/// Workers as `logs -w` accepts them: `trainer-0`, and their full names.
async fn workers(client: &Client, job: Option<&str>) -> Option<Vec<String>> {
    let workers = client.workers_list(job, false).await.ok()?;
    let short = workers
        .iter()
        .map(|worker| format!("{}-{}", worker.role, worker.index));
    let mut names: Vec<String> = short.collect();
    names.sort_unstable();
    names.dedup();
    names.extend(workers.into_iter().map(|worker| worker.name));
    Some(names)
}

/// The contents of the folder of an unfinished path; folders end with a slash.
async fn paths(client: &Client, last: &str) -> Option<Vec<String>> {
    let (folder, name) = last.rsplit_once('/')?;
    let below_folder = |name: &str| format!("{folder}/{name}/");
    match Above::parse(folder.as_ref()) {
        _ if folder.is_empty() => return Some(vec!["/pfs/".to_owned()]),
        Some(Above::Pfs) => {
            let datacenter = client.whoami_get().await.ok()?.datacenter;
            return Some([datacenter.as_str(), "public"].map(below_folder).to_vec());
        }
        Some(Above::Datacenter(_)) => return Some(["home", "public"].map(below_folder).to_vec()),
        Some(Above::Homes(_)) => {
            let user = client.whoami_get().await.ok()?.user;
            return Some(vec![below_folder(&user)]);
        }
        None => {}
    }
    let remote = Remote::parse(folder.as_ref()).ok()?;
    let files = client.files();
    let mut listing = files.list(&remote.path, ListOptions::default()).await.ok()?;
    let mut found = Vec::new();
    while let Some(entry) = listing.next_readable().await.ok()? {
        let entry_name = entry.path.to_string();
        let is_hidden = entry_name.starts_with('.') && !name.starts_with('.');
        if is_hidden || below(&remote.path, &entry.path).is_err() {
            continue;
        }
        let slash = if entry.meta.is_folder() { "/" } else { "" };
        found.push(format!("{folder}/{entry_name}{slash}"));
    }
    Some(found)
}

/// The script for both names of the program, whichever was typed.
fn script(shell: Shell) -> String {
    let [first, second] = NAMES;
    match shell {
        Shell::Bash => BASH.to_owned(),
        Shell::Zsh => ZSH.to_owned(),
        Shell::Fish => FISH.to_owned(),
        Shell::PowerShell => script_of(shell, first).replace(
            &format!("-CommandName '{first}'"),
            &format!("-CommandName '{first}', '{second}'"),
        ),
        _ => script_of(shell, first) + &script_of(shell, second),
    }
}

fn script_of(shell: Shell, name: &str) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::definition(name), name, &mut script);
    String::from_utf8(script).expect("names and help are text")
}

/// Without an answer bash completes files, as it does for every program.
const BASH: &str = r#"_paddlectl() {
    local IFS=$'\n'
    COMPREPLY=($("${COMP_WORDS[0]}" completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
    case "${COMPREPLY[0]}" in
        /pfs/*/) compopt -o filenames -o nospace 2>/dev/null ;;
        /pfs/*) compopt -o filenames 2>/dev/null ;;
    esac
}
complete -F _paddlectl -o nosort -o bashdefault -o default paddlectl paddlecloud
"#;

const ZSH: &str = r#"#compdef paddlectl paddlecloud
_paddlectl() {
    local -a found folders
    found=("${(@f)$("${words[1]}" completion zsh -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
    found=(${found:#})
    if (( ! ${#found} )); then
        _files
        return
    fi
    folders=(${(M)found:#*/})
    found=(${found:#*/})
    (( ${#folders} )) && compadd -S '' -- $folders
    (( ${#found} )) && compadd -- $found
}
if [ "$funcstack[1]" = "_paddlectl" ]; then
    _paddlectl "$@"
else
    compdef _paddlectl paddlectl paddlecloud
fi
"#;

const FISH: &str = r#"function __paddlectl_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found ($words[1] completion fish -- $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c paddlectl -f -a '(__paddlectl_complete)'
complete -c paddlecloud -f -a '(__paddlectl_complete)'
"#;

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
