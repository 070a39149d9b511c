//! A pipe becomes a file: its end tells its size, so it is put aside on this machine first.

use std::fs::{DirBuilder, File};
use std::io::{self, Read};
use std::path::PathBuf;

use paddlecloud_pfs::PfsPath;

use crate::client::files::engine::blocking;
use crate::client::files::{Failure, FileClient, Progress, Summary, TransferError, TransferOptions, Upload};
use crate::client::new_idempotency_key;

impl FileClient<'_> {
    /// Sends everything that can be read, as one file.
    pub async fn upload_stream(
        &self,
        stream: impl Read + Send + 'static,
        remote: &PfsPath,
        options: &TransferOptions,
        progress: &dyn Progress,
    ) -> Summary {
        let spool = match blocking(move || Spool::fill(stream)).await {
            Ok(spool) => spool,
            Err(source) => {
                let error = TransferError::Io {
                    action: "put the stream aside",
                    source,
                };
                let failure = Failure {
                    path: "-".to_owned(),
                    error,
                };
                progress.failed(&failure);
                return Summary {
                    failures: vec![failure],
                    ..Summary::default()
                };
            }
        };
        let upload = Upload::File {
            local: spool.file(),
            remote: remote.clone(),
        };
        self.upload(vec![upload], options, progress).await
    }
}

/// A private folder with one file; gone with it.
struct Spool(PathBuf);

impl Spool {
    fn fill(mut stream: impl Read) -> io::Result<Spool> {
        let folder = std::env::temp_dir().join(format!("paddlectl-{}", new_idempotency_key()));
        private_folder().create(&folder)?;
        let spool = Spool(folder);
        io::copy(&mut stream, &mut File::create_new(spool.file())?)?;
        Ok(spool)
    }

    fn file(&self) -> PathBuf {
        self.0.join("stream")
    }
}

/// On Windows the temporary folder is the user's own, and what is made in it too.
fn private_folder() -> DirBuilder {
    #[cfg_attr(not(unix), expect(unused_mut, reason = "only Unix has more to say"))]
    let mut builder = DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder
}

impl Drop for Spool {
    fn drop(&mut self) {
        // What stays behind is in the temporary folder; nobody could do more about it here.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
