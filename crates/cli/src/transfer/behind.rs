//! A destination that is a link on the cluster: the file goes to the link's target, as with cp(1).
//!
//! Only for a destination named on the command line: links inside a destination folder are replaced.

use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::split_last;
use paddlecloud_pfs::{LinkTarget, PfsPath};

use super::Transfer;
use super::remote::is_about_one_path;
use super::report::Lost;
use super::rules::{Kind, Landing, TransferSource};
use crate::error::{CliError, chain};

impl Transfer<'_> {
    /// The real destination of a source that goes to `place`; `None`, after a report, if it cannot be used.
    pub(super) async fn behind_link(
        &mut self,
        source: &TransferSource,
        landing: &Landing,
        place: PfsPath,
    ) -> Result<Option<PfsPath>, CliError> {
        match (source.kind, landing) {
            (Kind::File, Landing::Exactly) => self.file_behind_link(&source.shown, place).await,
            _ => Ok(Some(place)),
        }
    }

    /// The same for a file whose destination was named on the command line. There are no links in a folder that this command
    /// created.
    pub(super) async fn file_behind_link(
        &mut self,
        shown: &str,
        dest: PfsPath,
    ) -> Result<Option<PfsPath>, CliError> {
        let parent = split_last(&dest).map(|(parent, _)| parent);
        if parent.is_some_and(|parent| self.options.new_folders.contains(&parent)) {
            return Ok(Some(dest));
        }
        let link = match self.files.stat_link(&dest).await {
            Ok(meta) => meta.target,
            // A missing target is created; one that cannot be inspected is reported when it is written.
            Err(error) if is_about_one_path(&error) => None,
            Err(error) => return Err(error.into()),
        };
        let Some(link) = link else {
            return Ok(Some(dest));
        };
        // Ask the server first: it follows no link out of the space.
        match self.files.stat(&dest).await {
            Ok(_) => Ok(Some(self.files.real_path(&dest).await?)),
            Err(error) if !is_about_one_path(&error) => Err(error.into()),
            Err(_) if self.options.no_overwrite => self.keep_link(shown).map(|()| None),
            Err(error) => {
                let why = match error.refusal() {
                    Some(ErrorName::NotFound) => leads_nowhere(&link),
                    _ => format!("is a link that cannot be followed: {}", chain(&error)),
                };
                self.tally.lose(Lost::new(shown, format!("`{dest}` {why}")));
                Ok(None)
            }
        }
    }

    /// Even a broken link counts as existing.
    fn keep_link(&mut self, shown: &str) -> Result<(), CliError> {
        self.tally.kept += 1;
        match self.options.dry_run {
            true => self.world.out.line(format!("keep {shown}")),
            false => Ok(()),
        }
    }
}

/// The server does not follow every link, so whether its target exists may be unknown.
fn leads_nowhere(link: &LinkTarget) -> String {
    match link.as_bytes().starts_with(b"/") {
        true => format!(
            "is a link to an absolute path (`{link}`), which the server does not follow: name the file itself, or make the link relative"
        ),
        false => format!(
            "is a broken link, or points outside the home or public space (`{link}`): remove it, or create its target"
        ),
    }
}
