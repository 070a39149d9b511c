//! `file [put|get|ls] src dest`: the simple file operations of the submit guide.

use std::ffi::{OsStr, OsString};
use std::path::{Component, Path, PathBuf};

use paddlecloud_pfs::Space;

use super::{Context, ls};
use crate::error::CliError;
use crate::transfer::local::{self, LocalSource};
use crate::transfer::location::{Location, shown};
use crate::transfer::rules::Style;
use crate::transfer::{self, Copy, TransferArgs};

/// Simple file operations.
///
/// `file src dest` uploads. `src` must be below the current folder, `dest` in your home. `src/` uploads the folder's
/// contents, `src` the folder itself. Also as `file put src dest`, `file get src dest`, `file ls path`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// `src dest`, or `put`, `get`, `ls` and their paths
    #[arg(required = true, num_args = 1..=3)]
    arguments: Vec<OsString>,

    #[command(flatten)]
    transfer: TransferArgs,
}

/// What the words mean.
#[derive(Debug, PartialEq, Eq)]
enum Verb<'a> {
    Put(&'a OsStr, &'a OsStr),
    Get(&'a OsStr, &'a OsStr),
    List(&'a [OsString]),
}

pub async fn run(args: &Args, context: &mut Context<'_>) -> Result<u8, CliError> {
    let (src, dest) = match verb(&args.arguments)? {
        Verb::List(paths) => return ls::run(&ls::Args::plain(paths.to_vec()), context).await,
        Verb::Put(src, dest) | Verb::Get(src, dest) => (src, dest),
    };
    let mut copy = Copy {
        sources: vec![Location::parse(src)?],
        dest: Location::parse(dest)?,
        recursive: true,
        style: Style::Slash,
    };
    match (&copy.sources[0], &copy.dest, verb(&args.arguments)?) {
        (Location::Local(src), Location::Remote(dest), Verb::Put(..)) => {
            must_be_home(&dest.path.place().space)?;
            let found = found_below(src, &current_folder()?)?;
            copy.sources = found.into_iter().map(Location::Local).collect();
        }
        (Location::Remote(src), Location::Local(_), Verb::Get(..)) => must_be_home(&src.path.place().space)?,
        (_, _, Verb::Get(..)) => {
            return Err(CliError::usage(
                "`file get` takes a `/pfs/…` path and a local path",
            ));
        }
        _ => return Err(CliError::usage("`file` takes a local path and a `/pfs/…` path")),
    }
    transfer::copy(copy, &args.transfer, context).await
}

/// Two words are source and destination; `put` and `get` take two more, unless a local file has that name.
fn verb(words: &[OsString]) -> Result<Verb<'_>, CliError> {
    match words {
        [ls, paths @ ..] if ls == "ls" && paths.len() < 2 => Ok(Verb::List(paths)),
        [put, ..] if words.len() < 3 && put == "put" && !is_here(put) => Err(CliError::usage(
            "`file put` takes a local path and a `/pfs/…` path",
        )),
        [get, ..] if words.len() < 3 && get == "get" && !is_here(get) => Err(CliError::usage(
            "`file get` takes a `/pfs/…` path and a local path",
        )
        .with_hint("`.` is the current folder")),
        [src, dest] => Ok(Verb::Put(src, dest)),
        [put, src, dest] if put == "put" => Ok(Verb::Put(src, dest)),
        [get, src, dest] if get == "get" => Ok(Verb::Get(src, dest)),
        _ => Err(CliError::usage(
            "write `file src dest`, `file put src dest`, `file get src dest` or `file ls path`",
        )),
    }
}

fn is_here(word: &OsStr) -> bool {
    Path::new(word).symlink_metadata().is_ok()
}

fn must_be_home(space: &Space) -> Result<(), CliError> {
    match space {
        Space::Home(_) => Ok(()),
        Space::Public => Err(CliError::refused(
            "`file` works in your home only (`/pfs/<datacenter>/home/<user>`)",
        )
        .with_hint("`cp` reads the public space too")),
    }
}

fn current_folder() -> Result<std::path::PathBuf, CliError> {
    std::env::current_dir()
        .and_then(|folder| folder.canonicalize())
        .map_err(|error| CliError::refused(format!("the current folder cannot be read: {error}")))
}

