//! The flags of `paddle launch`, with the pod's environment as fallback.

use std::time::Duration;

use paddlecloud_core::plan::{PSERVER_PORT, Role};
use paddlecloud_core::spec::shell_quote;

use super::peers::{Discovery, Names};
use super::{Assembly, LaunchError, Ports, WorkerOrder, attendance};

pub const HELP: &str = "\
paddle launch: the first process of a pod; runs one worker of a job without a server

Usage: paddle launch [--name=value …] [--] COMMAND …

Options, each with the variable that is read if it is not given:
  --role          trainer or pserver, TRAINING_ROLE [default: trainer]
  --job           the job's name, JOB_NAME
  --index         this worker's number in its role, JOB_COMPLETION_INDEX [default: 0]
  --trainers      number of trainers, or their host names separated by commas [default: 1]
  --pservers      number of parameter servers, or their host names separated by commas [default: 0]
  --service       headless Service; with numbers, peers are <service>-<role>-<index>.<service>
  --output        folder of logs and results, shared by all workers [default: output]
  --ps-port       first port of a parameter server, PADDLE_INIT_PORT [default: 7164]
  --ps-ports      how many ports it must listen on [default: 2]
  --start-limit   how long peers may take to appear [default: 10m]
  --grace         how long the command may take to exit after SIGTERM [default: 20s]
  --linger        how long all trainers must be gone before a parameter server is stopped [default: 5s]
  --launch-port   where the launcher of a parameter server listens for trainers [default: 7160]

COMMAND is a program and its arguments, or one word that a shell reads: \"python train.py\".

It starts COMMAND when every peer is present and, for a trainer, the parameter servers listen. A parameter server is
stopped when the trainers have exited. Under a PaddleCloud server, only COMMAND is run.
`paddle launch --install FOLDER` copies this program into FOLDER, for an init container.
";

const NAMES: [&str; 13] = [
    "role",
    "job",
    "index",
    "trainers",
    "pservers",
    "service",
    "output",
    "ps-port",
    "ps-ports",
    "start-limit",
    "grace",
    "linger",
    "launch-port",
];

/// The flags as given.
#[derive(Debug, Default)]
pub struct Flags(Vec<(String, String)>);

pub fn no_command() -> LaunchError {
    LaunchError::new("`paddle launch` needs a command, for example `paddle launch -- python train.py`")
}

/// Separates the flags from the command after them.
pub fn parse(words: &[String]) -> Result<(Flags, Vec<String>), LaunchError> {
    let mut flags = Vec::new();
    let mut rest = words.iter();
    while let Some(word) = rest.as_slice().first() {
        if word == "--" {
            rest.next();
            break;
        }
        let Some(flag) = word.strip_prefix("--") else {
            break;
        };
        rest.next();
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (flag, rest.next().cloned()),
        };
        if !NAMES.contains(&name) {
            return Err(LaunchError::new(format!(
                "`paddle launch` has no option `--{name}`; `paddle launch --help` lists them"
            )));
        }
        let value = value.ok_or_else(|| LaunchError::new(format!("`--{name}` needs a value")))?;
        flags.push((name.to_owned(), value));
    }
    Ok((Flags(flags), rest.cloned().collect()))
}

/// Looks up a variable.
pub type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

impl Flags {
    fn get(&self, name: &str) -> Option<&str> {
        let given = self.0.iter().rev().find(|(given, _)| given == name);
        given.map(|(_, value)| value.as_str())
    }

    /// Builds the assembly that these flags describe, with `command` as the worker's program.
    pub fn assembly(&self, command: &[String], env: Lookup) -> Result<Assembly, LaunchError> {
        if command.is_empty() {
            return Err(no_command());
        }
        let variable = |name: &str| env(name).filter(|value| !value.is_empty());
        let given = |flag: &str, name: &str| self.get(flag).map(str::to_owned).or_else(|| variable(name));
        let role = role(given("role", "TRAINING_ROLE"))?;
        let names = Names {
            trainers: self.names(Role::Trainer, "1")?,
            pservers: self.names(Role::Pserver, "0")?,
            index: number(
                "--index",
                &given("index", "JOB_COMPLETION_INDEX").unwrap_or("0".into()),
            )?,
            role,
        };
        names.check()?;
        let package = current_folder()?;
        let output = self.get("output").map_or(format!("{package}/output"), |output| {
            std::path::Path::new(&package).join(output).display().to_string()
        });
        let line = command_line(command);
        Ok(Assembly {
            job: given("job", "JOB_NAME").unwrap_or_else(|| "job".to_owned()),
            trainers: names.trainers.len() as u32,
            pservers: names.pservers.len() as u32,
            discovery: Discovery::Names(names),
            workers: vec![WorkerOrder {
                role,
                command: Box::new(move |_| line.clone()),
            }],
            package,
            output,
            ports: self.ports(variable("PADDLE_INIT_PORT"))?,
            start_limit: self.time("start-limit", 600)?,
            grace: self.time("grace", 20)?,
            linger: self.time("linger", 5)?,
            launch_port: match self.get("launch-port") {
                Some(port) => number("--launch-port", port)?,
                None => attendance::PORT,
            },
            env: Vec::new(),
            data: None,
        })
    }

