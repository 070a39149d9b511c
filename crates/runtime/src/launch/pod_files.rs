//! Writes the small files of a worker in place: each is its own mount and cannot be replaced.

use std::fs::File;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use paddlecloud_supervisor::hosts_text;
use paddlecloud_worker::protocol::PrivateFile;

pub fn write_all(files: &[PrivateFile]) -> Result<(), String> {
    for file in files {
        overwrite(&file.path, file.contents.as_bytes())
            .map_err(|error| format!("cannot write `{}`: {error}", file.path.display()))?;
    }
    Ok(())
}

/// Writes every worker's name, whether or not the cluster's DNS knows it.
pub fn write_hosts(file: &Path, peers: &[(String, Ipv4Addr)]) -> Result<(), String> {
    overwrite(file, hosts_text(peers).as_bytes())
        .map_err(|error| format!("cannot write `{}`: {error}", file.display()))
}

/// Writes once, then truncates: a concurrent reader sees no partial line, except after the new end.
fn overwrite(path: &Path, text: &[u8]) -> io::Result<()> {
    let file = File::options().write(true).open(path)?;
    file.write_all_at(text, 0)?;
    file.set_len(text.len() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_table_leaves_nothing_of_a_longer_one() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("hosts");
        std::fs::write(&file, "").unwrap();
        let peer = |name: &str, last: u8| (name.to_owned(), Ipv4Addr::new(10, 0, 0, last));
        write_hosts(&file, &[peer("a-trainer-1", 1), peer("a-pserver-2", 2)]).unwrap();
        write_hosts(&file, &[peer("a-trainer-1", 9)]).unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.ends_with("10.0.0.9\ta-trainer-1\n"), "{text}");
        assert!(!text.contains("pserver"), "{text}");
    }

    #[test]
    fn a_file_that_was_not_mounted_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let missing = folder.path().join("trainer_id");
        let error = write_hosts(&missing, &[]).unwrap_err();
        assert!(error.contains("trainer_id"), "{error}");
    }
}
