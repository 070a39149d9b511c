//! The upload of a package survives cut connections, Ctrl-C and crashes of either side: bytes already received are not resent.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;

use e2e::{Background, LIMIT, TestEnvironment, wait_until};

use super::dice::seed;
use super::network::Way;
use super::site::Site;
use super::trees::assert_identical;
use super::{arg, noise, staged};

const SMALL: usize = 20;
const LARGE: usize = 12 << 20;
/// Bytes of the whole package; a little more goes over the wire.
const WIRE: u64 = (SMALL as u64 + 12) << 20;

/// A package of 20 files of 1 MiB and one of 12 MiB in their midst.
fn plant(folder: &Path) -> PathBuf {
    for number in 0..SMALL {
        let file = folder.join(format!("{number:02}"));
        fs::write(file, noise(number as u64, 1 << 20)).expect("a file can be written");
    }
    fs::write(folder.join("09-large"), noise(77, LARGE)).expect("a file can be written");
    folder.to_owned()
}

fn submit(folder: &Path) -> Vec<&str> {
    submit_as("job", folder)
}

fn submit_as<'a>(name: &'a str, folder: &'a Path) -> Vec<&'a str> {
    let words = ["submit", "-jobname", name, "-pservers", "0", "-cpu", "20m"];
    [&words[..], &["-entry", "true", arg(folder)]].concat()
}

/// The stored package is the folder that was submitted, its job runs, and nothing else is left.
#[track_caller]
fn assert_stored(site: &Site<'_>, folder: &Path) {
    site.run("ada", &["wait", "job"]).ok();
    let stored = stored(site);
    assert_eq!(stored.len(), 1, "{stored:?}");
    assert_identical(folder, &stored[0]);
    assert_eq!(staged(site.storage()), Vec::<PathBuf>::new());
}

fn stored(site: &Site<'_>) -> Vec<PathBuf> {
    let packages = site.home("ada").join(".paddlecloud/packages");
    let entries = fs::read_dir(packages).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.is_dir())
        .collect()
}

/// Waits for something of a package that no longer comes; answers how many bytes of whole files are on the server's disk. What
/// was on its way when a server died is not.
fn wait_for_arrived(site: &Site<'_>) -> u64 {
    wait_until("a good part of the package must be there", || {
        let files = staged(site.storage()).into_iter();
        let whole = files.filter(|path| {
            let size = fs::metadata(path).map_or(0, |meta| meta.len());
            arg(path).contains("/package-") && size == 1 << 20
        });
        let bytes = (whole.count() as u64) << 20;
        (bytes > WIRE / 8).then_some(bytes)
    })
}

/// Only what had not arrived went over the wire, with some lists and requests.
#[track_caller]
fn assert_rest(sent: u64, arrived: u64) {
    let most = WIRE - arrived + (256 << 10);
    assert!(
        sent <= most,
        "{sent} bytes went again although {arrived} of {WIRE} were there"
    );
}

/// The same command again sends the rest, and then all is there.
#[track_caller]
fn assert_resumes(site: &mut Site<'_>, folder: &Path, arrived: u64) {
    let before = site.network().passed(Way::Up);
    site.run("ada", &submit(folder)).ok();
    assert_rest(site.network().passed(Way::Up) - before, arrived);
    assert_stored(site, folder);
}

#[test]
fn a_network_that_cuts_every_connection_only_slows_a_submit() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let folder = plant(&env.folder("package"));
    site.network().cut_after(seed(), 1 << 20..3 << 20);
    site.run("ada", &submit(&folder)).ok();
    let (cuts, up) = (site.network().cuts(), site.network().passed(Way::Up));
    assert!(cuts > 8, "the network cut {cuts} connections only");
    // A cut costs the file that was on its way; chunks of the large file are sent whole twice before they are sent in small ranges.
    let most = 2 * WIRE + cuts * (1 << 20);
    assert!(up < most, "{up} bytes went, {most} would do");
    site.network().heal();
    assert_stored(&site, &folder);
}

#[test]
fn a_submit_survives_flipped_bits() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let folder = plant(&env.folder("package"));
    site.network().flip_bits(Way::Up, 2);
    site.run("ada", &submit(&folder)).ok();
    assert_eq!(site.network().flips(), 2);
    assert_stored(&site, &folder);
}

#[test]
fn an_interrupted_submit_resumes_where_it_stopped() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let folder = plant(&env.folder("package"));
    site.network();
    let client = site.spawn("ada", &submit(&folder));
    let interrupt = client.interrupter();
    site.network().after(WIRE / 2, interrupt);
    let (status, lines) = client.end();
    assert_eq!(status.code(), Some(1), "{}", lines.join("\n"));
    let said = lines.join("\n");
    assert!(said.contains("run the same command again to resume"), "{said}");
    let arrived = wait_for_arrived(&site);
    site.network().heal();

    assert_resumes(&mut site, &folder, arrived);
}