    /// The workers of a role: a list of names, or a number of workers named by a headless Service.
    fn names(&self, role: Role, default: &str) -> Result<Vec<String>, LaunchError> {
        let flag = format!("{role}s");
        let value = self.get(&flag).unwrap_or(default);
        let Ok(count) = value.parse::<u32>() else {
            let names = value.split(',').map(str::trim).filter(|name| !name.is_empty());
            return Ok(names.map(str::to_owned).collect());
        };
        match (self.get("service"), count) {
            (_, 0) => Ok(Vec::new()),
            (Some(service), _) => Ok((0..count)
                .map(|index| format!("{service}-{role}-{index}.{service}"))
                .collect()),
            // A job of one trainer needs no peer names.
            (None, 1) if role == Role::Trainer && self.get("pservers").is_none() => {
                Ok(vec!["127.0.0.1".to_owned()])
            }
            (None, _) => Err(LaunchError::new(format!(
                "`--{flag}={count}` needs `--service`, the headless Service that names them; or list their names"
            ))),
        }
    }

    fn ports(&self, first: Option<String>) -> Result<Ports, LaunchError> {
        let first = self.get("ps-port").map(str::to_owned).or(first);
        let count: u16 = number("--ps-ports", self.get("ps-ports").unwrap_or("2"))?;
        Ok(Ports {
            first: number("--ps-port", &first.unwrap_or_else(|| PSERVER_PORT.to_string()))?,
            dense: 1,
            sparse: count.saturating_sub(1),
        })
    }

    fn time(&self, name: &str, default: u64) -> Result<Duration, LaunchError> {
        let Some(value) = self.get(name) else {
            return Ok(Duration::from_secs(default));
        };
        let parsed = paddlecloud_core::duration::parse(value)
            .map_err(|error| LaunchError::new(format!("`--{name}`: {error}")))?;
        Duration::try_from(parsed).map_err(|_| LaunchError::new(format!("`--{name}` must not be negative")))
    }
}

/// A single word is a shell command line; several words are a program and its arguments.
pub fn command_line(command: &[String]) -> String {
    match command {
        [line] => line.clone(),
        words => words
            .iter()
            .map(|word| shell_quote(word))
            .collect::<Vec<_>>()
            .join(" "),
    }
}

fn role(given: Option<String>) -> Result<Role, LaunchError> {
    match given.as_deref().map(str::to_ascii_lowercase).as_deref() {
        None | Some("trainer" | "worker") => Ok(Role::Trainer),
        Some("pserver") => Ok(Role::Pserver),
        Some(other) => Err(LaunchError::new(format!(
            "`{other}` is not a role; use `trainer` or `pserver`"
        ))),
    }
}

pub fn number<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, LaunchError> {
    let problem = || LaunchError::new(format!("`{value}` is not a valid number for `{name}`"));
    value.trim().parse().map_err(|_| problem())
}

pub fn current_folder() -> Result<String, LaunchError> {
    let folder = std::env::current_dir();
    let folder =
        folder.map_err(|error| LaunchError::new(format!("cannot find the current folder: {error}")))?;
    Ok(folder.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assembly(line: &str, env: &[(&str, &str)]) -> Result<Assembly, LaunchError> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let (flags, command) = parse(&words)?;
        let lookup = |name: &str| {
            let found = env.iter().find(|(given, _)| *given == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        flags.assembly(&command, &lookup)
    }

    fn error(line: &str) -> String {
        assembly(line, &[]).err().expect("it must be refused").to_string()
    }

    #[test]
    fn a_pod_of_an_indexed_job_knows_its_peers_by_name() {
        let line = "--role=pserver --service my-job --trainers=2 --pservers 1 --linger=1m -- paddle pserver";
        let made = assembly(line, &[("JOB_COMPLETION_INDEX", "0")]).unwrap();
        assert_eq!((made.trainers, made.pservers), (2, 1));
        assert_eq!(made.linger, Duration::from_secs(60));
        let Discovery::Names(names) = &made.discovery else {
            panic!("names were given");
        };
        assert_eq!(names.trainers[1], "my-job-trainer-1.my-job");
        assert_eq!(names.pservers[0], "my-job-pserver-0.my-job");
    }

    #[test]
    fn wrong_flags_are_explained() {
        insta::assert_snapshot!(error("--trainers=3 x"), @"`--trainers=3` needs `--service`, the headless Service that names them; or list their names");
        insta::assert_snapshot!(error("--trainers=a,b --index=2 x"), @"this is trainer 2, but there are 2, counted from 0");
        insta::assert_snapshot!(error("--role=master x"), @"`master` is not a role; use `trainer` or `pserver`");
        insta::assert_snapshot!(error("--peers=3 x"), @"`paddle launch` has no option `--peers`; `paddle launch --help` lists them");
        insta::assert_snapshot!(error("--start-limit"), @"`--start-limit` needs a value");
        insta::assert_snapshot!(error(""), @"`paddle launch` needs a command, for example `paddle launch -- python train.py`");
        insta::assert_snapshot!(error("--index=x y"), @"`x` is not a valid number for `--index`");
    }
}
