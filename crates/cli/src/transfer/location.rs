//! Where an argument points: a local path, a path `/pfs/…` on the cluster, or a pipe (`-`).
//!
//! Only parses; whether anything exists there is checked elsewhere.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

use paddlecloud_pfs::{PfsPath, PfsPathError, RelPath};

use crate::commands::Context;
use crate::controls;
use crate::error::CliError;
use crate::session::Session;

/// One argument of a file command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    Local(PathBuf),
    Remote(Remote),
    /// `-`: stdin as a source, stdout as a destination.
    Pipe,
}

/// A path of the cluster as it was typed; it may contain wildcards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remote {
    pub path: PfsPath,
    /// As it was typed.
    raw: Vec<u8>,
    /// Whether it ends with `/.`, which means the contents of a folder.
    pub is_contents: bool,
    /// Whether a server named it, so that nothing in it is a wildcard.
    is_exact: bool,
}

impl Location {
    pub fn parse(text: &OsStr) -> Result<Location, CliError> {
        if text == "-" {
            return Ok(Location::Pipe);
        }
        if text.is_empty() {
            return Err(CliError::usage("an empty path names nothing"));
        }
        if is_remote(text) {
            return Remote::parse(text).map(Location::Remote);
        }
        Ok(Location::Local(PathBuf::from(text)))
    }

    pub fn parse_all(texts: &[OsString]) -> Result<Vec<Location>, CliError> {
        texts.iter().map(|text| Location::parse(text)).collect()
    }

    pub fn as_remote_mut(&mut self) -> Option<&mut Remote> {
        match self {
            Location::Remote(remote) => Some(remote),
            Location::Local(_) | Location::Pipe => None,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Local(path) => f.write_str(&shown(path)),
            Location::Remote(remote) => remote.path.fmt(f),
            Location::Pipe => f.write_str("-"),
        }
    }
}

/// A local path for messages, on one line: control characters and bytes that are not UTF-8 are escaped.
pub fn shown(path: &Path) -> String {
    let mut text = String::new();
    for chunk in path.as_os_str().as_encoded_bytes().utf8_chunks() {
        text.push_str(&controls::escaped_line(chunk.valid()));
        text.extend(chunk.invalid().iter().map(|byte| format!("\\x{byte:02x}")));
    }
    text
}

/// A path below a local folder, for messages.
pub fn shown_in(folder: &Path, path: &RelPath) -> String {
    match path.in_folder(folder) {
        Ok(path) => shown(&path),
        Err(_) => format!("{}/{path}", shown(folder)),
    }
}

fn is_remote(text: &OsStr) -> bool {
    let mut parts = text
        .as_encoded_bytes()
        .split(|byte| *byte == b'/')
        .filter(|part| !matches!(*part, b"" | b"."));
    text.as_encoded_bytes().starts_with(b"/") && parts.next() == Some(b"pfs")
}

impl Remote {
    /// A path that must be on the cluster.
    pub fn parse(text: &OsStr) -> Result<Remote, CliError> {
        Remote::from_bytes(text.as_encoded_bytes())
    }

    fn from_bytes(raw: &[u8]) -> Result<Remote, CliError> {
        let path = PfsPath::from_bytes(raw).map_err(|error| refused_path(&error))?;
        Ok(Remote {
            path,
            raw: raw.to_vec(),
            is_contents: raw.ends_with(b"/.") || raw.ends_with(b"/./"),
            is_exact: false,
        })
    }

    /// The contents of the folder at this path, which may contain `*` and other wildcards.
    pub fn contents_of(folder: &str) -> Result<Remote, CliError> {
        let contents = Remote::from_bytes(format!("{folder}/.").as_bytes())?;
        Ok(Remote {
            is_exact: true,
            ..contents
        })
    }

