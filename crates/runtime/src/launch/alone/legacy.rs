//! The launchers of 2017, which are configured by their environment: `start_paddle[.py]` and `paddle_k8s`.
//!
//! They pass arguments in the order in which the original programs print them.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use paddlecloud_core::plan::Role;
use paddlecloud_core::spec::shell_quote;

use super::flags::{Lookup, current_folder, number};
use super::peers::{Discovery, Labels};
use super::{Assembly, CommandMaker, LaunchError, Ports, Team, WorkerOrder, is_supervised, run, text_of};
use crate::launch::become_program;

const START_LIMIT: Duration = Duration::from_secs(600);
const GRACE: Duration = Duration::from_secs(20);
const LINGER: Duration = Duration::from_secs(5);

const K8S_USAGE: &str = "\
usage: paddle_k8s start_pserver [--name=value …]
       paddle_k8s start_trainer v1|v2 [argument …]
       paddle_k8s start_fluid [argument …]";

const START_PADDLE_HELP: &str = "\
start_paddle: the launcher of a hand-written Kubernetes Job, as in 2017; also called `start_paddle.py`

Usage: start_paddle [argument of `paddle train` …]

Every pod of the Job runs it. It waits until all pods run, copies the pod's part of the data set
(`$JOB_PATH/$JOB_NAME/<number>/data`) to `data`, and starts a parameter server and a trainer. Logs and models go to
`$JOB_PATH/$JOB_NAME/output`. In a worker of PaddleCloud it only runs `paddle train`.

Variables of the container, all needed:
  JOB_NAME                       the name of the Job
  JOB_PATH                       a folder that all pods mount
  JOB_NAMESPACE                  the namespace of the Job
  TRAIN_CONFIG_DIR               the folder of the configuration
  CONF_PADDLE_NIC                the network interface, such as eth0
  CONF_PADDLE_PORT               first port, such as 7164
  CONF_PADDLE_PORTS_NUM          dense ports
  CONF_PADDLE_PORTS_NUM_SPARSE   sparse ports
  CONF_PADDLE_GRADIENT_NUM       number of pods, each with a trainer
";

/// Runs `start_paddle <args>`: a parameter server and a trainer in every pod of one Job.
pub fn start_paddle(args: &[OsString]) -> Result<ExitCode, LaunchError> {
    let words = text_of(args)?;
    if asks_for_help(&words) {
        print!("{START_PADDLE_HELP}");
        return Ok(ExitCode::SUCCESS);
    }
    if is_supervised() {
        return become_shell(&format!("paddle train{}", Extra::parse(&words).text()));
    }
    run(handwritten(&Variables::new(&process_variable), &words)?)
}

