//! Names of tensors, which are also file names.

use crate::wire::{Reader, WireError, bounded};

/// Maximum length of a tensor's name, which becomes a file name.
pub const MAX_NAME: usize = 200;

/// Reads the name of a tensor, which is also a file name.
pub fn name(from: &mut Reader<'_>) -> Result<String, WireError> {
    let name = from.text("the name of a tensor")?;
    bounded("the length of a name", name.len() as u64, MAX_NAME as u64)?;
    match is_name(&name) {
        true => Ok(name),
        false => Err(WireError::NotText("the name of a tensor")),
    }
}

/// Whether a tensor may have this name: it is also a file name.
pub fn is_name(name: &str) -> bool {
    let plain = |c: char| !c.is_control() && c != '/' && c != '\\';
    !name.is_empty()
        && name.len() <= MAX_NAME
        && !name.starts_with('.')
        && name != "done"
        && name.chars().all(plain)
}
