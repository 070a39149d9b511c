//! Thousands of files named one by one, as when a shell expands `*.jpg`: they are transferred as their folder would be, with
//! few file descriptors.

use std::fs;
use std::os::unix::fs::symlink;

use e2e::TestEnvironment;

use super::site::Site;
use super::trees::assert_identical;
use super::{arg, noise};

const HOME: &str = "/pfs/cloud/home/ada";

/// Starts what follows with 256 descriptors, as macOS does.
const FEW_DESCRIPTORS: [&str; 4] = ["sh", "-c", "ulimit -n 256 && exec \"$@\"", "sh"];

/// Runs a command as ada with few descriptors; returns how many requests it made.
#[track_caller]
fn run_with_few(env: &TestEnvironment, site: &mut Site<'_>, words: &[&str]) -> u64 {
    let before = site.network().exchanges().requests();
    let config = site.config("ada");
    let line = [&["--config", arg(&config)], words].concat();
    let (status, lines) = env.start_under(&FEW_DESCRIPTORS, "paddlectl", &line).end();
    assert!(status.success(), "{}", lines.join("\n"));
    site.network().exchanges().requests() - before
}

#[test]
fn files_named_one_by_one_are_copied_in_few_requests() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let (tree, back) = (env.folder("tree"), env.folder("back"));
    let names: Vec<String> = (0..1500)
        .map(|number| {
            let path = tree.join(format!("{number}.jpg"));
            fs::write(&path, noise(number, 100)).expect("ours");
            arg(&path).to_owned()
        })
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    // A file that is here already is fetched to where it lies, under the name it has there.
    fs::write(env.folder("elsewhere").join("7"), "old").expect("ours");
    symlink("../elsewhere/7", back.join("7.jpg")).expect("ours");
    let (there, pattern) = (format!("{HOME}/tree/"), format!("{HOME}/tree/*.jpg"));
    let up = [&["cp"][..], &names, &[there.as_str()]].concat();
    let down = ["cp", &pattern, arg(&back)];
    for words in [&up[..], &up, &down, &down] {
        let requests = run_with_few(&env, &mut site, words);
        assert!((2..=20).contains(&requests), "{}: {requests} requests", words[1]);
    }
    assert_identical(&tree, &site.home("ada").join("tree"));
    fs::rename(env.folder("elsewhere").join("7"), back.join("7.jpg")).expect("it replaces the link");
    assert_identical(&tree, &back);
}

#[test]
fn sources_in_more_folders_than_can_be_open_are_copied() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let (tree, back) = (env.folder("tree"), env.folder("back"));
    let (mut folders, mut files) = (Vec::new(), Vec::new());
    for number in 0..300 {
        let folder = tree.join(format!("d{number}"));
        let file = folder.join(format!("f{number}"));
        fs::create_dir(&folder).expect("ours");
        fs::write(&file, noise(number, 100)).expect("ours");
        folders.push(arg(&folder).to_owned());
        files.push(arg(&file).to_owned());
    }
    fn words(list: &[String]) -> impl Iterator<Item = &str> {
        list.iter().map(String::as_str)
    }
    let (flat, trees) = (format!("{HOME}/flat/"), format!("{HOME}/trees/"));
    let named: Vec<&str> = ["cp"].into_iter().chain(words(&files)).chain([&*flat]).collect();
    run_with_few(&env, &mut site, &named);
    let whole = ["cp", "-r"].into_iter().chain(words(&folders)).chain([&*trees]);
    run_with_few(&env, &mut site, &whole.collect::<Vec<_>>());
    assert_identical(&tree, &site.home("ada").join("trees"));

    run_with_few(&env, &mut site, &["cp", &format!("{trees}*"), arg(&back)]);
    assert_identical(&tree, &back);
    let gathered = env.folder("gathered");
    run_with_few(&env, &mut site, &["cp", &format!("{trees}*/f*"), arg(&gathered)]);
    assert_identical(&site.home("ada").join("flat"), &gathered);
}
