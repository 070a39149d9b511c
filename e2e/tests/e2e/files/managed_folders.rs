//! What the server keeps in a home (packages, runs) is not changed by a command, by whatever path it is named: a
//! package's own name, links that a job made, a link to the home.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use e2e::{Ran, TestEnvironment, wait_until};

use super::site::Site;
use super::{arg, noise, plant, staged};

const HOME: &str = "/pfs/cloud/home/ada";

/// A job that makes links of its own, leaves something in its output, and runs until it is killed.
fn running<'a>(env: &'a TestEnvironment) -> (Site<'a>, PathBuf) {
    let site = Site::of_ada(env, "");
    let script = format!(
        "cd {HOME}/job\necho model > output/model\ncd {HOME}\nln -s . all\nln -s .paddlecloud mine\n\
         ln -s . all/own-way\necho linked\nexec tail -f /dev/null\n"
    );
    let package = env
        .package("job")
        .file("train.sh", script)
        .file("lib/util.py", "as it was");
    let words = ["submit", "-jobname", "job", "-pservers", "0", "-cpu", "20m"];
    let more = ["-memory", "32Mi", "-entry", "sh train.sh", package.arg()];
    site.run("ada", &[&words[..], &more].concat()).ok();
    site.spawn("ada", &["logs", "-f", "job"]).wait_for_line("linked");
    let runs = site.home("ada").join(".paddlecloud/runs");
    let run = fs::read_dir(runs).expect("there is a run").next();
    (site, run.expect("there is a run").expect("it can be read").path())
}

fn end(site: &Site<'_>) {
    site.run("ada", &["kill", "job"]).ok();
    site.run("ada", &["wait", "job"]).says("job Killed");
}

/// Every path below a folder with what is there, except what the job itself prints, which keeps growing.
fn picture(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut picture = BTreeMap::new();
    for entry in fs::read_dir(folder).expect("it is a folder").flatten() {
        let (path, kind) = (entry.path(), entry.file_type().expect("it is there"));
        let text = match (kind.is_dir(), kind.is_symlink()) {
            (true, _) if entry.file_name().to_string_lossy().starts_with("node_") => continue,
            (true, _) => {
                picture.extend(self::picture(&path));
                "a folder".to_owned()
            }
            (_, true) => format!("{:?}", fs::read_link(&path).expect("it is a link")),
            _ => String::from_utf8_lossy(&fs::read(&path).expect("it is a file")).into_owned(),
        };
        picture.insert(path, text);
    }
    picture
}

#[track_caller]
fn refused(ran: Ran, why: &str) {
    assert_ne!(ran.code, Some(0), "{ran}");
    assert!(ran.stderr.contains(why), "{ran}");
}

/// All names of the folder that the running job works in.
fn names_of(run: &Path) -> Vec<String> {
    let id = run.file_name().expect("it has a name").to_string_lossy();
    let folder = format!(".paddlecloud/runs/{id}/job");
    vec![
        format!("{HOME}/job"),
        format!("{HOME}/{folder}"),
        format!("{HOME}/mine/runs/{id}/job"),
        format!("{HOME}/all/own-way/job"),
    ]
}

