//! `pfs cp|ls|…`: the file commands under the name of the client design.

use super::{Context, cat, check, cp, du, file, fsck, ls, mkdir, mv, publish, rm, stat, sync, uploads};
use crate::error::CliError;

/// The file commands, as `pfs cp` and so on
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Cat(cat::Args),
    Check(check::Args),
    Cp(cp::Args),
    Du(du::Args),
    File(file::Args),
    Fsck(fsck::Args),
    Ls(ls::Args),
    Mkdir(mkdir::Args),
    Mv(mv::Args),
    Publish(publish::Args),
    Rm(rm::Args),
    Stat(stat::Args),
    Sync(sync::Args),
    Uploads(uploads::Args),
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    match &args.command {
        Command::Cat(args) => cat::run(args, context).await,
        Command::Check(args) => check::run(args, context).await,
        Command::Cp(args) => cp::run(args, context).await,
        Command::Du(args) => du::run(args, context).await,
        Command::File(args) => file::run(args, context).await,
        Command::Fsck(args) => fsck::run(args, context).await,
        Command::Ls(args) => ls::run(args, context).await,
        Command::Mkdir(args) => mkdir::run(args, context).await,
        Command::Mv(args) => mv::run(args, context).await,
        Command::Publish(args) => publish::run(args, context).await,
        Command::Rm(args) => rm::run(args, context).await,
        Command::Stat(args) => stat::run(args, context).await,
        Command::Sync(args) => sync::run(args, context).await,
        Command::Uploads(args) => uploads::run(args, context).await,
    }
}