#[test]
fn a_submit_survives_a_killed_server() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let folder = plant(&env.folder("package"));
    site.network();
    let mut client = site.spawn("ada", &submit(&folder));
    let (killer, disconnecter) = (site.server().killer(), site.network().disconnecter());
    // Late enough for a good part to have left all buffers.
    site.network().after(WIRE / 4 * 3, || {
        disconnecter();
        killer();
    });
    wait_until("the server must die or the client be done", || {
        (site.has_ended() || client.has_ended()).then_some(())
    });
    assert!(site.has_ended(), "it died in the middle");
    let arrived = wait_for_arrived(&site);
    let before = site.network().passed(Way::Up);
    site.start_again();
    let (status, lines) = client.end();
    assert!(status.success(), "{}", lines.join("\n"));
    assert_rest(site.network().passed(Way::Up) - before, arrived);
    assert_stored(&site, &folder);
}

#[test]
fn a_killed_submit_resumes_after_a_server_restart() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "  quota: {storage: 40Mi}\n");
    let folder = plant(&env.folder("package"));
    site.network();
    let client = site.spawn("ada", &submit(&folder));
    site.network().after(WIRE / 2, client.killer());
    let (status, _) = client.end();
    assert_eq!(status.code(), None, "it was killed");
    site.stop();
    site.start_again();
    let arrived = wait_for_arrived(&site);
    site.network().heal();

    // With what is there already it would be more than may be stored: that counts once.
    assert_resumes(&mut site, &folder, arrived);
}

/// A package that fits into one pack, and its list into a request.
fn plant_small(folder: &Path) -> PathBuf {
    for number in 0..5 {
        let file = folder.join(number.to_string());
        fs::write(file, noise(number, 100_000)).expect("a file can be written");
    }
    folder.to_owned()
}

/// A site with a client that has logged in, and a small package.
fn site_with_small_package(env: &TestEnvironment) -> (Site<'_>, PathBuf) {
    let mut site = Site::of_ada(env, "");
    site.network();
    site.run("ada", &["whoami"]).ok();
    (site, plant_small(&env.folder("package")))
}

/// Lists, packages and jobs.
const REQUESTS: u64 = 3;

#[test]
fn a_small_package_takes_three_requests_and_a_known_one_takes_one() {
    let env = TestEnvironment::new();
    let (mut site, folder) = site_with_small_package(&env);
    for (name, expected) in [("job", REQUESTS), ("again", 1)] {
        let before = site.network().exchanges().requests();
        site.run("ada", &submit_as(name, &folder)).ok();
        let requests = site.network().exchanges().requests() - before;
        assert_eq!(requests, expected, "{name}");
        // Otherwise the next one may have to wait, and asks why.
        site.run("ada", &["wait", name]).ok();
    }
    assert_stored(&site, &folder);
}

#[test]
fn a_submit_survives_a_server_that_is_killed_before_any_of_its_requests() {
    for request in 1..=REQUESTS {
        let env = TestEnvironment::new();
        let (mut site, folder) = site_with_small_package(&env);
        let (kill, disconnect) = (site.server().killer(), site.network().disconnecter());
        site.network().before_request(request, || {
            disconnect();
            kill();
        });
        let client = site.spawn("ada", &submit(&folder));
        wait_until("the server must die", || site.has_ended().then_some(()));
        site.start_again();
        let (status, lines) = client.end();
        assert!(status.success(), "request {request}: {}", lines.join("\n"));
        assert_stored(&site, &folder);
        assert_eq!(jobs(&site), ["job"], "request {request}");
    }
}

#[test]
fn a_submit_that_is_killed_before_any_of_its_requests_resumes() {
    for request in 1..=REQUESTS {
        let env = TestEnvironment::new();
        let (mut site, folder) = site_with_small_package(&env);
        let (give, take) = channel::<Box<dyn FnOnce() + Send>>();
        site.network().before_request(request, move || {
            let kill = take.recv_timeout(LIMIT).expect("the client is started");
            kill();
        });
        let client = site.spawn("ada", &submit(&folder));
        give.send(Box::new(client.killer())).expect("the network waits");
        let (status, _) = client.end();
        assert_eq!(status.code(), None, "request {request}: it was killed");
        assert_eq!(stored(&site), Vec::<PathBuf>::new(), "request {request}");
        let before = site.network().exchanges().requests();
        site.run("ada", &submit(&folder)).ok();
        let requests = site.network().exchanges().requests() - before;
        // What has arrived is not sent again, and then the first request has all there is to say.
        let expected = if request == REQUESTS { 1 } else { REQUESTS };
        assert_eq!(requests, expected, "request {request}");
        assert_stored(&site, &folder);
        assert_eq!(jobs(&site), ["job"], "request {request}");
    }
}

/// The names of all jobs, ended or not.
fn jobs(site: &Site<'_>) -> Vec<String> {
    let listed = site.run("ada", &["get", "jobs", "-a", "-o", "json"]).ok().json();
    let jobs = listed.as_array().expect("a list").iter();
    jobs.map(|job| job["name"].as_str().expect("a name").to_owned())
        .collect()
}

/// Drops what came, as soon as the server knows that nobody sends it any more.
fn drop_all(site: &Site<'_>) {
    wait_until("what came must be dropped", || {
        let dropped = site.run("ada", &["pfs", "uploads", "--all", "--drop"]);
        (dropped.code == Some(0)).then_some(())
    });
}

