//! `pserver stat|export|import|checkpoints`: running parameter servers and what they saved. The single executable brings the code,
//! which needs Linux; here is only its command line.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::Context;
use crate::error::CliError;

/// Inspect parameter servers, saved models and checkpoints
///
/// Needs Linux. A worker's own `paddle` has the same commands.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// List the checkpoints of a folder, of all runs in it, and verify them; exits with 1 if one is damaged
    Checkpoints {
        /// What a program passed as `checkpoints`, by default `output/checkpoints`
        folder: PathBuf,
    },
    /// Convert a saved model to numpy, safetensors or text
    ///
    /// A table has its ids beside its rows, as `NAME.ids`; in text each line is an id and its row.
    Export {
        /// Default: by the name of `TO`, else numpy
        #[arg(long, value_name = "FORMAT", value_parser = ["numpy", "safetensors", "text"])]
        format: Option<String>,
        /// Export only what differs from this earlier save
        #[arg(long, value_name = "MODEL")]
        since: Option<PathBuf>,
        /// A folder `pass-00000` that `save` wrote
        model: PathBuf,
        /// A file `NAME.safetensors`, or a folder with one `.npy` or `.txt` file per parameter
        to: PathBuf,
    },
    /// Convert numpy, safetensors or text to a saved model
    Import {
        /// Default: by what `FROM` is
        #[arg(long, value_name = "FORMAT", value_parser = ["numpy", "safetensors", "text"])]
        format: Option<String>,
        /// Start from this save and replace what the import contains
        #[arg(long, value_name = "MODEL")]
        onto: Option<PathBuf>,
        /// What `export` wrote, or a file of another tool
        from: PathBuf,
        /// The folder to write, which `load` reads
        model: PathBuf,
    },
    /// Show the state of running parameter servers, one line of JSON each
    Stat {
        /// Default: those of this job, else the one on this machine
        #[arg(value_name = "HOST:PORT")]
        servers: Vec<OsString>,
    },
}

/// Runs the words after `pserver`.
pub type Tool = fn(&[OsString]) -> Report;

/// What it says on stdout and stderr, and its exit code.
#[derive(Debug)]
pub struct Report {
    pub lines: Vec<String>,
    pub errors: Vec<String>,
    pub code: u8,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let Some(tool) = context.world.pserver else {
        return Err(CliError::refused("`pserver` needs Linux"));
    };
    let report = tool(&words(&args.action));
    report
        .errors
        .iter()
        .for_each(|error| context.world.err.error(error));
    for line in &report.lines {
        context.world.out.line(line)?;
    }
    Ok(report.code)
}

/// The command line in the form that a worker's `paddle pserver` takes.
fn words(action: &Action) -> Vec<OsString> {
    match action {
        Action::Checkpoints { folder } => vec!["checkpoints".into(), folder.into()],
        Action::Export {
            format,
            since,
            model,
            to,
        } => converting(
            "export",
            format.as_deref(),
            ("--since", since.as_deref()),
            [model, to],
        ),
        Action::Import {
            format,
            onto,
            from,
            model,
        } => converting(
            "import",
            format.as_deref(),
            ("--onto", onto.as_deref()),
            [from, model],
        ),
        Action::Stat { servers } => [vec!["stat".into()], servers.clone()].concat(),
    }
}

fn converting(
    command: &str,
    format: Option<&str>,
    (option, other): (&str, Option<&Path>),
    places: [&PathBuf; 2],
) -> Vec<OsString> {
    let mut words: Vec<OsString> = vec![command.into()];
    if let Some(format) = format {
        words.extend(["--format".into(), format.into()]);
    }
    if let Some(other) = other {
        words.extend([option.into(), other.into()]);
    }
    words.push("--".into());
    words.extend(places.map(Into::into));
    words
}
