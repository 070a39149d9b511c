//! `sync`: one folder becomes like the other.

use std::fs;

use e2e::TestEnvironment;

use super::{arg, assert_same, home, plant};

#[test]
fn a_synced_folder_is_the_same_and_extra_files_go_only_when_asked() {
    let env = TestEnvironment::new();
    let (data, back) = (env.folder("data"), env.folder("back"));
    plant(&data, &[("a", "1"), ("sub/b", "2"), ("old/c", "3")]);
    let remote = format!("{}/mirror", home(&env));
    env.paddlectl(&["sync", arg(&data), &remote])
        .ok()
        .says("3 files copied");
    env.paddlectl(&["sync", arg(&data), &remote])
        .ok()
        .says("0 files copied, 3 unchanged");

    fs::remove_dir_all(data.join("old")).unwrap();
    plant(&data, &[("a", "11")]);
    env.paddlectl(&["sync", arg(&data), &remote]).ok();
    env.paddlectl(&["check", arg(&data), &remote])
        .prints("only right\told/c");

    let dry = ["sync", "--delete", "--dry-run", arg(&data), &remote];
    let foreseen = env.paddlectl(&dry).ok();
    assert_eq!(foreseen.stdout, format!("delete {remote}/old\n"));
    env.paddlectl(&["sync", "--delete", arg(&data), &remote])
        .ok()
        .says("1 removed");
    env.paddlectl(&["check", arg(&data), &remote]).ok();

    plant(&back, &[("stray", ""), ("a/is/a/folder/here", "")]);
    env.paddlectl(&["sync", "--delete", &remote, arg(&back)]).ok();
    assert_same(&data, &back);
}

#[test]
fn a_folder_that_holds_something_goes_only_when_asked() {
    let env = TestEnvironment::new();
    let (data, theirs) = (env.folder("data"), env.folder("theirs"));
    plant(&data, &[("x", "a file here"), ("y", "new")]);
    plant(&theirs, &[("x/precious", "a folder there")]);
    let remote = format!("{}/mirror", home(&env));
    let other = format!("{}/other", home(&env));
    env.paddlectl(&["sync", arg(&theirs), &remote]).ok();
    let in_the_way = "a folder that is not empty is in its place";
    env.paddlectl(&["sync", arg(&data), &remote])
        .refused(1)
        .says(in_the_way)
        .says("--delete");
    let left = env.paddlectl(&["ls", "-r", &remote]).ok().stdout;
    assert_eq!(left, "x\nx/precious\ny\n", "the rest went");

    env.paddlectl(&["sync", arg(&data), &other]).ok();
    env.paddlectl(&["sync", &other, arg(&theirs)])
        .refused(1)
        .says(in_the_way);
    assert!(theirs.join("x/precious").exists() && theirs.join("y").exists());
    env.paddlectl(&["sync", &other, &remote])
        .refused(1)
        .says(in_the_way);
    let left = env.paddlectl(&["ls", "-r", &remote]).ok().stdout;
    assert_eq!(left, "x\nx/precious\ny\n");

    env.paddlectl(&["sync", "--delete", arg(&data), &remote]).ok();
    assert_eq!(env.paddlectl(&["ls", "-r", &remote]).ok().stdout, "x\ny\n");
}

#[test]
fn on_the_cluster_contents_are_compared_and_links_stay_links() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("f", "one"), ("d/g", "2")]);
    std::os::unix::fs::symlink("f", data.join("l")).unwrap();
    std::os::unix::fs::symlink("d", data.join("m")).unwrap();
    let (from, to) = (format!("{}/from", home(&env)), format!("{}/to", home(&env)));
    env.paddlectl(&["sync", arg(&data), &from]).ok();
    env.paddlectl(&["sync", &from, &to]).ok().says("4 files copied");
    let storage = super::server_data(&env).join("local/storage");
    let path_of = |path: &str| {
        let inside = path.rsplit_once("/home/").expect("it lies in a home").1;
        storage.join("home").join(inside)
    };
    assert_same(&data, &path_of(&to));

    // The same size and time, other bytes: only contents tell.
    let (mine, theirs) = (path_of(&from).join("f"), path_of(&to).join("f"));
    let time = fs::metadata(&theirs).unwrap().modified().unwrap();
    fs::write(&mine, "two").unwrap();
    fs::File::options()
        .write(true)
        .open(&mine)
        .unwrap()
        .set_modified(time)
        .unwrap();
    env.paddlectl(&["sync", &from, &to]).ok().says("0 files copied");
    env.paddlectl(&["sync", "--checksum", &from, &to])
        .ok()
        .says("1 file copied");
    assert_eq!(fs::read(&theirs).unwrap(), b"two");
}

