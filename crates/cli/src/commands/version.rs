//! `version`: this program's version. Works without a server.

use super::{Context, done};
use crate::error::CliError;
use crate::printer::Format;

/// Print the version of this program
#[derive(Debug, Default, clap::Args)]
pub struct Args {
    /// Output format
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs())]
    output: Option<Format>,
}

pub fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let version = env!("CARGO_PKG_VERSION");
    let system = format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH);
    let view = serde_json::json!({ "version": version, "system": system });
    if !context.world.out.structured(args.output, &view)? {
        context
            .world
            .out
            .line(format!("paddlecloud {version} ({system})"))?;
    }
    done()
}