#[test]
fn the_files_of_a_running_job_cannot_be_changed_by_any_path() {
    let env = TestEnvironment::new();
    let (site, run) = running(&env);
    let here = env.folder("here");
    plant(
        &here,
        &[
            ("small", "planted"),
            ("tree/a", "planted"),
            ("tree/lib/util.py", "planted"),
        ],
    );
    fs::write(here.join("large"), noise(7, 3 << 20)).expect("a file in the test's own folder");
    site.run("ada", &["cp", "-r", arg(&here), &format!("{HOME}/own")])
        .ok();
    let kept = site.home("ada").join(".paddlecloud");
    let before = picture(&kept);
    let (small, large, tree) = (here.join("small"), here.join("large"), here.join("tree"));
    let own = |name: &str| format!("{HOME}/own/{name}");
    for folder in names_of(&run) {
        let at = |name: &str| format!("{folder}/{name}");
        for words in [
            // One that is there and one that is not; as a pack and in chunks; from here and from there.
            vec!["cp", arg(&small), &at("train.sh")],
            vec!["cp", arg(&small), &at("new")],
            vec!["cp", arg(&large), &at("output/model")],
            vec!["cp", arg(&large), &at("new/deep/er")],
            vec!["cp", "-r", arg(&tree), &at("lib")],
            vec!["sync", "--delete", arg(&tree), &folder],
            vec!["cp", &own("small"), &at("train.sh")],
            vec!["cp", "-r", &own("tree"), &at("output")],
            vec!["mv", &own("small"), &at("train.sh")],
            vec!["mv", "-n", &own("tree"), &at("new")],
            vec!["mkdir", "-p", &at("new/deep")],
        ] {
            refused(site.run("ada", &words), "managed by the server");
        }
        for words in [
            vec!["rm", "-r", &at("output")],
            vec!["rm", &at("train.sh")],
            vec!["mv", &at("output/model"), &own("model")],
        ] {
            refused(site.run("ada", &words), "belongs to a job that has not ended");
        }
    }
    assert_eq!(picture(&kept), before);
    assert!(staged(site.storage()).is_empty(), "nothing half-sent stays");
    end(&site);
}