/// Runs `paddle_k8s <args>`: one role in every pod.
pub fn k8s(args: &[OsString]) -> Result<ExitCode, LaunchError> {
    let words = text_of(args)?;
    if asks_for_help(&words) {
        println!("{K8S_USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let variables = Variables::new(&process_variable);
    let verb = Verb::parse(&words, &variables)?;
    if is_supervised() {
        return become_shell(&verb.bare_command(&variables)?);
    }
    run(verb.assembly(&variables)?)
}

fn asks_for_help(words: &[String]) -> bool {
    words.first().is_some_and(|word| word == "--help" || word == "-h")
}

fn process_variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn become_shell(command: &str) -> Result<ExitCode, LaunchError> {
    become_program(&"sh".into(), &["-c".into(), command.into()])
}

/// The environment. Its errors name the missing variables.
struct Variables<'a> {
    lookup: Lookup<'a>,
}

impl<'a> Variables<'a> {
    fn new(lookup: Lookup<'a>) -> Variables<'a> {
        Variables { lookup }
    }

    /// The value of the first of these that is set.
    fn get(&self, names: &[&str]) -> Option<String> {
        let mut values = names.iter().filter_map(|name| (self.lookup)(name));
        values.find(|value| !value.is_empty())
    }

    fn need(&self, names: &[&str]) -> Result<String, LaunchError> {
        self.get(names).ok_or_else(|| missing(&[names]))
    }

    /// Reports all missing variables at once.
    fn check(&self, required: &[&[&str]]) -> Result<(), LaunchError> {
        let absent: Vec<&[&str]> = required
            .iter()
            .copied()
            .filter(|names| self.get(names).is_none())
            .collect();
        match absent.is_empty() {
            true => Ok(()),
            false => Err(missing(&absent)),
        }
    }

    fn number<T: std::str::FromStr>(&self, names: &[&str], default: &str) -> Result<T, LaunchError> {
        number(names[0], &self.get(names).unwrap_or_else(|| default.to_owned()))
    }

    fn ports(&self) -> Result<Ports, LaunchError> {
        Ok(Ports {
            first: self.number(&PORT, "7164")?,
            dense: self.number(&PORTS, "1")?,
            sparse: self.number(&SPARSE_PORTS, "1")?,
        })
    }

    fn nic(&self) -> String {
        self.get(&NIC).unwrap_or_else(|| "eth0".to_owned())
    }
}

fn missing(absent: &[&[&str]]) -> LaunchError {
    let words: Vec<String> = absent
        .iter()
        .map(|names| {
            names
                .iter()
                .map(|name| format!("`{name}`"))
                .collect::<Vec<_>>()
                .join(" or ")
        })
        .collect();
    let verb = if absent.len() == 1 { "is" } else { "are" };
    LaunchError::new(format!(
        "{} {verb} not set in the container's environment",
        words.join(", ")
    ))
}

const JOB: [&str; 2] = ["PADDLE_JOB_NAME", "JOB_NAME"];
const NAMESPACE: [&str; 2] = ["NAMESPACE", "JOB_NAMESPACE"];
const TRAINERS: [&str; 4] = [
    "TRAINERS",
    "PADDLE_TRAINERS",
    "PADDLE_INIT_NUM_GRADIENT_SERVERS",
    "CONF_PADDLE_GRADIENT_NUM",
];
const PSERVERS: [&str; 2] = ["PSERVERS", "PADDLE_PSERVERS"];
const ROLE: [&str; 2] = ["PADDLE_TRAINING_ROLE", "TRAINING_ROLE"];
const NIC: [&str; 2] = ["CONF_PADDLE_NIC", "PADDLE_INIT_NICS"];
const PORT: [&str; 2] = ["CONF_PADDLE_PORT", "PADDLE_INIT_PORT"];
const PORTS: [&str; 2] = ["CONF_PADDLE_PORTS_NUM", "PADDLE_INIT_PORTS_NUM"];
const SPARSE_PORTS: [&str; 2] = ["CONF_PADDLE_PORTS_NUM_SPARSE", "PADDLE_INIT_PORTS_NUM_FOR_SPARSE"];

/// Arguments to pass on. A repeated one counts once, with its last value.
#[derive(Debug, Clone, Default)]
struct Extra(Vec<(String, Option<String>)>);

impl Extra {
    /// Parses `--name=value`, `--name value` and `--name`.
    fn parse(words: &[String]) -> Extra {
        let mut extra = Extra::default();
        let mut rest = words.iter().peekable();
        while let Some(word) = rest.next() {
            let Some(flag) = word.strip_prefix("--") else {
                extra.0.push((word.clone(), None));
                continue;
            };
            let (name, value) = match flag.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (flag, rest.next_if(|next| !next.starts_with("--")).cloned()),
            };
            extra.set(&format!("--{name}"), value);
        }
        extra
    }

    fn set(&mut self, name: &str, value: Option<String>) {
        match self.0.iter_mut().find(|(given, _)| given == name) {
            Some((_, old)) => *old = value,
            None => self.0.push((name.to_owned(), value)),
        }
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(given, _)| given == name)
    }

    /// Inserts a default before all others, unless the flag is given.
    fn default_first(&mut self, name: &str, value: &str) {
        if !self.has(name) {
            self.0.insert(0, (name.to_owned(), Some(value.to_owned())));
        }
    }

    /// ` --name=value …` for a shell.
    fn text(&self) -> String {
        let words = self.0.iter().map(|(name, value)| match value {
            Some(value) => format!(" {name}={}", shell_quote(value)),
            None => format!(" {}", shell_quote(name)),
        });
        words.collect()
    }
}

