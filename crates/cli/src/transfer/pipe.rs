//! `-` on either side: stdin becomes a file of the cluster, files of the cluster become stdout.

use std::io;
use std::ops::Range;

use paddlecloud_api::client::files::Upload;

use super::Transfer;
use super::location::Remote;
use super::remote;
use super::rules::Target;
use crate::error::CliError;
use crate::session::Session;
use crate::world::World;

impl Transfer<'_> {
    /// Sends stdin. It is kept in a temporary file first: only then its size and digest are known, and a lost
    /// connection does not lose it.
    pub(super) async fn pipe_up(&mut self, dest: &Remote) -> Result<(), CliError> {
        let is_folder = dest.path.has_trailing_slash()
            || remote::target(&self.files, &dest.path).await? == Target::Folder;
        if is_folder {
            return Err(CliError::refused(format!("`{}` is a folder", dest.path))
                .with_hint("what comes from a pipe has no name: name the file too"));
        }
        let kept = keep_stdin().map_err(|error| CliError::refused(format!("cannot read stdin: {error}")))?;
        self.make_parent(&dest.path).await?;
        let upload = Upload::File {
            local: kept.path().to_owned(),
            remote: dest.path.clone(),
        };
        self.send("-", vec![upload]).await
    }
}

fn keep_stdin() -> io::Result<tempfile::NamedTempFile> {
    let mut kept = tempfile::NamedTempFile::with_prefix("paddlectl-stdin-")?;
    io::copy(&mut io::stdin().lock(), &mut kept)?;
    Ok(kept)
}

/// Prints files, or the same range of each, one after the other.
pub async fn print_files(
    session: &Session,
    sources: &[&Remote],
    range: Option<Range<u64>>,
    world: &mut World,
) -> Result<(), CliError> {
    let files = session.client.files();
    for source in sources {
        for view in remote::find(&files, source).await? {
            let mut content = files.cat(&view.path.0, range.clone()).await?;
            while let Some(piece) = content.next().await? {
                world.out.bytes(&piece)?;
            }
        }
    }
    Ok(())
}
