//! `mkdir <dir>...`: creates folders on the cluster.

use std::ffi::OsString;

use paddlecloud_transfer::FileService;

use super::Context;
use crate::error::CliError;
use crate::transfer::location::{Remote, reach};
use crate::transfer::remote::is_about_one_path;
use crate::transfer::report::TransferTotals;

/// Make directories on PaddlePaddle Cloud
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Paths `/pfs/…`
    #[arg(required = true)]
    paths: Vec<OsString>,

    /// Create missing parents, and accept existing folders
    #[arg(long, short)]
    parents: bool,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let (session, paths) = reach(&args.paths, context).await?;
    let mut tally = TransferTotals::default();
    for Remote { path, .. } in &paths {
        match session.client.files().mkdir(path, args.parents).await {
            Ok(_) => {}
            Err(error) if is_about_one_path(&error) => {
                tally.refuse(path.to_string(), &error);
            }
            Err(error) => return Err(error.into()),
        }
    }
    tally.end("make", context.world)
}