    /// The same path in a datacenter of another name. `/pfs/public` names none and stays unchanged.
    pub fn in_datacenter(&self, name: &str) -> Result<Remote, CliError> {
        let Some(typed) = self.path.datacenter() else {
            return Ok(self.clone());
        };
        // The first part that is not empty is `pfs`, the second the datacenter.
        let mut real_parts = 0;
        let parts: Vec<&[u8]> = self
            .raw
            .split(|byte| *byte == b'/')
            .map(|part| {
                real_parts += usize::from(!matches!(part, b"" | b"."));
                let is_datacenter = real_parts == 2 && part == typed.as_bytes();
                if is_datacenter { name.as_bytes() } else { part }
            })
            .collect();
        Ok(Remote {
            is_exact: self.is_exact,
            ..Remote::from_bytes(&parts.join(&b'/'))?
        })
    }

    /// Whether it is a pattern.
    pub fn is_pattern(&self) -> bool {
        !self.is_exact && is_pattern(self.path.place().path.as_bytes())
    }

    /// The pattern's text; only UTF-8 can be one.
    pub fn pattern(&self) -> Option<&str> {
        let text = std::str::from_utf8(&self.raw).ok()?;
        self.is_pattern().then(|| text.trim_end_matches('/'))
    }
}

/// A folder above all homes, which only a listing can name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Above {
    /// `/pfs`
    Pfs,
    /// `/pfs/<datacenter>`
    Datacenter(String),
    /// `/pfs/<datacenter>/home`
    Homes(String),
}

impl Above {
    pub fn parse(text: &OsStr) -> Option<Above> {
        let text = text.to_str().filter(|text| text.starts_with('/'))?;
        let parts: Vec<&str> = text
            .split('/')
            .filter(|part| !matches!(*part, "" | "."))
            .collect();
        match parts[..] {
            ["pfs"] => Some(Above::Pfs),
            ["pfs", "public"] => None,
            ["pfs", name] => Some(Above::Datacenter(name.to_owned())),
            ["pfs", name, "home" | "user"] => Some(Above::Homes(name.to_owned())),
            _ => None,
        }
    }
}

impl fmt::Display for Above {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Above::Pfs => f.write_str("/pfs"),
            Above::Datacenter(name) => write!(f, "/pfs/{name}"),
            Above::Homes(name) => write!(f, "/pfs/{name}/home"),
        }
    }
}

/// Connects to the server of some paths.
pub async fn reach(
    paths: &[OsString],
    context: &mut Context<'_>,
) -> Result<(Session, Vec<Remote>), CliError> {
    let paths: Result<Vec<Remote>, CliError> = paths.iter().map(|path| Remote::parse(path)).collect();
    let (mut paths, session) = (paths?, context.session().await?);
    translate_datacenter(&session, &mut paths).await?;
    Ok((session, paths))
}

