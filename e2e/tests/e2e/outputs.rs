//! `output`: the results of a run, on the user's machine.

use std::fs;
use std::path::Path;

use e2e::TestEnvironment;

/// Every file below a folder, with its text; of logs only the name.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next).expect("a folder").flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(folder).expect("it is below");
            let text = fs::read_to_string(&path).expect("a text");
            let is_log = path.extension().is_some_and(|extension| extension == "log");
            found.push((
                name.display().to_string(),
                if is_log { String::new() } else { text },
            ));
        }
    }
    found.sort();
    found
}

fn expected(model: &str) -> Vec<(String, String)> {
    let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
    vec![
        file("node_0/train.log", ""),
        file("pass-00000/param", &format!("{model}\n")),
    ]
}

#[test]
fn results_are_fetched_into_the_same_folder_however_often() {
    let env = TestEnvironment::new();
    let program = "mkdir output/pass-00000; cat model > output/pass-00000/param; echo saved\n";
    let package = env
        .package("job")
        .file("train.sh", program)
        .file("model", "first\n");
    env.submit("makes", &package, &["-entry", "sh train.sh", "-f"]);
    let id = env.describe("makes")["job"]["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let root = env.home().parent().expect("the test's folder");

    for _ in 0..2 {
        env.paddlectl(&["output", "makes", "model"]).ok();
        assert_eq!(files(&root.join("model")), expected("first"));
    }
    fs::remove_file(root.join("model/pass-00000/param")).expect("it was fetched");
    env.paddlectl(&["output", "makes", "model/"])
        .ok()
        .says("1 file copied, 1 unchanged");
    assert_eq!(files(&root.join("model")), expected("first"));

    let package = package.file("model", "second\n");
    env.submit("makes", &package, &["-entry", "sh train.sh", "-f"]);
    env.paddlectl(&["output"]).ok();
    assert_eq!(files(&root.join("makes-output")), expected("second"));
    env.paddlectl(&["output", &id, "old"]).ok();
    assert_eq!(files(&root.join("old")), expected("first"));
}

#[test]
fn what_cannot_be_fetched_is_said_and_other_files_stay() {
    let env = TestEnvironment::new();
    let package = env.package("job").file("train.sh", "echo saved\n");
    env.submit("makes", &package, &["-entry", "sh train.sh", "-f"]);
    let root = env.home().parent().expect("the test's folder");
    fs::create_dir(root.join("model")).expect("a fresh folder");
    fs::write(root.join("model/mine"), "").expect("a fresh file");
    env.paddlectl(&["output", "makes", "model"])
        .ok()
        .says("note: `model` keeps `mine`, not written by this run");
    assert!(root.join("model/mine").exists() && root.join("model/node_0/train.log").exists());

    env.paddlectl(&["output", "makes", "/pfs/local/home/me/x"])
        .refused(2)
        .says("is not a local folder");
    env.paddlectl(&["output", "makes", "model/mine"]).refused(1);
    env.paddlectl(&["prune", "--all", "--outputs"]).ok();
    let run = env.paddlectl(&["output", "makes"]);
    assert_eq!(run.code, Some(1), "{run}");
}