#[test]
fn what_is_excluded_is_neither_sent_nor_deleted() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a", "1"), ("x.log", "mine")]);
    let remote = format!("{}/mirror", home(&env));
    let theirs = env.folder("theirs");
    plant(
        &theirs,
        &[("y.log", "theirs"), ("gone/z", ""), ("gone/z.log", "")],
    );
    env.paddlectl(&["sync", arg(&theirs), &remote]).ok();
    let line = ["sync", "--delete", "--exclude", "*.log", arg(&data), &remote];
    env.paddlectl(&line).ok();
    let left = env.paddlectl(&["ls", "-r", &remote]).ok().stdout;
    assert_eq!(left, "a\ngone\ngone/z.log\ny.log\n");
}

#[test]
fn a_whole_home_is_synced_without_what_the_server_keeps_there() {
    let env = TestEnvironment::new();
    let package = env.package("job").file("train.sh", "echo done\n");
    env.submit("once", &package, &["-entry", "sh train.sh"]);
    env.paddlectl(&["wait", "once"]).ok();
    let (data, back, home) = (env.folder("data"), env.folder("back"), home(&env));
    plant(&data, &[("a", "1"), ("sub/b", "2")]);
    env.paddlectl(&["mkdir", &format!("{home}/extra")]).ok();
    // The package's name leads to its latest run and is the user's to remove.
    let words = ["sync", "--delete", "--dry-run", arg(&data), &home];
    let foreseen = env.paddlectl(&words).ok();
    assert!(foreseen.stdout.contains("extra"), "{foreseen}");
    assert!(!foreseen.stdout.contains(".paddlecloud"), "{foreseen}");
    env.paddlectl(&["sync", "--delete", arg(&data), &home]).ok();
    env.paddlectl(&["check", arg(&data), &home]).ok();
    env.paddlectl(&["ls", &format!("{home}/.paddlecloud")])
        .ok()
        .prints("runs");
    env.paddlectl(&["sync", &home, arg(&back)]).ok();
    assert_same(&data, &back);

    // Somebody's copy of a whole home can go back into one.
    plant(&back, &[(".paddlecloud/latest", "not ours")]);
    env.paddlectl(&["cp", "-r", &format!("{}/.", arg(&back)), &home])
        .ok()
        .says("the server keeps that folder itself");
    env.paddlectl(&["sync", "--delete", arg(&back), &home]).ok();
    env.paddlectl(&["sync", "--delete", &home, arg(&back)]).ok();
    assert!(back.join(".paddlecloud/latest").exists());
}

#[test]
fn two_folders_of_the_cluster_are_synced_there() {
    let env = TestEnvironment::new();
    let data = env.folder("data");
    plant(&data, &[("a", "1"), ("sub/b", "2")]);
    let home = home(&env);
    let (one, two) = (format!("{home}/one"), format!("{home}/two"));
    env.paddlectl(&["sync", arg(&data), &one]).ok();
    env.paddlectl(&["sync", &one, &two]).ok().says("2 files copied");
    env.paddlectl(&["sync", &one, &two])
        .ok()
        .says("0 files copied, 2 unchanged");
    env.paddlectl(&["rm", &format!("{one}/a")]).ok();
    env.paddlectl(&["sync", "--delete", &one, &two])
        .ok()
        .says("1 removed");
    env.paddlectl(&["check", &one, &two]).ok();
    env.paddlectl(&["sync", &one, &format!("{one}/sub")]).refused(1);
}
