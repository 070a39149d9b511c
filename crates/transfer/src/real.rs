//! Resolves the links of a remote path.

use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{below, space_of};
use paddlecloud_pfs::{LinkTarget, PfsPath, RelPath};

use super::FileClient;

/// The most links in one path; more are taken for a cycle.
const MOST_LINKS: usize = 40;

impl FileClient<'_> {
    /// The path with all links resolved. A link that cannot be resolved stands for itself.
    pub async fn real_path(&self, path: &PfsPath) -> Result<PfsPath, ClientError> {
        let real = self.real_place(path).await?;
        Ok(below(&space_of(path), &real).unwrap_or_else(|_| path.clone()))
    }

    async fn real_place(&self, path: &PfsPath) -> Result<RelPath, ClientError> {
        let typed = &path.place().path;
        let space = space_of(path);
        let mut ahead: Vec<Vec<u8>> = typed.parts().rev().map(<[u8]>::to_vec).collect();
        let (mut here, mut links) = (RelPath::root(), 0);
        while let Some(name) = ahead.pop() {
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    here = here.parent().unwrap_or_default();
                    continue;
                }
                _ => {}
            }
            let Ok(next) = here.child(&name) else {
                return Ok(typed.clone());
            };
            let target = match below(&space, &next) {
                Ok(next) => self.target_of(&next).await?,
                Err(_) => None,
            };
            match target {
                Some(target) if links < MOST_LINKS && !target.as_bytes().starts_with(b"/") => {
                    links += 1;
                    ahead.extend(target.as_bytes().rsplit(|byte| *byte == b'/').map(<[u8]>::to_vec));
                }
                _ => here = next,
            }
        }
        Ok(here)
    }

    /// The target of a link; `None` if it is not a link or cannot be inspected. An error that is not about this path is returned.
    async fn target_of(&self, path: &PfsPath) -> Result<Option<LinkTarget>, ClientError> {
        match self.stat_link(path).await {
            Ok(meta) => Ok(meta.target),
            Err(error) => match error.refusal() {
                Some(name) if name != ErrorName::Unauthorized && !name.is_temporary() => Ok(None),
                _ => Err(error),
            },
        }
    }
}
