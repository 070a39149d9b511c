//! Says that a job runs another Python than the one that is active where it was submitted.

use std::path::{Path, PathBuf};

use paddlecloud_api::jobs::SubmitReply;

/// `active` is the virtual environment of the submitter.
pub fn python_note(reply: &SubmitReply, active: Option<&str>) -> Option<String> {
    let (python, active) = (reply.python.as_deref()?, active?);
    (!is_of(Path::new(python), Path::new(active))).then(|| {
        format!(
            "`python` in this job is `{python}` of the server's machine; the virtual environment `{active}`, which is active \
             here, is not used (`-entry \"ENV/bin/python …\"` names another one of that machine)"
        )
    })
}

/// Whether a program belongs to an environment, perhaps under another spelling.
fn is_of(program: &Path, environment: &Path) -> bool {
    let real = |path: &Path| -> Option<PathBuf> { path.canonicalize().ok() };
    program.starts_with(environment)
        || program
            .parent()
            .and_then(Path::parent)
            .and_then(real)
            .is_some_and(|own| Some(own) == real(environment))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_of_its_environment_under_every_spelling() {
        let folder = tempfile::tempdir().unwrap();
        let (venv, link) = (folder.path().join("venv"), folder.path().join("link"));
        std::fs::create_dir_all(venv.join("bin")).unwrap();
        std::fs::write(venv.join("bin/python"), "").unwrap();
        std::os::unix::fs::symlink(&venv, &link).unwrap();
        assert!(is_of(&venv.join("bin/python"), &venv));
        assert!(is_of(&venv.join("bin/python"), &link));
        assert!(!is_of(Path::new("/usr/bin/python3"), &venv));
        assert!(!is_of(Path::new("/nowhere/bin/python"), Path::new("/gone")));
    }
}
