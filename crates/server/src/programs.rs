//! Finds out which programs the workers of this machine have in their `PATH`.
//!
//! Only searches; `app` refuses jobs based on the result, and `engine::local` provides programs to workers.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use paddlecloud_core::command::{program_by_name, python_by_name};
use paddlecloud_core::spec::JobSpec;

/// The programs of the system.
const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The `PATH` of workers whose job has none of its own: the programs of the configured Python environment, then the system's.
pub fn default_path(python: Option<&Path>) -> String {
    match python {
        Some(environment) => format!("{}/bin:{SYSTEM_PATH}", environment.display()),
        None => SYSTEM_PATH.to_owned(),
    }
}

/// Programs in our own folder, which is first in every worker's `PATH`.
const OURS: [&str; 2] = ["paddle", "paddle-data"];

/// Whether the programs of a job's commands exist on this machine.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup {
    Found,
    /// Only `python3` exists; workers also get it as `python`.
    PythonIsPython3,
    Missing {
        program: String,
        path: String,
    },
}

/// Searches for the programs of a job's commands.
pub fn look_up(spec: &JobSpec, default_path: &str) -> Lookup {
    let path = path_of(spec, default_path);
    let trainer = spec.trainer_command();
    let server = Some(&spec.ps_entry).filter(|_| spec.pservers > 0);
    let commands = [Some(&trainer), server];
    let programs = commands
        .into_iter()
        .flatten()
        .filter_map(|command| program_by_name(command));
    let mut lookup = Lookup::Found;
    for program in programs.filter(|program| !OURS.contains(program)) {
        if is_there(path, program) {
            continue;
        }
        if !lacks_python(path) || program != "python" {
            return Lookup::Missing {
                program: program.to_owned(),
                path: path.to_owned(),
            };
        }
        lookup = Lookup::PythonIsPython3;
    }
    lookup
}

/// The Python that a job's trainers start by name; `None` if their command does not show it.
pub fn python_of(spec: &JobSpec, default_path: &str) -> Option<PathBuf> {
    let command = spec.trainer_command();
    let path = path_of(spec, default_path);
    let find = |program: &str| {
        folders(path)
            .map(|folder| folder.join(program))
            .find(|file| is_program(file))
    };
    match python_by_name(&command)? {
        "python" => find("python").or_else(|| find("python3")),
        name => find(name),
    }
}

/// Whether `python` is missing in this `PATH` and `python3` can replace it.
pub fn lacks_python(path: &str) -> bool {
    !is_there(path, "python") && is_there(path, "python3")
}

/// The `PATH` of a job's workers, without our own folders.
fn path_of<'a>(spec: &'a JobSpec, default_path: &'a str) -> &'a str {
    let of_job = spec.envs.get("PATH").or_else(|| spec.shell_env.get("PATH"));
    of_job.map_or(default_path, String::as_str)
}

fn folders(path: &str) -> impl Iterator<Item = &Path> {
    path.split(':')
        .filter(|folder| folder.starts_with('/'))
        .map(Path::new)
}

fn is_there(path: &str, program: &str) -> bool {
    folders(path).any(|folder| is_program(&folder.join(program)))
        // A relative folder depends on the worker's working directory, so it may have the program.
        || path.split(':').any(|folder| !folder.starts_with('/'))
}

fn is_program(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(entry: &str, path: &Path) -> JobSpec {
        let mut spec = JobSpec::new("job".parse().unwrap());
        spec.entry = entry.to_owned();
        spec.pservers = 0;
        spec.envs.insert("PATH".to_owned(), path.display().to_string());
        spec
    }

    fn program(folder: &Path, name: &str) {
        let file = folder.join(name);
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[test]
    fn a_missing_program_is_reported_and_python3_stands_in_for_python() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        let look = |entry: &str| look_up(&spec(entry, path), "/nowhere");
        let missing = |program: &str| Lookup::Missing {
            program: program.to_owned(),
            path: path.display().to_string(),
        };
        std::fs::write(path.join("notes"), "no program").unwrap();
        assert_eq!(look("python train.py"), missing("python"));
        assert_eq!(look("notes x"), missing("notes"));
        program(path, "python3");
        assert_eq!(look("python3 train.py"), Lookup::Found);
        assert_eq!(look("python train.py"), Lookup::PythonIsPython3);
        assert_eq!(look("pyhton train.py"), missing("pyhton"));
        program(path, "python");
        assert_eq!(look("python train.py"), Lookup::Found);
        for entry in ["paddle train", "./train", "cd x && nothing", "exec nothing"] {
            assert_eq!(look(entry), Lookup::Found, "{entry}");
        }
    }

    #[test]
    fn the_configured_environment_is_searched_first() {
        let folder = tempfile::tempdir().unwrap();
        let environment = folder.path();
        std::fs::create_dir(environment.join("bin")).unwrap();
        program(&environment.join("bin"), "python3");
        let path = default_path(Some(environment));
        let mut spec = JobSpec::new("job".parse().unwrap());
        spec.entry = "python train.py".to_owned();
        // The system may have a `python`, which comes after this environment.
        program(&environment.join("bin"), "python");
        assert_eq!(python_of(&spec, &path), Some(environment.join("bin/python")));
        spec.entry = "./train".to_owned();
        assert_eq!(python_of(&spec, &path), None);
        spec.entry = "python train.py".to_owned();
        spec.envs.insert("PATH".to_owned(), "/nowhere".to_owned());
        assert_eq!(python_of(&spec, &path), None, "the job's own PATH replaces it");
    }

    #[test]
    fn the_servers_command_counts_only_where_servers_run() {
        let folder = tempfile::tempdir().unwrap();
        program(folder.path(), "train");
        let mut spec = spec("train", folder.path());
        spec.ps_entry = "serve".to_owned();
        assert_eq!(look_up(&spec, "/nowhere"), Lookup::Found);
        spec.pservers = 1;
        assert!(matches!(look_up(&spec, "/nowhere"), Lookup::Missing { program, .. } if program == "serve"));
    }
}
