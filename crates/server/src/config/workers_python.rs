//! `python`: the virtual environment whose programs the workers find first.

use std::path::{Path, PathBuf};

use super::{ConfigError, EngineKind};

/// The folder of the workers' Python environment, if it is one and workers of this engine can use it.
pub(super) fn check_python(
    folder: Option<PathBuf>,
    engine: &EngineKind,
    base: &Path,
    path: &Path,
) -> Result<Option<PathBuf>, ConfigError> {
    let Some(folder) = folder.map(|folder| base.join(folder)) else {
        return Ok(None);
    };
    if !engine.uses_own_machine() {
        let unused = ConfigError::in_file(path, "`python` has no meaning on Kubernetes");
        return Err(unused.with_hint("pods use the Python of their image: set `default_image`"));
    }
    let shown = folder.display().to_string();
    if shown.contains(':') {
        let problem = format!("`python`: `{shown}` contains a colon, which separates the folders of PATH");
        return Err(ConfigError::in_file(path, problem));
    }
    if !folder.join("bin/python").is_file() {
        let problem = format!("`python`: there is no `{shown}/bin/python`");
        return Err(ConfigError::in_file(path, problem)
            .with_hint("name the folder of a virtual environment: `python3 -m venv FOLDER` makes one"));
    }
    Ok(Some(folder))
}