/// The command line of the programs from 2017.
struct CommandLine {
    nic: String,
    ports: Ports,
    trainers: u32,
    output: String,
}

impl CommandLine {
    fn read(variables: &Variables, trainers: u32, output: &str) -> Result<CommandLine, LaunchError> {
        Ok(CommandLine {
            nic: shell_quote(&variables.nic()),
            ports: variables.ports()?,
            trainers,
            output: shell_quote(output),
        })
    }

    fn head(&self) -> String {
        let Ports { first, dense, .. } = self.ports;
        let nic = &self.nic;
        format!("--nics={nic} --port={first} --ports_num={dense} --comment=paddle_process_by_paddle")
    }

    fn trainer(self, mut extra: Extra) -> CommandMaker {
        extra.default_first("--ports_num_for_sparse", &self.ports.sparse.to_string());
        Box::new(move |team: &Team| {
            format!(
                "paddle train {} --pservers={}{} --trainer_id={} --save_dir={}",
                self.head(),
                team.pserver_list(),
                extra.text(),
                team.index,
                self.output
            )
        })
    }

    fn pserver(self, extra: &Extra) -> String {
        format!(
            "paddle pserver {} --ports_num_for_sparse={} --num_gradient_servers={}{}",
            self.head(),
            self.ports.sparse,
            self.trainers,
            extra.text()
        )
    }
}

/// A hand-written Job: every pod has a parameter server and a trainer.
fn handwritten(variables: &Variables, words: &[String]) -> Result<Assembly, LaunchError> {
    const WANTED: [&[&str]; 9] = [
        &["JOB_NAME"],
        &["JOB_PATH"],
        &["JOB_NAMESPACE"],
        &["TRAIN_CONFIG_DIR"],
        &["CONF_PADDLE_NIC"],
        &["CONF_PADDLE_PORT"],
        &["CONF_PADDLE_PORTS_NUM"],
        &["CONF_PADDLE_PORTS_NUM_SPARSE"],
        &["CONF_PADDLE_GRADIENT_NUM"],
    ];
    variables.check(&WANTED)?;
    let job = variables.need(&["JOB_NAME"])?;
    let folder = PathBuf::from(variables.need(&["JOB_PATH"])?).join(&job);
    let output = folder.join("output").display().to_string();
    let trainers: u32 = variables.number(&["CONF_PADDLE_GRADIENT_NUM"], "")?;
    let label = format!("job-name={job}");
    let package = current_folder()?;
    let data = PathBuf::from(&package).join("data");
    let line = || CommandLine::read(variables, trainers, &output);
    let pserver = line()?.pserver(&Extra::default());
    Ok(Assembly {
        trainers,
        pservers: trainers,
        discovery: Discovery::Labels(Labels {
            namespace: variables.need(&["JOB_NAMESPACE"])?,
            trainers: label.clone(),
            pservers: label,
            role: Role::Trainer,
        }),
        workers: vec![
            WorkerOrder {
                role: Role::Pserver,
                command: Box::new(move |_| pserver.clone()),
            },
            WorkerOrder {
                role: Role::Trainer,
                command: line()?.trainer(Extra::parse(words)),
            },
        ],
        ports: variables.ports()?,
        env: port_aliases(variables)?,
        data: Some(Box::new(move |index| copy_part(&folder, index, &data))),
        ..plain(job, package, output)
    })
}

