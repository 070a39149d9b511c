//! Copies a file by reading and writing it, for stores that cannot do it on their side.

use std::io;

use paddlecloud_pfs::root::FileAttributes;
use paddlecloud_pfs::store::FileStore;
use paddlecloud_pfs::{Existing, Place, RootError};

/// The buffer per file; many files are copied at the same time.
const PIECE: usize = 1 << 20;

/// Copies the file with its attributes and returns its size. A source that shrinks meanwhile is an error.
pub fn copy_through(
    store: &dyn FileStore,
    from: &Place,
    to: &Place,
    existing: Existing,
) -> Result<u64, RootError> {
    let source = store.open(from)?;
    let meta = source.meta().clone();
    let attributes = FileAttributes {
        executable: meta.executable,
        mtime: Some(meta.mtime),
    };
    let failed = |source| RootError::Io {
        action: "read",
        path: from.path.clone(),
        source,
    };
    let mut file = store.begin(to, attributes)?;
    let mut buffer = vec![0; PIECE];
    let mut done = 0;
    while done < meta.size {
        let read = source.read_at(&mut buffer, done).map_err(failed)?;
        if read == 0 {
            return Err(failed(io::ErrorKind::UnexpectedEof.into()));
        }
        file.append(&buffer[..read])?;
        done += read as u64;
    }
    file.publish(existing)?;
    Ok(done)
}
