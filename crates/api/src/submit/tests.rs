//! How a request becomes a job spec, and what is refused.

use super::*;

fn request() -> JobRequest {
    JobRequest {
        job_package: Some("/pfs/local/home/me/job_word_emb/".into()),
        ..JobRequest::default()
    }
}

fn spec_of(request: &JobRequest) -> Result<JobSpec, SpecError> {
    request.to_spec(request.package_path("/pfs/local/home/me")?)
}

fn refused(change: impl FnOnce(&mut JobRequest)) -> String {
    let mut request = request();
    change(&mut request);
    let spec = spec_of(&request);
    let error = spec.expect_err("must be refused");
    let hint = error.hint.iter().map(|hint| format!("\n  hint: {hint}"));
    error.to_string() + &hint.collect::<String>()
}

#[test]
fn a_type_of_gpus_means_one_gpu_unless_more_are_requested() {
    let typed = |gpu| JobRequest {
        gpu,
        gpu_type: Some("NVIDIA A100".into()),
        ..request()
    };
    let spec = spec_of(&typed(None)).unwrap();
    assert_eq!((spec.trainer.gpu, spec.gpu_type.unwrap().as_str()), (1, "a100"));
    assert_eq!(spec_of(&typed(Some(4))).unwrap().trainer.gpu, 4);
    insta::assert_snapshot!(refused(|request| *request = typed(Some(0))), @r"
    `gpu_type` names GPUs of type `a100`, and the trainers have none
      hint: ask for some with `-gpu`
    ");
    insta::assert_snapshot!(
        refused(|request| request.gpu_type = Some("-".into())),
        @"`gpu_type`: `-` is not the name of a GPU type: at most 63 characters, with a letter or digit"
    );
    let labels = [("a b".to_owned(), "x".to_owned())];
    insta::assert_snapshot!(
        refused(|request| request.node_labels = labels.into()),
        @"`node_labels`: `a b` cannot be the name of a node's label"
    );
}

#[test]
fn missing_fields_get_the_documented_defaults() {
    let spec = spec_of(&request()).unwrap();
    let mut expected = JobSpec::new("job-word-emb".parse().unwrap());
    expected.package = Some("/pfs/local/home/me/job_word_emb".into());
    assert_eq!(spec, expected);
}

#[test]
fn there_are_as_many_pservers_as_trainers_unless_said_otherwise() {
    let mut many = request();
    many.parallelism = Some(7);
    assert_eq!(spec_of(&many).unwrap().pservers, 7);
    many.pservers = Some(0);
    assert_eq!(spec_of(&many).unwrap().pservers, 0);
}

#[test]
fn a_pserver_of_the_users_own_has_one_port() {
    let ports = |entry: &str| {
        let mut own = request();
        own.psentry = Some(entry.into());
        spec_of(&own).unwrap().ps_ports
    };
    assert_eq!(ports("paddle pserver"), 2);
    assert_eq!(ports("paddle pserver --port 1"), 2);
    assert_eq!(ports("python ps.py"), 1);
}

#[test]
fn an_uploaded_package_lies_in_the_home() {
    let mut uploaded = request();
    uploaded.job_package = None;
    uploaded.package_id = Some("abc".into());
    uploaded.package_name = Some("my_pkg".into());
    let spec = spec_of(&uploaded).unwrap();
    assert_eq!(spec.package.as_deref(), Some("/pfs/local/home/me/my_pkg"));
    assert_eq!(spec.name.as_str(), "my-pkg");
}

#[test]
fn a_list_of_files_must_be_that_of_the_package() {
    let list = Manifest::new(Vec::new()).unwrap();
    let taken = |id: Option<String>| {
        let mut request = JobRequest {
            package_id: id,
            package_list: Some(list.clone()),
            ..JobRequest::default()
        };
        request.take_list().map_err(|error| error.to_string())
    };
    assert_eq!(taken(Some(list.id().to_string())), Ok(Some(list.clone())));
    let other = format!(
        "`package_list` must be the list of `package_id`, not of the package {}",
        list.id()
    );
    for id in ["0".repeat(64), "x".to_owned()] {
        assert_eq!(taken(Some(id)), Err(other.clone()));
    }
    assert_eq!(
        taken(None),
        Err("`package_list` must come with `package_id`".to_owned())
    );
}

#[test]
fn every_wrong_field_is_named_in_one_sentence() {
    let texts = [
        refused(|r| r.parallelism = Some(0)),
        refused(|r| r.parallelism = Some(-1)),
        refused(|r| r.parallelism = Some(1_000_000)),
        refused(|r| r.memory = Some("1X".into())),
        refused(|r| r.cpu = Some(Amount::Number(0))),
        refused(|r| r.pscpu = Some("x".into())),
        refused(|r| r.gpu = Some(i64::MAX)),
        refused(|r| r.name = Some("my_job".into())),
        refused(|r| r.name = Some("x".repeat(300))),
        refused(|r| r.max_runtime = Some("soon".into())),
        refused(|r| r.start_limit = Some(Amount::Number(0))),
        refused(|r| r.psports = Some(70_000)),
        refused(|r| r.job_package = Some("./here".into())),
        refused(|r| r.job_package = None),
        refused(|r| drop(r.envs.insert("A=B".into(), String::new()))),
        refused(|r| r.comment = Some("two\nlines".into())),
        refused(|r| r.comment = Some("é".repeat(201))),
        refused(|r| r.resume = Some("my_job".into())),
        refused(|r| r.resume = Some(String::new())),
        refused(|r| (r.resume, r.pservers) = (Some("last".into()), Some(0))),
        refused(|r| (r.resume, r.manifests) = (Some("last".into()), true)),
    ];
    insta::assert_snapshot!(texts.join("\n"), @r"
    `parallelism` must be between 1 and 10000, not 0
    `parallelism` must be between 1 and 10000, not -1
    `parallelism` must be between 1 and 10000, not 1000000
    `memory`: `1X` is not an amount of memory: write a whole number and one of Ki Mi Gi Ti Pi Ei (or K M G T P E), for example `10Gi`
    `cpu`: a worker needs more than 0 cores
    `pscpu`: `x` is not a number of cores: write `2` or `500m`
    `gpu` must be between 0 and 1024, not 9223372036854775807
    cannot submit `my_job`: `_` is not allowed in a job name
      hint: try `my-job`
    cannot submit `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…`: a job name has at most 63 characters, this one has 300
      hint: try `xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx`
    `max_runtime`: `soon` is not a time span: write `90s`, `10m`, `1h30m`, `7d` or a number of seconds
    `start_limit` must be greater than zero, for example `10m`
    `psports` must be between 1 and 64, not 70000
    `job_package`: `./here` is not on the cluster: the path of a package starts with `/pfs/`
      hint: `paddlectl submit <folder>` uploads a local folder
    a job needs a package or an image that contains one
      hint: name the folder of your program, for example `paddlectl submit ./my_package`
    `envs`: `A=B` is not the name of an environment variable
    `comment` must be one line without control characters
    `comment` has 201 characters; the limit is 200
    `resume`: `_` is not allowed in a job name
    `resume`: a job name must not be empty
    `resume` needs parameter servers, and this job has none
      hint: ask for some with `-pservers`
    `resume` cannot be in manifests: a job without this server does not find the earlier run
    ");
}
