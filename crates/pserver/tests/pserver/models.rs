//! Saved models: names and shapes of frameworks, and what is refused when one is loaded.

use paddlecloud_pserver::client::{parameter_path, parameters, read_parameter, shapes, write_parameter};
use paddlecloud_pserver::optimizer::Rule;
use paddlecloud_pserver::steps::Mode;

use crate::training::{Job, dense, table};

const NAMES: [&str; 6] = ["user/embedding", "..", "done", "emb.ids", "größe %2F", "a\nb"];

#[test]
fn a_model_has_the_names_and_shapes_of_its_tensors() {
    let job = Job::new(2, 1, Mode::Async);
    let mut client = job.connect(0, 1);
    client.create_table(table("emb")).unwrap();
    client.lookup("emb", &[3, 4], true, &mut [0.0; 6]).unwrap();
    for (number, name) in NAMES.iter().enumerate() {
        let mut spec = dense(name, 6, Rule::Sgd);
        spec.shape = vec![2, 3];
        client.create_dense(spec, &[number as f32; 6]).unwrap();
    }
    client
        .create_dense(dense("scalar", 1, Rule::Sgd), &[9.0])
        .unwrap();
    let folder = tempfile::tempdir().unwrap();
    client.save(folder.path()).unwrap();
    let mut names = NAMES.map(str::to_owned).to_vec();
    names.extend(["emb".to_owned(), "scalar".to_owned()]);
    names.sort();
    assert_eq!(parameters(folder.path()).unwrap(), names);
    let saved = shapes::read(folder.path());
    assert_eq!(saved.len(), 7);
    assert_eq!(saved["user/embedding"], [2, 3]);
    for name in NAMES {
        client.assign(name, &[-1.0; 6], true).unwrap();
    }
    client.load(folder.path()).unwrap();
    for (number, name) in NAMES.iter().enumerate() {
        let mut values = [0.0; 6];
        client.pull(&mut [(name, &mut values)], false).unwrap();
        assert_eq!(values, [number as f32; 6], "{name:?}");
    }
}

#[test]
fn a_model_of_2017_has_plain_names_and_no_shapes() {
    let folder = tempfile::tempdir().unwrap();
    write_parameter(&folder.path().join("100%"), &[1.0, 2.0]).unwrap();
    std::fs::write(folder.path().join("done"), "").unwrap();
    assert_eq!(parameters(folder.path()).unwrap(), ["100%"]);
    let path = parameter_path(folder.path(), "100%");
    assert_eq!(read_parameter(&path).unwrap(), [1.0, 2.0]);
    let job = Job::new(1, 1, Mode::Async);
    let mut client = job.connect(0, 1);
    let mut spec = dense("100%", 2, Rule::Sgd);
    spec.shape = vec![1, 2];
    client.create_dense(spec, &[0.0; 2]).unwrap();
    client.load(folder.path()).unwrap();
}

#[test]
fn a_model_that_does_not_fit_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let job = Job::new(1, 1, Mode::Async);
    let mut client = job.connect(0, 1);
    let load = |client: &mut paddlecloud_pserver::client::Client| {
        client.load(folder.path()).unwrap_err().to_string()
    };
    assert!(load(&mut client).ends_with("is not a complete model: it has no file `done`"));
    client.save(folder.path()).unwrap();
    assert!(load(&mut client).ends_with("this session has no tensors; declare them first"));
    client.create_dense(dense("w", 6, Rule::Sgd), &[0.0; 6]).unwrap();
    client.save(folder.path()).unwrap();
    shapes::write(&folder.path().join("done"), &[("w".into(), vec![2, 3])]).unwrap();
    let told = load(&mut client);
    assert!(
        told.ends_with("its shape is [2, 3], that of `w` is [6]"),
        "{told}"
    );
    write_parameter(&folder.path().join("w"), &[f32::NAN; 6]).unwrap();
    shapes::write(&folder.path().join("done"), &[]).unwrap();
    assert_eq!(load(&mut client), "trainer 0 sent NaN or infinite values for `w`");
}
