//! Reads files of the cluster as data sets: piece by piece, as few and as small as possible.

use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use paddlecloud_api::client::ClientError;
use paddlecloud_api::error::ErrorName;
use paddlecloud_api::files::{FileMeta, below};
use paddlecloud_dataprep::Origin;
use paddlecloud_pfs::{Node, PfsPath};
use paddlecloud_recordio::{ReadAt, index_path};
use paddlecloud_transfer::FileService;
use tokio::runtime::Runtime;

use super::window::Window;
use crate::commands::Context;
use crate::error::CliError;
use crate::session::Session;
use crate::transfer::location::{Remote, translate_datacenter};
use crate::transfer::remote;

/// A connection for blocking code: a reader of a data set needs its next bytes and nothing else.
pub struct Cluster {
    pub(super) runtime: Runtime,
    pub(super) session: Session,
}

/// A file that was found on the cluster.
#[derive(Debug, Clone)]
pub struct Found {
    pub path: PfsPath,
    /// Its path below the named folder; `None` if the file itself was named.
    pub below: Option<PathBuf>,
}

impl Cluster {
    pub fn open(context: &mut Context<'_>) -> Result<Arc<Self>, CliError> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| CliError::refused(format!("cannot start: {error}")))?;
        let session = runtime.block_on(context.session())?;
        Ok(Arc::new(Self { runtime, session }))
    }

    /// The files an argument names: the file itself, all matches, or all files below a folder. Never empty.
    pub fn find(&self, named: &Path) -> Result<Vec<Found>, CliError> {
        let found = self.runtime.block_on(self.found(named))?;
        match found.is_empty() {
            true => Err(CliError::refused(format!(
                "`{}` contains no files",
                named.display()
            ))),
            false => Ok(found),
        }
    }

    async fn found(&self, named: &Path) -> Result<Vec<Found>, CliError> {
        let mut argument = Remote::parse(named.as_os_str())?;
        translate_datacenter(&self.session, [&mut argument]).await?;
        let files = self.session.client.files();
        let mut found = Vec::new();
        let views = remote::find(&files, &argument).await;
        for view in views.map_err(|error| about(named, error))? {
            let path = view.path.0;
            match files.stat(&path).await?.is_folder() {
                true => found.extend(self.files_below(&path).await?),
                false => found.push(Found { path, below: None }),
            }
        }
        Ok(without_indexes(found))
    }

    /// Hidden files are not data.
    async fn files_below(&self, folder: &PfsPath) -> Result<Vec<Found>, CliError> {
        let listed = remote::entries(&self.session.client.files(), folder).await?;
        let mut found = Vec::new();
        for entry in listed.entries {
            let name = entry.path.to_string();
            let is_hidden = name.split('/').any(|part| part.starts_with('.'));
            if is_hidden || !matches!(entry.node, Node::File { .. }) {
                continue;
            }
            let path = below(folder, &entry.path).map_err(|error| CliError::refused(error.to_string()))?;
            found.push(Found {
                path,
                below: Some(name.into()),
            });
        }
        Ok(found)
    }

    /// A file to be read in place, together with its index.
    pub fn origin(self: &Arc<Self>, file: &Found) -> Result<Origin, CliError> {
        let name = file.path.to_string();
        let bytes = self.file(file.path.clone())?;
        let index_file = index_path(Path::new(&name));
        let index = Remote::parse(index_file.as_os_str())?.path;
        let index = match self.stat(&index) {
            Ok(meta) if meta.is_file() => Some(RemoteFile::new(Arc::clone(self), index, &meta)),
            Ok(_) => None,
            Err(error) if error.refusal() == Some(ErrorName::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        let index = index.map(|index| Arc::new(index) as Arc<dyn ReadAt>);
        Ok(Origin::elsewhere(name, Arc::new(bytes), index))
    }

    pub fn file(self: &Arc<Self>, path: PfsPath) -> Result<RemoteFile, CliError> {
        let meta = self.runtime.block_on(self.session.client.files().stat(&path))?;
        match meta.is_file() {
            true => Ok(RemoteFile::new(Arc::clone(self), path, &meta)),
            false => Err(CliError::refused(format!("`{path}` is not a file"))),
        }
    }

    fn stat(&self, path: &PfsPath) -> Result<FileMeta, ClientError> {
        self.runtime.block_on(self.session.client.files().stat(path))
    }
}

/// A refusal about one path names it.
fn about(named: &Path, error: ClientError) -> CliError {
    match remote::is_about_one_path(&error) {
        true => CliError::refused(format!("cannot read `{}`: {error}", named.display())),
        false => error.into(),
    }
}

/// The index of a file is not a data file.
fn without_indexes(mut found: Vec<Found>) -> Vec<Found> {
    let indexes: Vec<PathBuf> = found
        .iter()
        .map(|file| index_path(Path::new(&file.path.to_string())))
        .collect();
    if found.len() > 1 {
        found.retain(|file| !indexes.contains(&PathBuf::from(file.path.to_string())));
    }
    found
}

/// One version of a file of the cluster.
pub struct RemoteFile {
    cluster: Arc<Cluster>,
    path: PfsPath,
    len: u64,
    version: Option<String>,
    window: Mutex<Window>,
}

impl RemoteFile {
    fn new(cluster: Arc<Cluster>, path: PfsPath, meta: &FileMeta) -> Self {
        Self {
            cluster,
            path,
            len: meta.size,
            version: meta.version.clone(),
            window: Mutex::default(),
        }
    }

    /// Bytes of the opened version; it is an error if the file has changed since.
    fn fetch(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let fetched = self.cluster.runtime.block_on(self.fetch_version(range.clone()));
        let bytes = fetched.map_err(|error| io::Error::other(error.to_string()))?;
        match bytes.len() as u64 == range.end - range.start {
            true => Ok(bytes),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    async fn fetch_version(&self, range: Range<u64>) -> Result<Vec<u8>, ClientError> {
        let files = self.cluster.session.client.files();
        let mut content = files
            .read_range_of_version(&self.path, range, self.version.as_deref())
            .await?;
        let mut bytes = Vec::new();
        while let Some(piece) = content.next().await? {
            bytes.extend_from_slice(&piece);
        }
        Ok(bytes)
    }
}

impl ReadAt for RemoteFile {
    fn len(&self) -> io::Result<u64> {
        Ok(self.len)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let mut window = self.window.lock().unwrap_or_else(PoisonError::into_inner);
        window.read(buf, offset, self.len, |range| self.fetch(range))
    }
}
