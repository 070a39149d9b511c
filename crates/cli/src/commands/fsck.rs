//! `pfs fsck`: reads all files whose digest the server knows, and tells damage from changes that somebody made.

use paddlecloud_api::files::{FsckFinding, FsckVerdict};

use super::Context;
use crate::error::{CliError, DONE, FAILED};
use crate::printer::{Format, Table};
use crate::transfer::report::counted;

/// Check the files of all users against what is known of them
///
/// For administrators. Reads every file whose content the server knows (those above 1 MiB that came through the
/// service, and those whose digest somebody asked for, as `check` does) and says which are not as they were: `damaged`
/// (other bytes although nobody wrote: the disk), `changed outside` and `removed outside` (a job or a person did, which
/// is their right), `touched` (only its times). Ends with 1 when anything is damaged.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How to print it
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let session = context.session().await?;
    let reply = session.client.files().fsck().await?;
    print(&reply.findings, args.output, context)?;
    let count = |verdict| {
        let found = reply.findings.iter().filter(|finding| finding.verdict == verdict);
        found.count() as u64
    };
    let (damaged, unread) = (count(FsckVerdict::Damaged), count(FsckVerdict::Unreadable));
    let checked = counted(reply.checked.saturating_sub(unread));
    let found = match damaged {
        0 => "none damaged".to_owned(),
        damaged => format!("{} damaged", counted(damaged)),
    };
    let unread_too = match unread {
        0 => String::new(),
        unread => format!(", {} could not be read", counted(unread)),
    };
    context
        .world
        .err
        .line(format!("{checked} read, {found}{unread_too}"));
    if damaged == 0 {
        return Ok(if unread == 0 { DONE } else { FAILED });
    }
    context
        .world
        .err
        .hint("remove what is damaged and send it again; nothing else can bring the bytes back");
    Ok(FAILED)
}

fn print(
    findings: &[FsckFinding],
    format: Option<Format>,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let out = &mut context.world.out;
    if format == Some(Format::Name) {
        return findings.iter().try_for_each(|finding| out.line(&finding.path));
    }
    if out.structured(format, &findings)? || findings.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["FOUND", "PATH"]);
    for finding in findings {
        table.push(vec![word(finding.verdict).to_owned(), finding.path.clone()]);
    }
    out.table(&table)
}

fn word(verdict: FsckVerdict) -> &'static str {
    match verdict {
        FsckVerdict::Damaged => "damaged",
        FsckVerdict::ChangedOutside => "changed outside",
        FsckVerdict::RemovedOutside => "removed outside",
        FsckVerdict::Touched => "touched",
        FsckVerdict::Unreadable => "unreadable",
        FsckVerdict::Changing => "changing",
    }
}
