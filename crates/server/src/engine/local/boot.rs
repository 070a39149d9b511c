//! Identifies the boot of the machine: no process survives a reboot.

use std::io;
use std::path::Path;

const KERNEL: &str = "/proc/sys/kernel/random/boot_id";

/// Names another file to read the boot id from, so that a test can simulate a reboot.
const OVERRIDE: &str = "PADDLECLOUD_BOOT_ID_FILE";

/// The kernel's id of this boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootId(String);

impl BootId {
    /// Reads the current boot id.
    pub fn read() -> io::Result<BootId> {
        BootId::read_from(Path::new(
            &std::env::var_os(OVERRIDE).unwrap_or_else(|| KERNEL.into()),
        ))
    }

    fn read_from(path: &Path) -> io::Result<BootId> {
        let unknown = |problem: String| {
            io::Error::other(format!(
                "cannot identify the current boot of this machine: `{}` {problem}",
                path.display()
            ))
        };
        let text =
            std::fs::read_to_string(path).map_err(|error| unknown(format!("cannot be read: {error}")))?;
        match text.trim() {
            "" => Err(unknown("is empty".to_owned())),
            id => Ok(BootId(id.to_owned())),
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `file` has another boot id.
    pub fn differs_from(&self, file: &Path) -> io::Result<bool> {
        match std::fs::read_to_string(file) {
            Ok(before) => Ok(before.trim() != self.0),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Stores this boot id in `file` atomically.
    pub fn remember_in(&self, file: &Path) -> io::Result<()> {
        let draft = file.with_extension("new");
        std::fs::write(&draft, &self.0)?;
        std::fs::rename(&draft, file)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_or_empty_boot_id_names_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("boot_id");
        let missing = BootId::read_from(&file).unwrap_err().to_string();
        assert!(missing.contains(file.to_str().unwrap()), "{missing}");
        std::fs::write(&file, "\n").unwrap();
        let empty = BootId::read_from(&file).unwrap_err().to_string();
        assert!(empty.ends_with("is empty"), "{empty}");
    }

    #[test]
    fn another_boot_is_noticed_and_none_at_first() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("boot");
        let (first, second) = (BootId("a".into()), BootId("b".into()));
        assert!(!first.differs_from(&file).unwrap());
        first.remember_in(&file).unwrap();
        assert!(!first.differs_from(&file).unwrap());
        assert!(second.differs_from(&file).unwrap());
    }
}
