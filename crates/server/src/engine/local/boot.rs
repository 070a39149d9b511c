//! Which boot of the machine this is: after a restart nothing that ran before runs.

use std::path::Path;

const KERNEL: &str = "/proc/sys/kernel/random/boot_id";

/// Names another file to read the boot id from, so that a test can restart "the machine".
const OVERRIDE: &str = "PADDLECLOUD_BOOT_ID_FILE";

/// The kernel's name for this boot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootId(String);

impl BootId {
    /// Reads the current one.
    pub fn read() -> std::io::Result<BootId> {
        let path = std::env::var_os(OVERRIDE).unwrap_or_else(|| KERNEL.into());
        Ok(BootId(std::fs::read_to_string(path)?.trim().to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the one remembered in `file` is another.
    pub fn differs_from(&self, file: &Path) -> std::io::Result<bool> {
        match std::fs::read_to_string(file) {
            Ok(before) => Ok(before.trim() != self.0),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Remembers this one in `file`.
    pub fn remember_in(&self, file: &Path) -> std::io::Result<()> {
        std::fs::write(file, &self.0)
    }
}
