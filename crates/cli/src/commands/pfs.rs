//! `pfs cp|ls|…`: the file commands under the name S4 gives them.

use super::{cat, check, cp, du, ls, mkdir, mv, rm, stat, sync};
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
    Ls(ls::Args),
    Mkdir(mkdir::Args),
    Mv(mv::Args),
    Rm(rm::Args),
    Stat(stat::Args),
    Sync(sync::Args),
}

pub fn run(args: &Args) -> Result<u8, CliError> {
    match &args.command {
        Command::Cat(args) => cat::run(args),
        Command::Check(args) => check::run(args),
        Command::Cp(args) => cp::run(args),
        Command::Du(args) => du::run(args),
        Command::Ls(args) => ls::run(args),
        Command::Mkdir(args) => mkdir::run(args),
        Command::Mv(args) => mv::run(args),
        Command::Rm(args) => rm::run(args),
        Command::Stat(args) => stat::run(args),
        Command::Sync(args) => sync::run(args),
    }
}
