//! Uploads many small files in one request.

use std::time::Duration;

use hyper::Method;
use paddlecloud_api::client::{Call, ClientError, UploadWriter, upload_channel};
use paddlecloud_api::files::{FILES, PackReply, SMALL_FILE};
use paddlecloud_pfs::pack::{PackError, PackWriter};
use paddlecloud_pfs::root::Meta;
use paddlecloud_pfs::{Entry, Node, Source};

use super::source;
use crate::error::unreadable;
use crate::item::{Item, pack_entries};
use crate::mover::{Mover, blocking};
use crate::paced::PacedBody;
use crate::{Outcome, TransferError};

/// How often a file that changes while it is read is read again.
const ATTEMPTS: usize = 3;

/// Files that the writer left out of a pack.
#[derive(Default)]
struct Written {
    /// Left out with an error.
    failed: Vec<(usize, TransferError)>,
    /// Left out because their size is no longer the announced one.
    late: Vec<usize>,
}

impl Mover<'_> {
    /// Sends some files in one request. Returns those that must be sent one by one.
    pub(crate) async fn send_pack(&self, items: &[Item]) -> Result<Vec<Item>, TransferError> {
        let (written, reply) = self.put_pack(items).await?;
        Ok(self.tally_pack(items, written, &reply))
    }

    async fn put_pack(&self, items: &[Item]) -> Result<(Written, PackReply), ClientError> {
        let _permit = self.permit().await;
        let entries = pack_entries(items);
        let bytes: u64 = items.iter().map(Item::size).sum();
        let target = paddlecloud_api::client::Target::new(FILES)
            .word("pack")
            .pair("path", &items[0].tree.remote)
            .pair("bytes", bytes)
            .pair("entries", entries.len())
            .maybe("no_overwrite", self.options.no_overwrite.then_some(true));
        // After the pack has arrived, it waits for its turn to be synced and published.
        let call = Call::new(Method::PUT, target.into_string()).lasting(Duration::from_secs(240));
        let (writer, body) = upload_channel();
        let sources = items.to_vec();
        let writing = blocking(move || write_pack(&entries, &sources, writer));
        let sending = self.send(&call, PacedBody::stream(body, bytes, self.throttle.clone()));
        let (written, reply) = tokio::join!(writing, sending);
        let reply = self.files.parse(&reply?)?;
        // The server accepts no stream without its end, so the writer succeeded too.
        Ok((written.unwrap_or_default(), reply))
    }

    fn tally_pack(&self, items: &[Item], written: Written, reply: &PackReply) -> Vec<Item> {
        let mut late = Vec::new();
        let mut failed: Vec<Option<TransferError>> = items.iter().map(|_| None).collect();
        for (index, error) in written.failed {
            failed[index] = Some(error);
        }
        for (index, item) in items.iter().enumerate() {
            let refused = reply
                .failed
                .iter()
                .find(|failure| item.remote.is_within(&failure.path));
            if let Some(error) = failed[index].take() {
                self.tally.failed(source(item), error);
            } else if written.late.contains(&index) {
                late.push(item.clone());
            } else if let Some(failure) = refused {
                let error = ClientError::Refused(failure.error.clone());
                self.tally.failed(source(item), error.into());
            } else if !item.is_dir() {
                let outcome = match reply.kept.contains(&item.remote) {
                    true => Outcome::Kept,
                    false => Outcome::Transferred,
                };
                self.tally.finished(&source(item), outcome, item.size());
            }
        }
        late
    }
}

fn write_pack(
    entries: &[(Entry, Option<usize>)],
    items: &[Item],
    writer: UploadWriter,
) -> Result<Written, PackError> {
    let mut pack = PackWriter::new(writer)?;
    let mut written = Written::default();
    let mut content = Vec::new();
    for (entry, index) in entries {
        let file = index.filter(|_| entry.is_file());
        let Some(index) = file else {
            pack.add_node(entry)?;
            continue;
        };
        match read_small(&items[index], &mut content) {
            Ok(meta) if meta.size == entry.size() => {
                let entry = Entry {
                    path: entry.path.clone(),
                    node: Node::file(meta.size, meta.executable),
                    mtime: meta.mtime,
                };
                pack.add_file(&entry, content.as_slice())?;
            }
            Ok(_) => written.late.push(index),
            Err(error) => written.failed.push((index, error)),
        }
    }
    let (writer, _) = pack.finish()?;
    writer.finish().map_err(PackError::Stream)?;
    Ok(written)
}

/// Reads a file that fits into memory; all bytes belong to one state of it.
fn read_small(item: &Item, content: &mut Vec<u8>) -> Result<Meta, TransferError> {
    for _ in 0..ATTEMPTS {
        let (file, before) = item.tree.local.open_file_no_links(&item.local)?;
        let size = usize::try_from(before.size.min(SMALL_FILE)).expect("small files fit into memory");
        file.read_whole(size, content).map_err(unreadable)?;
        let after = item.tree.local.look_again(&file, &item.local)?;
        let whole = content.len() as u64 == before.size || before.size > SMALL_FILE;
        if after.stamp == before.stamp && whole {
            return Ok(before);
        }
    }
    Err(TransferError::Changed)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_file_that_has_grown_or_shrunk_shows_itself() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut content = Vec::new();
        for (now, read) in [
            ("four", "four"),
            ("fours", "fours"),
            ("fours and more", "fours"),
            ("two", "two"),
            ("", ""),
        ] {
            std::fs::write(&path, now).unwrap();
            // The file had four bytes before.
            File::open(&path).unwrap().read_whole(4, &mut content).unwrap();
            assert_eq!(content, read.as_bytes());
        }
    }
}