/// Paths name the datacenter as the user's configuration does; the server may call itself otherwise.
pub async fn translate_datacenter<'a>(
    session: &Session,
    remotes: impl IntoIterator<Item = &'a mut Remote>,
) -> Result<(), CliError> {
    let mut remotes: Vec<&mut Remote> = remotes.into_iter().collect();
    let is_named = |remote: &&mut Remote| remote.path.datacenter().is_some();
    if session.is_embedded || !remotes.iter().any(is_named) {
        return Ok(());
    }
    let called = session.client.whoami_get().await?.datacenter;
    for remote in &mut remotes {
        match remote.path.datacenter() {
            Some(typed) if typed != called && typed == session.datacenter => {
                **remote = remote.in_datacenter(&called)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// The same for a path that is sent as text, such as a job's package; the server refuses an invalid one.
pub async fn translate_datacenter_in_text(session: &Session, path: &mut String) -> Result<(), CliError> {
    if let Ok(mut remote) = Remote::parse(path.as_ref()) {
        translate_datacenter(session, [&mut remote]).await?;
        *path = String::from_utf8(remote.raw).expect("both names are text, and so is the rest");
    }
    Ok(())
}

/// Whether a path contains a wildcard.
pub fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[{".contains(byte))
}

fn refused_path(error: &PfsPathError) -> CliError {
    match error {
        PfsPathError::NotPfs(_) => CliError::usage(error.to_string())
            .with_hint("paths on the cluster look like `/pfs/<datacenter>/home/<user>/…`"),
        PfsPathError::NoSpace(_) => {
            CliError::refused(error.to_string()).with_hint("`whoami` shows where your home is")
        }
        PfsPathError::Path(_) => CliError::refused(error.to_string()),
    }
}

/// The last name of a path; `None` for the top of a home.
pub fn name_of(path: &PfsPath) -> Option<&[u8]> {
    path.place().path.name()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Location {
        Location::parse(OsStr::new(text)).unwrap()
    }

    #[test]
    fn folders_above_all_homes_are_distinguished_from_paths_in_them() {
        let above = |text: &str| Above::parse(OsStr::new(text)).map(|above| above.to_string());
        assert_eq!(above("/pfs/").as_deref(), Some("/pfs"));
        assert_eq!(above("/pfs/dc").as_deref(), Some("/pfs/dc"));
        assert_eq!(above("//pfs/dc/user/").as_deref(), Some("/pfs/dc/home"));
        for path in [
            "pfs",
            "/pfs/public",
            "/pfs/dc/public",
            "/pfs/dc/home/me",
            "/pfs/dc/x",
        ] {
            assert_eq!(above(path), None, "{path}");
        }
    }

    #[test]
    fn only_paths_below_pfs_are_remote() {
        assert!(matches!(parse("/pfs/dc/home/me/a"), Location::Remote(_)));
        assert!(matches!(parse("//pfs/./public/a"), Location::Remote(_)));
        assert_eq!(parse("pfs/dc"), Location::Local("pfs/dc".into()));
        assert_eq!(parse("/pfsx/dc"), Location::Local("/pfsx/dc".into()));
        assert_eq!(parse("./-"), Location::Local("./-".into()));
        assert_eq!(parse("-"), Location::Pipe);
    }

    #[test]
    fn a_path_that_climbs_is_refused_before_any_request() {
        let error = Location::parse(OsStr::new("/pfs/dc/home/me/../you")).unwrap_err();
        assert_eq!(error.to_string(), "`../you` contains `..`");
        assert!(Location::parse(OsStr::new("/pfs/dc/etc")).is_err());
        assert!(Location::parse(OsStr::new("")).is_err());
    }

    #[test]
    fn a_path_is_translated_for_a_server_of_another_name() {
        let translated = |text: &str| {
            let remote = Remote::parse(OsStr::new(text)).unwrap();
            remote.in_datacenter("cloud").unwrap()
        };
        let remote = translated("//pfs/./dc/home/me/dc/*.txt");
        assert_eq!(remote.path.to_string(), "/pfs/cloud/home/me/dc/*.txt");
        assert_eq!(remote.pattern(), Some("//pfs/./cloud/home/me/dc/*.txt"));
        assert!(translated("/pfs/dc/home/me/").path.has_trailing_slash());
        assert_eq!(translated("/pfs/public/x").path.to_string(), "/pfs/public/x");
        assert_eq!(
            translated("/pfs/pfs/home/me").path.to_string(),
            "/pfs/cloud/home/me"
        );
    }

    #[test]
    fn a_trailing_dot_means_the_contents_of_a_folder() {
        let is_contents = |text: &str| Remote::parse(OsStr::new(text)).unwrap().is_contents;
        assert!(is_contents("/pfs/dc/home/me/a/."));
        assert!(is_contents("/pfs/dc/home/me/a/./"));
        assert!(!is_contents("/pfs/dc/home/me/a/"));
        assert!(!is_contents("/pfs/dc/home/me/a/b."));
    }

    #[test]
    fn a_path_that_a_server_named_has_no_wildcards() {
        let remote = Remote::contents_of("/pfs/dc/home/me/a[1]/output").unwrap();
        assert_eq!(remote.path.to_string(), "/pfs/dc/home/me/a[1]/output");
        assert!(remote.is_contents && remote.pattern().is_none());
        assert!(remote.in_datacenter("cloud").unwrap().pattern().is_none());
        assert!(
            parse("/pfs/dc/home/me/a[1]")
                .as_remote_mut()
                .unwrap()
                .is_pattern()
        );
    }

    #[cfg(unix)]
    #[test]
    fn local_names_never_move_the_cursor() {
        use std::os::unix::ffi::OsStrExt;
        let path = Path::new(OsStr::from_bytes(b"a\x1b[2J\xff"));
        assert_eq!(shown(path), r"a\u001b[2J\xff");
    }
}
