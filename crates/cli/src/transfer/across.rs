//! From the cluster to the cluster: the server copies, no byte comes here.

use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{CopyReply, below};
use paddlecloud_pfs::{Entry, Existing, Node, PfsPath};

use super::location::Remote;
use super::remote::{self, RemoteSource, is_about_one_path};
use super::report::Lost;
use super::rules::{Kind, Landing, Request, Target};
use super::up::inside;
use super::{Copy, Transfer};
use crate::error::CliError;

impl Transfer<'_> {
    pub(super) async fn across(
        &mut self,
        sources: &[&Remote],
        dest: &Remote,
        copy: &Copy,
    ) -> Result<(), CliError> {
        self.moved = "copied";
        let target = remote::target(&self.files, &dest.path).await?;
        let request = Request {
            target,
            slash: dest.path.has_trailing_slash(),
            recursive: copy.recursive,
            style: copy.style,
        };
        let found = self.remote_sources(sources).await?;
        let landed = self.land(found, |found| &found.source, request, &dest.path.to_string());
        if target == Target::Missing && !landed.is_empty() {
            let is_made = match request.slash {
                true => self.make_folder(&dest.path).await?,
                false => self.make_parent(&dest.path).await?,
            };
            if !is_made {
                return Ok(());
            }
        }
        for (source, landing) in landed {
            let place = match &landing {
                Landing::Exactly => Ok(dest.path.clone()),
                Landing::Inside(name) => inside(&dest.path, name),
            };
            match place {
                Ok(place) if place.place() == source.path.place() => {
                    self.tally.lose(Lost::new(
                        source.source.shown,
                        "source and destination are the same",
                    ));
                }
                Ok(place) => self.copy_one(&source, &place).await?,
                Err(error) => self.tally.lose(Lost::new(source.source.shown, error.to_string())),
            }
        }
        Ok(())
    }

    async fn copy_one(&mut self, source: &RemoteSource, place: &PfsPath) -> Result<(), CliError> {
        if source.source.kind == Kind::File {
            let name = source.source.name.as_deref().unwrap_or_default();
            if self.selection.takes_file(name) {
                self.copy_named(&source.path, place).await?;
            }
            return Ok(());
        }
        // Into a folder that is there, and with filters, each file goes for itself.
        let is_whole = self.selection.is_all() && !self.options.dry_run;
        if is_whole && remote::target(&self.files, place).await? == Target::Missing {
            return self.copy_named(&source.path, place).await;
        }
        let Some((mut entries, _)) = self.look_through_there(&source.path).await? else {
            return Ok(());
        };
        self.select(&mut entries);
        self.copy_entries(&source.path, place, &entries).await
    }

    /// Copies entries of one folder into another, folders first.
    pub(super) async fn copy_entries(
        &mut self,
        from: &PfsPath,
        to: &PfsPath,
        entries: &[Entry],
    ) -> Result<(), CliError> {
        if !self.make_folder(to).await? {
            return Ok(());
        }
        for entry in entries {
            let places = below(from, &entry.path).and_then(|from| Ok((from, below(to, &entry.path)?)));
            match places {
                Err(error) => self
                    .tally
                    .lose(Lost::new(entry.path.to_string(), error.to_string())),
                Ok((_, to)) if entry.node == Node::Dir => drop(self.make_folder(&to).await?),
                Ok((from, to)) => self.copy_node(&from, &to, &entry.node).await?,
            }
        }
        Ok(())
    }

    async fn copy_node(&mut self, from: &PfsPath, to: &PfsPath, node: &Node) -> Result<(), CliError> {
        let copied = match node {
            _ if self.options.dry_run => return self.foresee(from, to).await,
            // Inside a folder links stay links.
            Node::Symlink { .. } => self.files.copy_link(from, to, self.existing()).await,
            _ => self.files.copy(from, to, self.existing()).await,
        };
        self.settle_copy(from, copied)
    }

    /// Copies what was named itself; what a link leads to, then.
    async fn copy_named(&mut self, from: &PfsPath, to: &PfsPath) -> Result<(), CliError> {
        if self.options.dry_run {
            return self.foresee(from, to).await;
        }
        let copied = self.files.copy(from, to, self.existing()).await;
        self.settle_copy(from, copied)
    }

    fn settle_copy(
        &mut self,
        from: &PfsPath,
        copied: Result<CopyReply, ClientError>,
    ) -> Result<(), CliError> {
        match copied {
            Ok(copied) => {
                self.tally.transferred += copied.files;
                self.tally.moved += copied.bytes;
                Ok(())
            }
            Err(error) if self.is_kept(&error) => {
                self.tally.kept += 1;
                Ok(())
            }
            Err(error) => self.refused(from, error),
        }
    }

    async fn foresee(&mut self, from: &PfsPath, to: &PfsPath) -> Result<(), CliError> {
        let is_kept =
            self.existing() == Existing::Keep && remote::target(&self.files, to).await? != Target::Missing;
        if is_kept {
            self.tally.kept += 1;
            return self.world.out.line(format!("keep {from}"));
        }
        self.tally.transferred += 1;
        self.world.out.line(format!("copy {from}"))
    }

    fn is_kept(&self, error: &ClientError) -> bool {
        self.existing() == Existing::Keep && error.refusal() == Some(ErrorName::Conflict)
    }

    /// Tells what the server refused; what concerns more than this path ends everything.
    pub(super) fn refused(&mut self, path: &PfsPath, error: ClientError) -> Result<(), CliError> {
        if !is_about_one_path(&error) {
            return Err(error.into());
        }
        self.tally.refuse(path.to_string(), &error);
        Ok(())
    }
}
