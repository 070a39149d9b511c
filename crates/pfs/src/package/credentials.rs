//! Recognizes files that hold passwords and keys: by name, and private keys by their first line.

use std::io;

use crate::root::DirEntry;
use crate::source::Source;

/// Where tools keep keys and tokens of their user.
const NAMES: [&[u8]; 4] = [b".aws", b".kube", b".netrc", b".ssh"];
/// The variables of a program, passwords often among them. A folder of this name is something else.
const VARIABLES: &[u8] = b".env";

/// How private keys begin that have no `PRIVATE KEY` in the first line: PuTTY's, and what `openssl ecparam -genkey` writes.
const OTHER_KEYS: [&[u8]; 2] = [b"PuTTY-User-Key-File-", b"-----BEGIN EC PARAMETERS-----"];

/// Longer than the first line of any private key.
const FIRST_LINE: usize = 128;

/// Whether the name says that passwords or keys are inside.
pub(super) fn has_telling_name(entry: &DirEntry) -> bool {
    match entry.path.name() {
        Some(VARIABLES) => !entry.meta.is_dir(),
        Some(name) => NAMES.contains(&name),
        None => false,
    }
}

/// Whether a file's first line begins a private key.
pub(super) fn is_private_key(file: &(impl Source + ?Sized)) -> io::Result<bool> {
    let mut start = [0; FIRST_LINE];
    let read = file.read_full(&mut start, 0)?;
    Ok(begins_a_key(&start[..read]))
}

fn begins_a_key(start: &[u8]) -> bool {
    let line = start.strip_prefix(b"\xef\xbb\xbf").unwrap_or(start);
    let line = line.trim_ascii_start();
    let line = line.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let is_private = || {
        line.windows(b"PRIVATE KEY".len())
            .any(|part| part == b"PRIVATE KEY")
    };
    (line.starts_with(b"-----BEGIN ") && is_private()) || OTHER_KEYS.iter().any(|key| line.starts_with(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_keys_are_known_by_their_first_line() {
        for key in [
            "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn",
            "-----BEGIN RSA PRIVATE KEY-----\r\nProc-Type: 4,ENCRYPTED",
            "-----BEGIN EC PARAMETERS-----\nBggq\n-----END EC PARAMETERS-----\n-----BEGIN EC PRIVATE KEY-----",
            "-----BEGIN ENCRYPTED PRIVATE KEY-----",
            "\u{feff}\n-----BEGIN PRIVATE KEY-----\nMIIE",
            "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n",
            "PuTTY-User-Key-File-3: ssh-ed25519\n",
        ] {
            assert!(begins_a_key(key.as_bytes()), "{key}");
        }
    }

    #[test]
    fn public_keys_certificates_and_texts_about_keys_are_ordinary_files() {
        for text in [
            "-----BEGIN CERTIFICATE-----\nMIID",
            "-----BEGIN PUBLIC KEY-----\n",
            "ssh-ed25519 AAAAC3Nza me@here",
            "# -----BEGIN PRIVATE KEY-----",
            "-----BEGIN CERTIFICATE-----\n-----BEGIN PRIVATE KEY-----",
            "print('-----BEGIN PRIVATE KEY-----')",
            "",
        ] {
            assert!(!begins_a_key(text.as_bytes()), "{text}");
        }
    }
}
