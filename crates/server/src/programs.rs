//! Finds out which programs the workers of this machine have in their `PATH`.
//!
//! Only searches; `app` refuses jobs based on the result, and `engine::local` provides programs to workers.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use paddlecloud_core::command::program_by_name;
use paddlecloud_core::spec::JobSpec;

/// The default `PATH` of workers.
pub const DEFAULT_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

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
pub fn look_up(spec: &JobSpec) -> Lookup {
    let path = path_of(spec);
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

/// Whether `python` is missing in this `PATH` and `python3` can replace it.
pub fn lacks_python(path: &str) -> bool {
    !is_there(path, "python") && is_there(path, "python3")
}

/// The `PATH` of a job's workers, without our own folders.
fn path_of(spec: &JobSpec) -> &str {
    let of_job = spec.envs.get("PATH").or_else(|| spec.shell_env.get("PATH"));
    of_job.map_or(DEFAULT_PATH, String::as_str)
}

fn is_there(path: &str, program: &str) -> bool {
    path.split(':')
        .filter(|folder| folder.starts_with('/'))
        .any(|folder| is_program(&Path::new(folder).join(program)))
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
        let look = |entry: &str| look_up(&spec(entry, path));
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
    fn the_servers_command_counts_only_where_servers_run() {
        let folder = tempfile::tempdir().unwrap();
        program(folder.path(), "train");
        let mut spec = spec("train", folder.path());
        spec.ps_entry = "serve".to_owned();
        assert_eq!(look_up(&spec), Lookup::Found);
        spec.pservers = 1;
        assert!(matches!(look_up(&spec), Lookup::Missing { program, .. } if program == "serve"));
    }
}
