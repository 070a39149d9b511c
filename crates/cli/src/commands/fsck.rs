//! `pfs fsck`: reads all files whose digest the server knows, and distinguishes damage from changes.

use paddlecloud_api::files::{FsckFinding, FsckVerdict};
use paddlecloud_transfer::FileService;

use super::Context;
use crate::error::{CliError, DONE, FAILED, chain};
use crate::printer::{Format, Table};
use crate::transfer::report::counted;

/// Verify the files of all users against their digests
///
/// For administrators. Reads every file whose digest the server knows (uploaded files, and those read by `check`) and
/// reports differences: `damaged` (the bytes differ but the file was not written), `changed outside` and `removed
/// outside` (by a job or a person), `touched` (only its times). The last three are reported once, damage until it is
/// repaired. After an interrupted check, the next one reports them again. Exits with 1 if anything is damaged or
/// unreadable.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Output format
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
            CliError::refused(format!("the check was interrupted: {}", chain(&error)))
                .with_hint("run it again: it reports these findings again"),
        );
    }
    Ok(sum_up(fsck.checked(), &findings, context))
}

/// Prints a one-line summary; returns the exit code.
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
        err.hint("remove the damaged files and upload them again; the server cannot repair them");
    }
    if damaged + unread == 0 { DONE } else { FAILED }
}

fn print(
    findings: &[FsckFinding],
    format: Option<Format>,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let out = &mut context.world.out;
    if out.listed(format, findings, |finding| finding.path.clone())? || findings.is_empty() {
        return Ok(());
    }
    let mut table = Table::new(&["FOUND", "PATH"]);
    for finding in findings {
        table.push(vec![word(finding.verdict), finding.path.clone()]);
    }
    out.table(&table)
}

fn word(verdict: FsckVerdict) -> String {
    let word = serde_json::to_value(verdict).expect("a verdict is a word");
    word.as_str().unwrap_or_default().replace('-', " ")
}
