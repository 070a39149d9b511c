//! Which requests are valid.

use super::*;

fn spec() -> JobSpec {
    let mut spec = JobSpec::new("job".parse().unwrap());
    spec.package = Some("/pfs/local/home/me/p".into());
    spec
}

#[test]
fn the_defaults_pass_the_check() {
    assert!(spec().check().is_ok());
}

#[test]
fn a_command_with_an_open_quote_is_refused_and_valid_shell_commands_are_not() {
    for open in ["sh -c 'x", "python \"a b", "echo \\\\'", "echo \"it's"] {
        let mut spec = spec();
        spec.entry = open.into();
        assert_eq!(spec.check().unwrap_err().field, "entry", "{open}");
    }
    for closed in [
        "sh -c 'x'",
        "echo it\\'s",
        "echo \"it's\"",
        "echo '\"'",
        "echo \"\\\"\"",
        "echo \"$(echo '\"')\"",
        "true # don't",
    ] {
        let mut spec = spec();
        spec.entry = closed.into();
        assert!(spec.check().is_ok(), "{closed}");
    }
}

#[test]
fn memory_without_its_unit_is_noticed() {
    let mut small = spec();
    small.trainer.memory = Bytes::new(1);
    let error = small.check().unwrap_err();
    assert_eq!(
        error.message("-memory"),
        "`-memory`: a worker cannot start with 1 byte; the minimum is 1 MiB"
    );
    assert!(error.hint.unwrap().contains("`1Gi`"));
}

#[test]
fn every_number_out_of_range_is_named() {
    let field = |change: fn(&mut JobSpec)| {
        let mut spec = spec();
        change(&mut spec);
        spec.check().expect_err("must be refused").field
    };
    assert_eq!(field(|s| s.parallelism = 0), "parallelism");
    assert_eq!(field(|s| s.parallelism = 1_000_000), "parallelism");
    assert_eq!(field(|s| s.pservers = 10_001), "pservers");
    assert_eq!(field(|s| s.passes = 0), "passes");
    assert_eq!(field(|s| s.priority = 1001), "priority");
    assert_eq!(field(|s| s.priority = i32::MIN), "priority");
    assert_eq!(field(|s| s.entry = "  ".into()), "entry");
    assert_eq!(field(|s| s.start_limit = SignedDuration::ZERO), "start_limit");
    assert_eq!(field(|s| s.grace = SignedDuration::from_secs(-1)), "grace");
    assert_eq!(
        field(|s| drop(s.envs.insert("A B".into(), String::new()))),
        "envs"
    );
    assert_eq!(field(|s| s.package = None), "job_package");
}

#[test]
fn values_no_program_can_be_started_with_are_refused() {
    let refused = |change: fn(&mut JobSpec)| {
        let mut spec = spec();
        change(&mut spec);
        let error = spec.check().expect_err("must be refused");
        (error.field, error.to_string())
    };
    let (field, message) = refused(|s| s.entry = "x".repeat(MAX_WORD + 1));
    assert!(field == "entry" && message.contains("65537 bytes"), "{message}");
    let (field, message) = refused(|s| s.topology = Some("a\0b".into()));
    assert!(field == "topology" && message.contains("NUL"), "{message}");
    let (field, message) = refused(|s| drop(s.envs.insert("A".into(), "x".repeat(MAX_WORD + 1))));
    assert!(field == "envs" && message.contains("`A` has"), "{message}");
    let (field, message) = refused(|s| {
        for number in 0..9 {
            s.envs.insert(format!("A{number}"), "x".repeat(MAX_WORD));
        }
    });
    assert!(field == "envs" && message.contains("together"), "{message}");
}

#[test]
fn a_topology_beats_the_entry() {
    let mut spec = spec();
    spec.topology = Some("modules/my topo.py".into());
    assert_eq!(
        spec.trainer_command(),
        "paddle train --config='modules/my topo.py'"
    );
    assert_eq!(spec.version(), "v1");
}

#[test]
fn a_configuration_that_python_starts_is_v1() {
    let mut spec = spec();
    for (entry, version) in [
        ("python trainer_config.py", "v1"),
        ("LR=1 python3 -u conf/trainer_config.lstm.py --num_passes=3", "v1"),
        ("paddle train", "v1"),
        ("paddle train --config=a.py", "v1"),
        ("python train.py", "v2"),
        ("python train.py trainer_config.py", "v2"),
        ("cat trainer_config.py", "v2"),
    ] {
        spec.entry = entry.to_owned();
        assert_eq!(spec.version(), version, "{entry}");
    }
}

#[test]
fn a_job_that_names_no_nodes_is_stored_as_before() {
    let stored = serde_json::to_value(spec()).unwrap();
    assert!(stored.get("gpu_type").is_none() && stored.get("node_labels").is_none());
    assert_eq!(serde_json::from_value::<JobSpec>(stored).unwrap(), spec());
    let mut named = spec();
    named.gpu_type = Some("a100".parse().unwrap());
    named.node_labels = BTreeMap::from([("pool".to_owned(), "train".to_owned())]);
    let stored = serde_json::to_value(&named).unwrap();
    assert_eq!(serde_json::from_value::<JobSpec>(stored).unwrap(), named);
}

#[test]
fn labels_follow_the_rules_of_kubernetes() {
    let labels = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        check_labels(
            &pairs
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect(),
        )
    };
    for (key, value) in [
        ("pool", "train"),
        ("nvidia.com/gpu.product", "NVIDIA-A100-SXM4-80GB"),
        ("topology.kubernetes.io/zone", ""),
    ] {
        assert_eq!(labels(&[(key, value)]), Ok(()), "{key}");
    }
    let long = "a".repeat(64);
    for (key, value) in [
        ("", "x"),
        ("a b", "x"),
        ("/a", "x"),
        ("a/", "x"),
        ("A.com/a", "x"),
        ("a", "-x"),
        ("a", "x y"),
        ("a", &long),
    ] {
        assert!(labels(&[(key, value)]).is_err(), "{key}={value}");
    }
}
