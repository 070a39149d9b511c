//! Compares what the launchers of 2017 run for an environment with the expected commands.

use super::*;

/// The environment of the documented Job.
const JOB_OF_2017: [(&str, &str); 9] = [
    ("JOB_NAME", "paddle-cluster-job"),
    ("JOB_PATH", "/home/jobpath"),
    ("JOB_NAMESPACE", "default"),
    ("TRAIN_CONFIG_DIR", "recommendation"),
    ("CONF_PADDLE_NIC", "eth0"),
    ("CONF_PADDLE_PORT", "7164"),
    ("CONF_PADDLE_PORTS_NUM", "2"),
    ("CONF_PADDLE_PORTS_NUM_SPARSE", "2"),
    ("CONF_PADDLE_GRADIENT_NUM", "3"),
];

fn lookup(env: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
    let env: Vec<(String, String)> = env
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    move |name| {
        env.iter()
            .find(|(given, _)| given == name)
            .map(|(_, value)| value.clone())
    }
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

fn team() -> Team {
    let pods = ["192.168.129.66", "192.168.223.143", "192.168.129.71"];
    let pods: Vec<std::net::Ipv4Addr> = pods.map(|address| address.parse().unwrap()).into();
    Team {
        own: pods[0],
        pservers: pods.clone(),
        trainers: pods,
        index: 0,
    }
}

#[test]
fn the_programs_print_the_command_lines_of_2017() {
    let env = lookup(&JOB_OF_2017);
    let given = words(
        "--ports_num_for_sparse=2 --config=./trainer_config.py --trainer_count 4 --num_passes=10 --use_gpu=0 \
         --log_period=50 --dot_period=10 --saving_period=1 --local=0",
    );
    let made = handwritten(&Variables::new(&env), &given).unwrap();
    let lines: Vec<String> = made
        .workers
        .iter()
        .map(|order| (order.command)(&team()))
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
    paddle pserver --nics=eth0 --port=7164 --ports_num=2 --comment=paddle_process_by_paddle --ports_num_for_sparse=2 --num_gradient_servers=3
    paddle train --nics=eth0 --port=7164 --ports_num=2 --comment=paddle_process_by_paddle --pservers=192.168.129.66,192.168.223.143,192.168.129.71 --ports_num_for_sparse=2 --config=./trainer_config.py --trainer_count=4 --num_passes=10 --use_gpu=0 --log_period=50 --dot_period=10 --saving_period=1 --local=0 --trainer_id=0 --save_dir=/home/jobpath/paddle-cluster-job/output
    ");
    assert_eq!(made.output, "/home/jobpath/paddle-cluster-job/output");
    assert_eq!((made.trainers, made.pservers, made.ports.count()), (3, 3, 4));
}

#[test]
fn a_missing_variable_is_named() {
    let env = lookup(&JOB_OF_2017[2..]);
    let error = handwritten(&Variables::new(&env), &[]).err().unwrap();
    insta::assert_snapshot!(error.to_string(), @"`JOB_NAME`, `JOB_PATH` are not set in the container's environment");
    let nothing = lookup(&[]);
    let error = |line: &str| {
        let variables = Variables::new(&nothing);
        let made = Verb::parse(&words(line), &variables).and_then(|verb| verb.assembly(&variables));
        made.err().unwrap().to_string()
    };
    insta::assert_snapshot!(error("start_fluid"), @"`PADDLE_TRAINING_ROLE` or `TRAINING_ROLE` is not set in the container's environment");
    insta::assert_snapshot!(error("start_pserver").lines().next().unwrap_or_default().to_owned(), @"`PADDLE_JOB_NAME` or `JOB_NAME`, `NAMESPACE` or `JOB_NAMESPACE`, `TRAINERS` or `PADDLE_TRAINERS` or `PADDLE_INIT_NUM_GRADIENT_SERVERS` or `CONF_PADDLE_GRADIENT_NUM`, `PSERVERS` or `PADDLE_PSERVERS` are not set in the container's environment");
    assert!(error("start_trainer").contains("needs `v1`"));
    assert!(error("start_master").contains("cannot `start_master`"));
}

#[test]
fn every_verb_has_its_command() {
    let env = lookup(&[
        ("PADDLE_JOB_NAME", "demo"),
        ("NAMESPACE", "team"),
        ("TRAINERS", "2"),
        ("PSERVERS", "3"),
        ("TOPOLOGY", "net.py"),
        ("ENTRY", "python train.py"),
        ("TRAINER_PACKAGE", "/job"),
        ("PADDLE_TRAINING_ROLE", "PSERVER"),
    ]);
    let variables = Variables::new(&env);
    let command = |line: &str| {
        let made = Verb::parse(&words(line), &variables).and_then(|verb| verb.assembly(&variables));
        (made.unwrap().workers[0].command)(&team())
    };
    let lines = [
        "start_pserver --use_gpu=0",
        "start_trainer v1 --log_period=7 --dot_period 3",
        "start_trainer v2 --fast",
        "start_fluid",
    ];
    insta::assert_snapshot!(lines.map(command).join("\n"), @r"
    paddle pserver --nics=eth0 --port=7164 --ports_num=1 --comment=paddle_process_by_paddle --ports_num_for_sparse=1 --num_gradient_servers=2 --use_gpu=0
    paddle train --nics=eth0 --port=7164 --ports_num=1 --comment=paddle_process_by_paddle --pservers=192.168.129.66,192.168.223.143,192.168.129.71 --ports_num_for_sparse=1 --config=net.py --trainer_count=1 --num_passes=1 --use_gpu=0 --log_period=7 --saving_period=1 --local=0 --dot_period=3 --trainer_id=0 --save_dir=/job/output
    export PADDLE_PSERVER_IPS=192.168.129.66,192.168.223.143,192.168.129.71 PADDLE_TRAINER_IPS=192.168.129.66,192.168.223.143,192.168.129.71; python train.py --fast
    export PADDLE_PSERVER_IPS=192.168.129.66,192.168.223.143,192.168.129.71 PADDLE_TRAINER_IPS=192.168.129.66,192.168.223.143,192.168.129.71; python train.py
    ");
}

#[test]
fn a_nodes_part_of_the_data_is_copied() {
    let folder = tempfile::tempdir().unwrap();
    let part = folder.path().join("1/data/deep");
    std::fs::create_dir_all(&part).unwrap();
    std::fs::write(part.join("train.txt"), "x").unwrap();
    let to = folder.path().join("copy");
    copy_part(folder.path(), 0, &to).unwrap();
    assert!(!to.exists(), "there is none for node 0");
    copy_part(folder.path(), 1, &to).unwrap();
    assert_eq!(std::fs::read_to_string(to.join("deep/train.txt")).unwrap(), "x");
}
