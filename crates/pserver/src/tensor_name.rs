//! Names of tensors, and the names of their files in a saved model.

use crate::wire::{Reader, WireError};

/// Maximum bytes of a tensor's name.
pub const MAX_NAME: usize = 200;
/// Maximum bytes of a file's name, less those that its draft and the ids of a table add.
const MAX_FILE: usize = 255 - ".".len() - IDS.len();
/// What the name of the ids of a table adds to that of its rows.
pub const IDS: &str = ".ids";
/// The file that marks a complete model.
pub const DONE: &str = "done";

/// Why a tensor cannot have a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    #[error("a tensor needs a name")]
    Empty,
    #[error("`{0}` cannot be the name of a tensor: it has a zero byte")]
    Zero(String),
    #[error("`{name}` cannot be the name of a tensor: it has {bytes} bytes, more than {MAX_NAME}")]
    Long { name: String, bytes: usize },
    #[error("`{0}` cannot be the name of a tensor: escaped in a file name it has more than {MAX_FILE} bytes")]
    Escaped(String),
}

/// Reads the name of a tensor.
pub fn name(from: &mut Reader<'_>) -> Result<String, WireError> {
    let name = from.text("the name of a tensor")?;
    check_name(&name)?;
    Ok(name)
}

/// Checks that a tensor may have this name: its file must fit into a folder.
pub fn check_name(name: &str) -> Result<(), NameError> {
    let start = || name.chars().take(40).collect::<String>();
    match name.len() {
        0 => Err(NameError::Empty),
        _ if name.contains('\0') => Err(NameError::Zero(name.escape_debug().to_string())),
        bytes if bytes > MAX_NAME => Err(NameError::Long {
            name: format!("{}…", start()),
            bytes,
        }),
        _ if file_name(name).len() > MAX_FILE => Err(NameError::Escaped(format!("{}…", start()))),
        _ => Ok(()),
    }
}

/// The file of a tensor in a saved model: its name, with `%` and two digits for bytes that a file name cannot have or
/// that would give it another meaning. Names of 2017 stay as they are.
pub fn file_name(name: &str) -> String {
    let mut file = String::with_capacity(name.len());
    for c in name.chars() {
        match c {
            '/' | '\\' | '%' => escape(c, &mut file),
            c if c.is_control() => escape(c, &mut file),
            c => file.push(c),
        }
    }
    // A hidden file, and the file that marks a complete model.
    if file.starts_with('.') || file == DONE {
        let mut first = String::new();
        escape(file.remove(0), &mut first);
        file.insert_str(0, &first);
    }
    // The ids of a table.
    if let Some(start) = file.strip_suffix(IDS) {
        file = format!("{start}%2Eids");
    }
    file
}

fn escape(c: char, to: &mut String) {
    let mut bytes = [0; 4];
    for byte in c.encode_utf8(&mut bytes).bytes() {
        to.push_str(&format!("%{byte:02X}"));
    }
}

/// The tensor of a file in a saved model; `None` if it cannot be one. What is not an escape stands for itself: files of
/// 2017 are not escaped.
pub fn name_of_file(file: &str) -> Option<String> {
    if file.is_empty() || file.starts_with('.') || file == DONE {
        return None;
    }
    let mut bytes = Vec::with_capacity(file.len());
    let mut rest = file.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        rest = after;
        match (first, escaped(after)) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => bytes.push(*first),
        }
    }
    String::from_utf8(bytes).ok()
}

fn escaped(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits.get(..2)?).ok()?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_frameworks_are_files() {
        let files = [
            ("___embedding_0__.w0", "___embedding_0__.w0"),
            ("user/embedding", "user%2Fembedding"),
            ("größe", "größe"),
            ("done", "%64one"),
            (".", "%2E"),
            ("..", "%2E."),
            (".hidden", "%2Ehidden"),
            ("w.ids", "w%2Eids"),
            (".ids", "%2Eids"),
            ("100%", "100%25"),
            ("a\nb", "a%0Ab"),
        ];
        for (name, file) in files {
            assert_eq!(file_name(name), file);
            assert_eq!(name_of_file(file).as_deref(), Some(name));
            assert_eq!(check_name(name), Ok(()));
        }
        assert_eq!(
            name_of_file("50%off").as_deref(),
            Some("50%off"),
            "a file of 2017"
        );
    }

    #[test]
    fn what_cannot_be_stored_is_refused() {
        assert_eq!(check_name(""), Err(NameError::Empty));
        assert!(check_name(&"é".repeat(100)).is_ok());
        let long = check_name(&"x".repeat(201)).unwrap_err().to_string();
        assert!(long.ends_with("it has 201 bytes, more than 200"), "{long}");
        assert!(matches!(check_name(&"/".repeat(100)), Err(NameError::Escaped(_))));
    }

    proptest! {
        #[test]
        fn every_name_has_a_file_of_its_own(name in "[a.%/d2Ei\u{e9}\n]{1,12}", other in "(done|[a.%/d2Ei]{1,8}([.]ids)?)") {
            for name in [&name, &other] {
                let file = file_name(name);
                prop_assert_eq!(name_of_file(&file), Some(name.clone()));
                prop_assert!(!file.ends_with(IDS) && !file.starts_with('.') && !file.contains('/'));
            }
        }
    }
}