/// The variable names that other versions use for the same numbers.
fn port_aliases(variables: &Variables) -> Result<Vec<(String, String)>, LaunchError> {
    let ports = variables.ports()?;
    let named = [
        ("PADDLE_INIT_PORT", ports.first),
        ("PADDLE_INIT_PORTS_NUM", ports.dense),
        ("PADDLE_INIT_PORTS_NUM_FOR_SPARSE", ports.sparse),
    ];
    Ok(named
        .map(|(name, value)| (name.to_owned(), value.to_string()))
        .into())
}

/// Defaults of all jobs without a server.
fn plain(job: String, package: String, output: String) -> Assembly {
    Assembly {
        job,
        package,
        output,
        trainers: 1,
        pservers: 0,
        discovery: Discovery::single(),
        workers: Vec::new(),
        ports: Ports {
            first: 7164,
            dense: 1,
            sparse: 1,
        },
        start_limit: START_LIMIT,
        grace: GRACE,
        linger: LINGER,
        launch_port: super::attendance::PORT,
        env: Vec::new(),
        data: None,
    }
}

/// Copies a node's part of the data set, if it exists. Data of other jobs is elsewhere.
fn copy_part(job: &Path, index: u32, to: &Path) -> Result<(), LaunchError> {
    let from = job.join(index.to_string()).join("data");
    if !from.is_dir() {
        return Ok(());
    }
    copy_folder(&from, to).map_err(|error| {
        LaunchError::new(format!(
            "cannot copy `{}` to `{}`: {error}",
            from.display(),
            to.display()
        ))
    })
}

fn copy_folder(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        // Follow links: their targets must be in the container.
        match std::fs::metadata(entry.path())?.is_dir() {
            true => copy_folder(&entry.path(), &target)?,
            false => drop(std::fs::copy(entry.path(), target)?),
        }
    }
    Ok(())
}

/// What `paddle_k8s` should start.
#[derive(Debug)]
enum Verb {
    Pserver(Extra),
    /// A v1 configuration.
    Config(Extra),
    /// `ENTRY`, in this role.
    Entry(Role, Vec<String>),
}

impl Verb {
    fn parse(words: &[String], variables: &Variables) -> Result<Verb, LaunchError> {
        let bare: Vec<&str> = words.iter().map(String::as_str).collect();
        match bare.as_slice() {
            ["start_pserver", ..] => Ok(Verb::Pserver(Extra::parse(&words[1..]))),
            ["start_trainer", "v1", ..] => Ok(Verb::Config(Extra::parse(&words[2..]))),
            ["start_trainer", "v2", ..] => Ok(Verb::Entry(Role::Trainer, words[2..].to_vec())),
            ["start_fluid", ..] => {
                let role = variables.need(&ROLE)?;
                let role = match role.to_ascii_uppercase().as_str() {
                    "TRAINER" | "WORKER" => Role::Trainer,
                    "PSERVER" => Role::Pserver,
                    _ => {
                        return Err(LaunchError::new(format!(
                            "`{role}` in `{}` is not a role; use `TRAINER` or `PSERVER`",
                            ROLE[0]
                        )));
                    }
                };
                Ok(Verb::Entry(role, words[1..].to_vec()))
            }
            ["start_trainer", ..] => Err(LaunchError::new(format!(
                "`start_trainer` needs `v1` (a configuration in TOPOLOGY) or `v2` (a command in ENTRY)\n{K8S_USAGE}"
            ))),
            [] => Err(LaunchError::new(K8S_USAGE)),
            [other, ..] => Err(LaunchError::new(format!(
                "`paddle_k8s` cannot `{other}`\n{K8S_USAGE}"
            ))),
        }
    }

    fn role(&self) -> Role {
        match self {
            Verb::Pserver(_) => Role::Pserver,
            Verb::Config(_) => Role::Trainer,
            Verb::Entry(role, _) => *role,
        }
    }

