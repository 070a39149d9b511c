//! Which program the embedded server is started from.

use std::path::{Path, PathBuf};

use crate::environment::Environment;
use crate::error::ConnectError;

/// The names under which the program is installed, the usual one first.
const NAMES: [&str; 3] = ["paddlectl", "paddlecloud", "paddlecloud-server"];

/// The path of the program if it is not on the `PATH`.
const VARIABLE: &str = "PADDLECLOUD_PROGRAM";

/// A program that can run the server.
#[derive(Debug, Clone)]
pub struct Program {
    path: PathBuf,
    /// Whether it is of the same release as this code: only then its version is known, and an older server is replaced.
    #[cfg_attr(
        not(target_os = "linux"),
        expect(dead_code, reason = "only Linux has a server to replace")
    )]
    is_ours: bool,
}

impl Program {
    /// The program that is running now.
    pub fn this_one() -> Result<Program, ConnectError> {
        let path = std::env::current_exe().map_err(|error| {
            ConnectError::refused(format!("cannot find this program's own file: {error}"))
        })?;
        Ok(Program { path, is_ours: true })
    }

    /// The one that `PADDLECLOUD_PROGRAM` names; else `own`, which was installed together with this code; else the
    /// first on the `PATH`.
    pub fn found(environment: &Environment, own: Option<&Path>) -> Option<Program> {
        let named = environment.var(VARIABLE);
        if let (None, Some(own)) = (named, own.filter(|path| is_program(path))) {
            return Some(Program {
                path: own.to_owned(),
                is_ours: true,
            });
        }
        let path = match named {
            Some(named) => Some(PathBuf::from(named)).filter(|path| is_program(path)),
            None => on_path(environment.var("PATH").unwrap_or_default()),
        };
        path.map(|path| Program { path, is_ours: false })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn replaces_older(&self) -> bool {
        self.is_ours
    }
}

fn on_path(folders: &str) -> Option<PathBuf> {
    NAMES.iter().find_map(|name| {
        std::env::split_paths(folders)
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join(name))
            .find(|path| is_program(path))
    })
}

#[cfg(unix)]
fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn is_program(path: &Path) -> bool {
    path.is_file()
}

#[cfg(unix)]
#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::OpenOptionsExt;

    use super::*;

    fn put(path: &Path, mode: u32) {
        let mut options = std::fs::File::options();
        options.create_new(true).write(true).mode(mode);
        options.open(path).unwrap();
    }

    fn found(name: &str, value: &str) -> Option<PathBuf> {
        let environment = Environment::from(BTreeMap::from([(name.to_owned(), value.to_owned())]));
        Program::found(&environment, None).map(|program| program.path().to_owned())
    }

    #[test]
    fn a_program_on_the_path_is_found_by_any_of_its_names_if_it_can_run() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().to_str().unwrap();
        put(&folder.path().join("paddlectl"), 0o600);
        assert_eq!(found("PATH", path), None);
        put(&folder.path().join("paddlecloud"), 0o700);
        assert_eq!(found("PATH", path), Some(folder.path().join("paddlecloud")));
        assert_eq!(found("PATH", "relative:"), None);
    }

    #[test]
    fn a_named_program_is_taken_or_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let mine = folder.path().join("mine");
        put(&mine, 0o700);
        assert_eq!(found(VARIABLE, mine.to_str().unwrap()), Some(mine));
        assert_eq!(found(VARIABLE, "/no/such/program"), None);
    }

    #[test]
    fn a_program_installed_with_this_code_is_taken_before_the_path_and_after_the_variable() {
        let folder = tempfile::tempdir().unwrap();
        let [own, other] = ["own", "paddlectl"].map(|name| folder.path().join(name));
        put(&own, 0o700);
        put(&other, 0o700);
        let found = |name: &str, value: &Path| {
            let variables = BTreeMap::from([(name.to_owned(), value.to_str().unwrap().to_owned())]);
            Program::found(&Environment::from(variables), Some(&own)).unwrap()
        };
        let on_path = found("PATH", folder.path());
        assert_eq!((on_path.path(), on_path.is_ours), (own.as_path(), true));
        let named = found(VARIABLE, &other);
        assert_eq!((named.path(), named.is_ours), (other.as_path(), false));
    }
}