/// The paths that `src` names, itself or as a pattern: neither the text nor a link may point outside the current
/// folder. The copy itself reports missing files.
fn found_below(src: &Path, folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    if src.components().any(|part| part == Component::ParentDir) {
        return Err(outside(src, "`../` is not allowed"));
    }
    let Ok(found) = local::sources_from(folder, src) else {
        return Ok(vec![src.to_owned()]);
    };
    let mut paths = Vec::with_capacity(found.len());
    for LocalSource { path, .. } in found {
        match folder.join(&path).canonicalize() {
            Ok(real) if !real.starts_with(folder) => {
                return Err(outside(&path, "it is outside the current folder"));
            }
            _ => paths.push(path),
        }
    }
    Ok(paths)
}

fn outside(src: &Path, why: &str) -> CliError {
    CliError::refused(format!("cannot upload `{}`: {why}", shown(src)))
        .with_hint("`src` must be below the current folder; `cp` takes any path")
}

#[cfg(test)]
mod tests {
    use paddlecloud_pfs::PfsPath;

    use super::*;

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn documented_command_lines_are_parsed() {
        let (src, dest) = (OsStr::new("src"), OsStr::new("dest"));
        assert_eq!(verb(&words("src dest")).unwrap(), Verb::Put(src, dest));
        assert_eq!(verb(&words("put src dest")).unwrap(), Verb::Put(src, dest));
        assert_eq!(verb(&words("get src dest")).unwrap(), Verb::Get(src, dest));
        assert_eq!(verb(&words("ls")).unwrap(), Verb::List(&[]));
        for (line, says) in [
            ("get /pfs/dc/home/me/a", "`file get` takes"),
            ("put a", "`file put` takes"),
            ("get", "`file get` takes"),
        ] {
            let error = verb(&words(line)).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
        }
        assert!(verb(&words("src")).is_err());
        assert!(verb(&words("move src dest")).is_err());
    }

    #[test]
    fn a_source_outside_the_current_folder_is_refused_even_behind_a_link() {
        let outer = tempfile::tempdir().unwrap();
        let outer = outer.path().canonicalize().unwrap();
        let folder = outer.join("current");
        std::fs::create_dir_all(folder.join("d")).unwrap();
        std::fs::write(folder.join("d/a"), "").unwrap();
        std::fs::write(folder.join("d/b"), "").unwrap();
        std::fs::write(outer.join("secret"), "").unwrap();
        std::os::unix::fs::symlink("..", folder.join("link")).unwrap();
        let found = |src: &str| found_below(Path::new(src), &folder);
        for (src, paths) in [
            ("d", &["d"][..]),
            ("d/", &["d/"]),
            (".", &["."]),
            ("./d", &["./d"]),
            ("d/*", &["d/a", "d/b"]),
            ("[d]/", &["d/"]),
            ("none", &["none"]),
            ("none*", &["none*"]),
        ] {
            let found: Vec<OsString> = found(src)
                .unwrap()
                .into_iter()
                .map(PathBuf::into_os_string)
                .collect();
            assert_eq!(found, paths, "{src}");
        }
        assert_eq!(
            found_below(&folder.join("d"), &folder).unwrap(),
            [folder.join("d")]
        );
        let above = format!("{}/secr*", outer.display());
        for bad in [
            "..",
            "d/../..",
            "../current/d",
            "link",
            "/etc",
            "link/*",
            "lin*",
            "*",
            &above,
        ] {
            assert!(found(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn wildcards_in_the_name_of_the_current_folder_stand_for_themselves() {
        let outer = tempfile::tempdir().unwrap();
        let outer = outer.path().canonicalize().unwrap();
        for name in ["data[1]", "data1", "*", "every"] {
            std::fs::create_dir(outer.join(name)).unwrap();
        }
        for file in ["data[1]/mine", "data1/theirs", "*/mine", "every/theirs"] {
            std::fs::write(outer.join(file), "").unwrap();
        }
        for name in ["data[1]", "*"] {
            let folder = outer.join(name);
            for pattern in ["*", "min?"] {
                let found = found_below(Path::new(pattern), &folder).unwrap();
                assert_eq!(found, [Path::new("mine")], "{pattern} in {name}");
            }
            std::os::unix::fs::symlink("..", folder.join("out")).unwrap();
            assert!(found_below(Path::new("*"), &folder).is_err(), "* in {name}");
        }
    }

    #[test]
    fn paths_outside_a_home_are_refused() {
        let space = |text: &str| text.parse::<PfsPath>().unwrap().place().space.clone();
        assert!(must_be_home(&space("/pfs/dc/home/me/x")).is_ok());
        for public in ["/pfs/public/x", "/pfs/dc/public/x"] {
            assert!(must_be_home(&space(public)).is_err(), "{public}");
        }
    }
}
