//! `rm [-r] <path>...`: removes files of the cluster.

use std::ffi::OsString;

use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::UsageView;
use paddlecloud_pfs::{PfsPath, Space};
use paddlecloud_transfer::{FileClient, FileService, RemoveOptions};

use super::{Context, home};
use crate::error::CliError;
use crate::time_text::size;
use crate::transfer::location::{Remote, reach};
use crate::transfer::remote::{self, is_about_one_path};
use crate::transfer::report::{Lost, TransferTotals, counted, foreseen, uncounted};

/// Remove files on PaddlePaddle Cloud
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths `/pfs/…`; `*` and `?` match names
    #[arg(required = true)]
    paths: Vec<OsString>,

    /// Remove folders and their contents
    #[arg(long, short, visible_short_alias = 'R')]
    recursive: bool,

    /// Ignore missing files
    #[arg(long, short)]
    force: bool,

    /// Print what would be removed, remove nothing
    #[arg(long)]
    dry_run: bool,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let (session, arguments) = reach(&args.paths, context).await?;
    let files = session.client.files();
    let mut tally = TransferTotals::default();
    // A path in another home is a mistake, not a file that was already removed.
    let own = match args.force {
        true => Some(home(&session).await?),
        false => None,
    };
    let may_be_absent = |argument: &Remote| {
        let space = &argument.path.place().space;
        let is_ours = |own: &Remote| *space == Space::Public || *space == own.path.place().space;
        own.as_ref().is_some_and(is_ours)
    };
    let found = find(&files, &arguments, may_be_absent, &mut tally).await?;
    let options = RemoveOptions {
        recursive: args.recursive,
        dry_run: args.dry_run,
    };
    let mut gone = UsageView::default();
    for removed in files.remove(&found, options).await? {
        let is_gone = |name| args.force && name == ErrorName::NotFound;
        match removed.error {
            Some(error) if is_gone(error.error) => {}
            Some(error) => {
                error.hints.iter().for_each(|hint| tally.hint(hint));
                tally.lose(Lost::new(removed.path.to_string(), error.msg));
            }
            None => {
                gone.bytes += removed.usage.bytes;
                gone.files += removed.usage.files;
                gone.folders += removed.usage.folders;
                if let Some(words) = uncounted(removed.usage.unread) {
                    context.world.err.note(&format!("`{}`: {words}", removed.path));
                }
                if args.dry_run {
                    context.world.out.line(format!("remove {}", removed.path))?;
                }
            }
        }
    }
    tell(gone, args, context);
    tally.end("remove", context.world)
}

/// Everything the arguments match, each once.
async fn find(
    files: &FileClient<'_>,
    arguments: &[Remote],
    may_be_absent: impl Fn(&Remote) -> bool,
    tally: &mut TransferTotals,
) -> Result<Vec<PfsPath>, CliError> {
    let mut found: Vec<PfsPath> = Vec::new();
    for argument in arguments {
        match remote::find(files, argument).await {
            Ok(views) => found.extend(views.into_iter().map(|view| view.path.0)),
            Err(error) if error.refusal() == Some(ErrorName::NotFound) && may_be_absent(argument) => {}
            Err(error) if is_about_one_path(&error) => tally.refuse(argument.path.to_string(), &error),
            Err(error) => return Err(error.into()),
        }
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|path| seen.insert(path.place().clone()));
    Ok(found)
}

fn tell(gone: UsageView, args: &Args, context: &mut Context<'_>) {
    if gone == UsageView::default() {
        return;
    }
    let folders = match gone.folders {
        0 => String::new(),
        1 => " and 1 folder".to_owned(),
        count => format!(" and {count} folders"),
    };
    let what = format!("{}{folders}, {}", counted(gone.files), size(gone.bytes));
    context.world.err.line(match args.dry_run {
        true => foreseen(&format!("{what} would be removed")),
        false => format!("removed {what}"),
    });
}