#[test]
fn the_servers_own_folder_cannot_be_changed_by_any_path() {
    let env = TestEnvironment::new();
    let (site, _) = running(&env);
    let here = env.folder("here");
    plant(
        &here,
        &[
            ("small", "planted"),
            ("home/.paddlecloud/planted", "planted"),
            ("home/other", "stored"),
        ],
    );
    let kept = site.home("ada").join(".paddlecloud");
    let before = picture(&kept);
    let small = here.join("small");
    for folder in ["mine", "all/.paddlecloud", "all/all/mine", ".paddlecloud"] {
        let at = |name: &str| format!("{HOME}/{folder}{name}");
        for words in [
            vec!["rm", "-r", &at("/packages")],
            vec!["rm", "-r", &at("/runs")],
            vec!["mv", &at("/latest"), &at("/other")],
            vec!["mv", &at("/latest"), &format!("{HOME}/latest")],
            vec!["cp", arg(&small), &at("/packages/planted")],
            vec!["mkdir", &at("/new")],
        ] {
            refused(site.run("ada", &words), "managed by the server");
        }
    }
    for name in ["all/.paddlecloud", "all/all/.paddlecloud"] {
        let at = format!("{HOME}/{name}");
        refused(site.run("ada", &["rm", "-r", &at]), "managed by the server");
        refused(
            site.run("ada", &["mv", &at, &format!("{HOME}/taken")]),
            "managed by the server",
        );
    }
    // Entries of a pack that would be stored there are reported and left out; the rest is stored.
    let contents = format!("{}/.", arg(&here.join("home")));
    let copied = site.run("ada", &["cp", "-r", &contents, &format!("{HOME}/all")]);
    refused(copied, "managed by the server");
    assert!(site.home("ada").join("other").exists());
    let planted = format!("{HOME}/mine/packages/planted");
    for change in [
        format!(r#"{{"method":"touch","path":"{planted}","filesize":0}}"#),
        format!(r#"{{"method":"touch","path":"{planted}","filesize":7}}"#),
        format!(r#"{{"method":"mkdir","path":["{planted}"]}}"#),
        format!(r#"{{"method":"rm","path":["{HOME}/mine/packages"],"r":true}}"#),
    ] {
        let said = old_client(&site, &change);
        assert!(said.contains("managed by the server"), "{change}: {said}");
    }
    assert_eq!(picture(&kept), before);
    end(&site);
}

/// A change as the original asked for it; answers what is wrong with it.
fn old_client(site: &Site<'_>, change: &str) -> String {
    let output = Command::new("curl")
        .args(["-sS", "-f", "-u", "ada:secret of ada", "-d", change])
        .arg(format!("http://{}/api/v1/pfs/files", site.endpoint()))
        .output()
        .expect("there is a curl");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn a_packages_name_can_be_read_and_removed_and_an_ended_runs_output_moved() {
    let env = TestEnvironment::new();
    let (site, run) = running(&env);
    let back = env.folder("back");
    let run_ada = |words: &[&str]| site.run("ada", words).ok();
    let output = format!("{HOME}/job/output/model");
    assert_eq!(run_ada(&["cat", &output]).stdout, "model\n");
    run_ada(&["cp", &format!("{HOME}/job"), arg(&back)]);
    assert_eq!(
        fs::read_to_string(back.join("job/output/model")).unwrap(),
        "model\n"
    );
    run_ada(&["cp", "-r", &format!("{HOME}/job"), &format!("{HOME}/copy")]);
    run_ada(&[
        "cp",
        arg(&back.join("job/train.sh")),
        &format!("{HOME}/all/copy/train.sh"),
    ]);
    run_ada(&["mkdir", "-p", &format!("{HOME}/job")]);
    end(&site);

    run_ada(&["cp", &output, &format!("{HOME}/copy/model")]);
    run_ada(&["mv", &output, &format!("{HOME}/model")]);
    assert_eq!(run_ada(&["cat", &format!("{HOME}/model")]).stdout, "model\n");
    let small = back.join("job/train.sh");
    refused(
        site.run("ada", &["cp", arg(&small), &output]),
        "managed by the server",
    );
    run_ada(&["rm", &format!("{HOME}/all/job/lib/util.py")]);
    assert!(!run.join("job/lib/util.py").exists());
    run_ada(&["rm", &format!("{HOME}/job")]);
    assert!(fs::symlink_metadata(site.home("ada").join("job")).is_err());
    assert!(run.join("job/train.sh").exists(), "the name alone went");
}

#[test]
fn a_sync_into_an_ended_run_is_refused_before_anything_is_deleted() {
    let env = TestEnvironment::new();
    let (site, run) = running(&env);
    end(&site);
    let here = env.folder("here");
    plant(
        &here,
        &[("new", "planted"), ("home/.paddlecloud/runs/new", "planted")],
    );
    let own = format!("{HOME}/own");
    site.run("ada", &["sync", arg(&here), &own]).ok();
    let kept = site.home("ada").join(".paddlecloud");
    let before = picture(&kept);
    let mut folders = names_of(&run);
    folders.extend(
        ["mine/runs", ".paddlecloud/runs", "all/mine", "job/new"].map(|name| format!("{HOME}/{name}")),
    );
    for folder in folders {
        for source in [arg(&here), &own] {
            for flags in [&["--delete"][..], &["--delete", "--dry-run"], &[]] {
                let ran = site.run("ada", &[&["sync"], flags, &[source, &folder]].concat());
                assert_eq!(ran.stdout, "", "{ran}");
                refused(ran, "managed by the server");
                assert_eq!(picture(&kept), before, "{source} to {folder}");
            }
        }
    }
    // A link to the home is the home: what the server keeps there takes no part.
    let home = arg(&here.join("home")).to_owned();
    let ran = site.run("ada", &["sync", "--delete", &home, &format!("{HOME}/all")]);
    assert_eq!(picture(&kept), before, "{ran}");
    // To read is another matter.
    let back = env.folder("back");
    site.run("ada", &["sync", &format!("{HOME}/.paddlecloud/runs"), arg(&back)])
        .ok();
}

#[test]
#[ignore = "needs root"]
fn a_home_is_synced_without_the_servers_own_folder_even_if_unreadable() {
    let env = TestEnvironment::new();
    let site = super::ordinary_user::site(&env);
    let data = env.folder("data");
    plant(&data, &[("a", "1"), (".paddlecloud/planted", "")]);
    let home = site.home("ada");
    site.run("ada", &["sync", "--delete", arg(&data), HOME]).ok();
    fs::remove_dir_all(data.join(".paddlecloud")).expect("it is the test's own");
    let locked = home.join(".paddlecloud/runs/locked");
    fs::create_dir_all(&locked).expect("root may");
    fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).expect("root may");
    super::make_pipe(&home.join(".paddlecloud/pipe"));
    std::os::unix::fs::symlink(".", home.join("all")).expect("root may");
    std::os::unix::fs::symlink(".", data.join("all")).expect("it is the test's own");
    for (number, name) in [HOME.to_owned(), format!("{HOME}/all")].iter().enumerate() {
        let back = env.folder(&format!("back-{number}"));
        plant(&back, &[("extra", "")]);
        let synced = site.run("ada", &["sync", "--delete", name, arg(&back)]).ok();
        assert!(!synced.stderr.contains(".paddlecloud"), "{synced}");
        super::assert_same(&data, &back);
        plant(&back, &[(".paddlecloud/planted", "")]);
        for source in [&back, &data] {
            site.run("ada", &["sync", "--delete", arg(source), name]).ok();
        }
        site.run("ada", &["check", arg(&data), name]).ok();
    }
    assert!(locked.exists() && !home.join(".paddlecloud/planted").exists());
}

#[test]
fn a_folder_is_not_copied_or_moved_into_itself_through_a_link() {
    let env = TestEnvironment::new();
    let (site, _) = running(&env);
    let here = env.folder("here");
    plant(&here, &[("d/a", "1"), ("d/sub/b", "2")]);
    let at = |name: &str| format!("{HOME}/{name}");
    site.run("ada", &["cp", "-r", arg(&here.join("d")), &at("d")])
        .ok();
    std::os::unix::fs::symlink("d", site.home("ada").join("l")).expect("root may write anywhere");
    for words in [
        vec!["cp", "-r", &at("all"), &at("copy")],
        vec!["cp", "-r", &at("d"), &at("l/copy")],
        vec!["cp", "-r", &at("l"), &at("d/copy")],
        vec!["mv", &at("d"), &at("l/new")],
        vec!["mv", "-n", &at("d"), &at("l/new")],
        vec!["mv", "-n", &at("d"), &at("all/d/sub/new")],
    ] {
        refused(site.run("ada", &words), "into itself");
    }
    let home = site.home("ada");
    for name in ["copy", "d/copy", "d/new", "d/sub/new"] {
        assert!(!home.join(name).exists(), "{name} stays away");
    }
    wait_until("nothing half-made stays", || {
        staged(site.storage()).is_empty().then_some(())
    });
    let listed = site.run("ada", &["ls", "-r", "-a", &at("all")]).ok().stdout;
    assert!(!listed.contains(".pfs-staging"), "{listed}");
    end(&site);
}

#[test]
fn a_second_server_for_the_same_storage_is_refused_and_removes_nothing() {
    let env = TestEnvironment::new();
    let (site, run) = running(&env);
    let folder = env.folder("server");
    let config = fs::read_to_string(folder.join("config.yaml")).expect("the first one's");
    let (data, storage) = (arg(site.data()).to_owned(), arg(site.storage()).to_owned());
    let other = config.replace(
        &format!("data: {data}\n"),
        &format!("data: {}\nstorage: {storage}\n", arg(&folder.join("other"))),
    );
    assert_ne!(other, config);
    let file = folder.join("other.yaml");
    fs::write(&file, other).expect("a file in the test's own folder");
    let second = env.run("paddlecloud-server", &["--config", arg(&file)]);
    refused(second, "another server (process ");
    assert!(run.join("job/train.sh").exists(), "the first one's run stays");
    end(&site);
}