#[test]
fn a_partial_package_is_listed_and_can_be_dropped() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "  quota: {storage: 80Mi}\n");
    let folder = plant(&env.folder("package"));
    site.network();
    let submit_and_kill = |site: &mut Site<'_>| {
        let client = site.spawn("ada", &submit(&folder));
        site.network().after(WIRE / 2, client.killer());
        client.end();
        site.network().heal();
        wait_until("something of it must be there", || {
            (!staged(site.storage()).is_empty()).then_some(())
        });
    };
    submit_and_kill(&mut site);
    let listed = site.run("ada", &["pfs", "uploads", "-o", "json"]).ok().json();
    let path = listed[0]["path"].as_str().expect("it is listed").to_owned();
    assert!(path.contains("/.paddlecloud/packages/"), "{path}");
    drop_all(&site);
    assert_eq!(staged(site.storage()), Vec::<PathBuf>::new());

    submit_and_kill(&mut site);
    // 70 MiB fit into 80 only without what is already there.
    let other = env.folder("other");
    for number in 0..7 {
        fs::write(other.join(number.to_string()), noise(900 + number, 10 << 20))
            .expect("a file can be written");
    }
    site.run("ada", &submit(&other))
        .refused(1)
        .says("are used in the home of ada");
    drop_all(&site);
    site.run("ada", &submit(&other)).ok();
    assert_stored(&site, &other);
}

#[test]
fn a_partial_package_counts_towards_the_quota_after_its_rest_was_refused() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "  quota: {storage: 100Mi}\n");
    let folder = plant(&env.folder("package"));
    let client = {
        site.network();
        site.spawn("ada", &submit(&folder))
    };
    site.network().after(WIRE / 3, client.killer());
    client.end();
    site.network().heal();
    wait_for_arrived(&site);
    let data = env.folder("data");
    for (name, size) in [("large", 70 << 20), ("more", 24 << 20)] {
        fs::write(data.join(name), noise(size as u64, size)).expect("a file can be written");
    }
    // The large file fits beside what came, whole the package does not, and more would only without what came.
    let home = "/pfs/cloud/home/ada/";
    site.run("ada", &["cp", arg(&data.join("large")), home]).ok();
    wait_until("the rest of the package must be refused", || {
        let refused = site.run("ada", &submit(&folder));
        (refused.code == Some(1)).then_some(())
    });
    site.run("ada", &["cp", arg(&data.join("more")), home])
        .refused(1)
        .says("are used in the home of ada");
    site.run("ada", &["rm", "/pfs/cloud/home/ada/large"]).ok();
    site.run("ada", &submit(&folder)).ok();
    assert_stored(&site, &folder);
}

/// A submit that stands still in the middle.
fn submit_half(site: &mut Site<'_>, folder: &Path) -> Background {
    site.network();
    let sending = site.spawn("ada", &submit(folder));
    let (report, reached) = channel();
    let freeze = sending.freezer();
    site.network().after(WIRE / 2, move || {
        freeze();
        report.send(()).expect("somebody waits");
    });
    reached.recv_timeout(LIMIT).expect("this many bytes pass");
    sending
}

#[test]
fn a_package_submitted_twice_concurrently_is_stored_once() {
    let env = TestEnvironment::new();
    let mut site = Site::of_ada(&env, "");
    let folder = plant(&env.folder("package"));
    let first = submit_half(&mut site, &folder);
    let before = site.network().exchanges().requests();
    let second = site.spawn("ada", &submit_as("other", &folder));
    wait_until("the second one must have come", || {
        (site.network().exchanges().requests() > before).then_some(())
    });
    first.thaw();
    for client in [first, second] {
        let (status, lines) = client.end();
        assert!(status.success(), "{}", lines.join("\n"));
    }
    // Both may send everything, and a pack is sent again if the other one has completed one of its files meanwhile.
    let up = site.network().passed(Way::Up);
    assert!(up < 3 * WIRE, "{up} bytes went");
    site.run("ada", &["wait", "other"]).ok();
    assert_stored(&site, &folder);
}

#[test]
fn a_package_may_have_the_name_of_a_runs_own_folder() {
    let env = TestEnvironment::new();
    for name in ["output", "latest", "prepared", "rendezvous"] {
        let package = env.package(name).file("say.sh", "pwd > output/where; ls");
        let words = [
            "submit",
            "-pservers",
            "0",
            "-cpu",
            "20m",
            "-entry",
            "sh say.sh",
            package.arg(),
        ];
        env.paddlectl(&words).ok();
        env.paddlectl(&["wait", name]).ok();
        let lines = env.logs(name).join("\n");
        assert!(lines.contains("say.sh"), "{lines}");
        // Under its own name, wherever that leads.
        let who = env.paddlectl(&["whoami", "-o", "json"]).ok().json();
        let home = who["home"].as_str().expect("whoami names the home").to_owned();
        env.paddlectl(&["cat", &format!("{home}/{name}/output/where")])
            .ok()
            .prints(name);
    }
}