    /// The command under a supervisor, which has set everything else.
    fn bare_command(&self, variables: &Variables) -> Result<String, LaunchError> {
        match self {
            Verb::Pserver(extra) => Ok(format!("paddle pserver{}", extra.text())),
            Verb::Config(extra) => {
                let config = shell_quote(&variables.need(&["TOPOLOGY"])?);
                Ok(format!("paddle train --config={config}{}", extra.text()))
            }
            Verb::Entry(_, words) => entry(variables, words),
        }
    }

    fn assembly(self, variables: &Variables) -> Result<Assembly, LaunchError> {
        variables.check(&[&JOB, &NAMESPACE, &TRAINERS, &PSERVERS])?;
        let job = variables.need(&JOB)?;
        let package = match variables.get(&["TRAINER_PACKAGE"]) {
            Some(package) => package,
            None => current_folder()?,
        };
        let output = variables
            .get(&["OUTPUT"])
            .unwrap_or_else(|| format!("{package}/output"));
        let (trainers, pservers) = (variables.number(&TRAINERS, "")?, variables.number(&PSERVERS, "")?);
        let role = self.role();
        Ok(Assembly {
            trainers,
            pservers,
            discovery: Discovery::Labels(Labels {
                namespace: variables.need(&NAMESPACE)?,
                trainers: format!("paddle-job={job}"),
                pservers: format!("paddle-job-pserver={job}"),
                role,
            }),
            workers: vec![WorkerOrder {
                role,
                command: self.command(variables, trainers, &output)?,
            }],
            ports: variables.ports()?,
            env: port_aliases(variables)?,
            ..plain(job, package, output)
        })
    }

    fn command(
        self,
        variables: &Variables,
        trainers: u32,
        output: &str,
    ) -> Result<CommandMaker, LaunchError> {
        let line = CommandLine::read(variables, trainers, output)?;
        Ok(match self {
            Verb::Pserver(extra) => {
                let command = line.pserver(&extra);
                Box::new(move |_| command.clone())
            }
            Verb::Config(extra) => line.trainer(configured(variables, extra)?),
            Verb::Entry(_, words) => {
                let command = entry(variables, &words)?;
                Box::new(move |team| {
                    let (pservers, trainers) = (team.pserver_list(), team.trainer_list());
                    format!("export PADDLE_PSERVER_IPS={pservers} PADDLE_TRAINER_IPS={trainers}; {command}")
                })
            }
        })
    }
}

/// The flags of a v1 job; the given ones take precedence.
fn configured(variables: &Variables, given: Extra) -> Result<Extra, LaunchError> {
    let count = |names: &[&str]| variables.get(names).unwrap_or_else(|| "1".to_owned());
    let mut extra = Extra::default();
    for (name, value) in [
        ("--ports_num_for_sparse", variables.ports()?.sparse.to_string()),
        ("--config", variables.need(&["TOPOLOGY"])?),
        ("--trainer_count", count(&["PADDLE_INIT_TRAINER_COUNT"])),
        ("--num_passes", count(&["PADDLE_INIT_NUM_PASSES"])),
        (
            "--use_gpu",
            variables
                .get(&["PADDLE_INIT_USE_GPU"])
                .unwrap_or_else(|| "0".to_owned()),
        ),
        ("--log_period", "20".to_owned()),
        ("--saving_period", "1".to_owned()),
        ("--local", "0".to_owned()),
    ] {
        extra.set(name, Some(value));
    }
    for (name, value) in given.0 {
        extra.set(&name, value);
    }
    Ok(extra)
}

/// The user's own command, followed by the arguments.
fn entry(variables: &Variables, words: &[String]) -> Result<String, LaunchError> {
    let entry = variables.need(&["ENTRY"])?;
    if entry.trim_start().starts_with("paddle_k8s") {
        return Err(LaunchError::new(
            "`ENTRY` is `paddle_k8s` itself; set it to the command of the program",
        ));
    }
    let words: String = words
        .iter()
        .map(|word| format!(" {}", shell_quote(word)))
        .collect();
    Ok(format!("{entry}{words}"))
}

#[cfg(test)]
mod tests;
