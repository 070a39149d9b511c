//! `pfs fsck`: reads all files whose digest the server knows, and tells damage from changes that somebody made.

use paddlecloud_api::files::{FsckFinding, FsckVerdict};

use super::Context;
use crate::error::{CliError, DONE, FAILED, chain};
use crate::printer::{Format, Table};
use crate::transfer::report::counted;

/// Check the files of all users against what is known of them
///
/// For administrators. Reads every file whose content the server knows (those that came through the service, and those
/// whose digest somebody asked for, as `check` does) and says which are not as they were: `damaged`
/// (other bytes although nobody wrote: the disk), `changed outside` and `removed outside` (a job or a person did, which
/// is their right), `touched` (only its times). Those three are told once, damage until it is gone; a check that breaks
/// off has told nothing. Ends with 1 when anything is damaged or cannot be read.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// How to print it
    #[arg(long, short, value_name = "FORMAT", value_parser = Format::for_programs_or_names())]
    output: Option<Format>,
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let session = context.session().await?;
    let mut fsck = session.client.files().fsck_begin().await?;
    let mut findings = Vec::new();
    let broken = loop {
        match fsck.next().await {
            Ok(Some(finding)) => findings.push(finding),
            Ok(None) => break None,
            Err(error) => break Some(error),
        }
    };
    print(&findings, args.output, context)?;
    context.world.out.flush()?;
    if let Some(error) = broken {
        return Err(
            CliError::refused(format!("the check broke off: {}", chain(&error)))
                .with_hint("run it again: it finds all of this once more"),
        );
    }
    let code = sum_up(fsck.checked(), &findings, context);
    if let Err(error) = fsck.told().await {
        let again = "the next check tells the same once more";
        context.world.err.note(&format!("{again}: {}", chain(&error)));
    }
    Ok(code)
}

/// Says in a line how all files fare; the exit code.
fn sum_up(checked: u64, findings: &[FsckFinding], context: &mut Context<'_>) -> u8 {
    let count = |verdict| {
        let found = findings.iter().filter(|finding| finding.verdict == verdict);
        found.count() as u64
    };
    let (damaged, unread) = (count(FsckVerdict::Damaged), count(FsckVerdict::Unreadable));
    let checked = counted(checked.saturating_sub(unread));
    let found = match damaged {
        0 => "none damaged".to_owned(),
        damaged => format!("{} damaged", counted(damaged)),
    };
    let unread_too = match unread {
        0 => String::new(),
        unread => format!(", {} could not be read", counted(unread)),
    };
    let err = &mut context.world.err;
    err.line(format!("{checked} read, {found}{unread_too}"));
    if damaged > 0 {
        err.hint("remove what is damaged and send it again; nothing else can bring the bytes back");
    }
    if damaged + unread == 0 { DONE } else { FAILED }
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
