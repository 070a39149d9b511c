//! A disk that returns wrong bytes for an unchanged file: `fsck` distinguishes such damage from changes.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use e2e::{TestEnvironment, wait_until};

use super::site::Site;
use super::{arg, noise};

const ADMIN: &str = "  admin: true\n";

/// A real file system on a device whose bytes a test can reach past the kernel's back.
struct Platter {
    at: PathBuf,
    device: String,
    is_mounted: bool,
}

fn run(program: &str, words: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(words)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success().then_some(text)
}

impl Platter {
    fn mount(at: PathBuf, image: &Path) -> Self {
        let file = fs::File::create(image).expect("a file in the test's own folder");
        file.set_len(96 << 20).expect("it may be sparse");
        let ready = run("mkfs.ext4", &["-q", "-F", arg(image)])
            .and_then(|_| run("losetup", &["--find", "--show", arg(image)]));
        let mut platter = Self {
            at,
            device: ready.expect("the test needs a loop device"),
            is_mounted: false,
        };
        platter.turn_on();
        platter
    }

    fn turn_on(&mut self) {
        run("mount", &[&self.device, arg(&self.at)]).expect("a fresh file system can be mounted");
        self.is_mounted = true;
    }

    /// The disk may stay mounted in the namespace of another test's job: then `umount` writes nothing.
    fn turn_off(&mut self) {
        run("sync", &["-f", arg(&self.at)]).expect("what is written can be synced");
        run("umount", &[arg(&self.at)]).expect("nobody uses it any more");
        self.is_mounted = false;
    }

    /// Flips one bit of these bytes on the disk; the file system does not notice.
    fn flip_where(&self, bytes: &[u8]) {
        run("blockdev", &["--flushbufs", &self.device]).expect("root may read the disk itself");
        let mut disk = fs::File::options()
            .read(true)
            .write(true)
            .open(&self.device)
            .expect("root may open a device");
        let mut all = Vec::new();
        disk.read_to_end(&mut all).expect("it can be read");
        let found = all.windows(bytes.len()).position(|window| window == bytes);
        let offset = found.expect("the content lies on the disk") as u64;
        disk.seek(SeekFrom::Start(offset)).expect("it was found there");
        disk.write_all(&[bytes[0] ^ 1]).expect("it can be written");
        disk.sync_all().expect("it can be written");
    }
}

/// Makes the kernel read a file again whose bits were flipped: what it has at hand is not what the disk has any more.
fn assert_damaged_on_disk(file: &Path, before: &[u8]) {
    let input = format!("if={}", arg(file));
    run("dd", &[&input, "of=/dev/null", "iflag=nocache", "count=0"])
        .expect("the kernel can be made to read it again");
    let now = fs::read(file).expect("it can be read");
    assert!(now != before, "the disk lies: {}", file.display());
}

impl Drop for Platter {
    fn drop(&mut self) {
        if self.is_mounted {
            run("umount", &["-l", arg(&self.at)]);
        }
        run("losetup", &["-d", &self.device]);
    }
}

#[test]
#[ignore = "needs a loop device"]
fn damage_is_distinguished_from_changes_and_never_served_as_sound() {
    let env = TestEnvironment::new();
    let storage = env.folder("storage");
    let image = env.folder("images").join("disk");
    let mut platter = Platter::mount(storage.clone(), &image);
    let settings = format!("storage: {}\n", arg(&storage));
    let mut site = Site::with(&env, &[("ada", ADMIN)], &settings, &[]);
    let data = env.folder("data");
    for (seed, name) in ["sound", "changed", "removed", "damaged", "touched"]
        .iter()
        .enumerate()
    {
        fs::write(data.join(name), noise(200 + seed as u64, 9 << 20)).unwrap();
    }
    // Small files travel in packs; these are known all the same.
    for (seed, name) in ["small-damaged", "small-sound"].iter().enumerate() {
        fs::write(data.join(name), noise(300 + seed as u64, 20_000)).unwrap();
    }
    site.run(
        "ada",
        &["cp", "-r", &format!("{}/.", arg(&data)), "/pfs/cloud/home/ada/"],
    )
    .ok();
    site.run("ada", &["pfs", "fsck"])
        .ok()
        .says("7 files read, none damaged");

    // What the service itself replaced, moved and removed is known also to a server that had no time to save anything.
    fs::write(data.join("damaged"), noise(210, 9 << 20)).unwrap();
    let at_home = |name: &str| format!("/pfs/cloud/home/ada/{name}");
    for words in [
        ["cp", arg(&data.join("damaged")), &at_home("damaged")],
        ["cp", arg(&data.join("damaged")), &at_home("brief")],
        ["mv", &at_home("sound"), &at_home("moved")],
        ["mv", &at_home("moved"), &at_home("sound")],
    ] {
        site.run("ada", &words).ok();
    }
    site.run("ada", &["rm", &at_home("brief")]).ok();
    site.server().killer()();
    site.start_again();
    site.run("ada", &["pfs", "fsck"])
        .ok()
        .says("7 files read, none damaged");
    fs::write(data.join("damaged"), noise(211, 9 << 20)).unwrap();
    site.run("ada", &["cp", arg(&data.join("damaged")), &at_home("damaged")])
        .ok();
    site.server().killer()();
    wait_until("the server must be gone", || site.has_ended().then_some(()));
    let home = site.home("ada");
    fs::write(home.join("changed"), "a job wrote this").unwrap();
    fs::remove_file(home.join("removed")).unwrap();
    fs::File::options()
        .write(true)
        .open(home.join("touched"))
        .unwrap()
        .set_modified(std::time::SystemTime::now())
        .unwrap();
    platter.turn_off();
    let content = fs::read(data.join("damaged")).unwrap();
    platter.flip_where(&content[5 << 20..][..4096]);
    let small = fs::read(data.join("small-damaged")).unwrap();
    platter.flip_where(&small[8192..][..4096]);
    platter.turn_on();
    assert_damaged_on_disk(&home.join("damaged"), &content);
    assert_damaged_on_disk(&home.join("small-damaged"), &small);
    site.start_again();

    let found = site.run("ada", &["pfs", "fsck"]);
    assert_eq!(found.code, Some(1), "{found}");
    assert_eq!(
        found.stdout,
        "FOUND\tPATH\nchanged outside\thome/ada/changed\ndamaged\thome/ada/damaged\n\
         removed outside\thome/ada/removed\ndamaged\thome/ada/small-damaged\ntouched\thome/ada/touched\n"
    );
    let back = env.folder("back");
    let fetch = |name: &str| {
        let remote = format!("/pfs/cloud/home/ada/{name}");
        site.run("ada", &["cp", &remote, arg(&back.join(name))])
    };
    fetch("sound").ok();
    fetch("damaged")
        .refused(1)
        .says("damaged")
        .says("/pfs/cloud/home/ada/damaged");
    assert!(!back.join("damaged").exists(), "it is not handed out as sound");
    fetch("small-sound").ok();
    fetch("small-damaged")
        .refused(1)
        .says("damaged")
        .says("/pfs/cloud/home/ada/small-damaged");
    assert!(!back.join("small-damaged").exists());
    site.run("ada", &["cat", "/pfs/cloud/home/ada/sound"]).ok();
    let printed = site.run("ada", &["cat", "/pfs/cloud/home/ada/damaged"]);
    assert_eq!(printed.code, Some(1), "its end comes with an error");
    printed.says("the disk is damaged");
    let check = site.run("ada", &["check", arg(&data), "/pfs/cloud/home/ada"]);
    assert_eq!(check.code, Some(1), "{check}");

    // Uploaded again, it is intact.
    site.run("ada", &["rm", "/pfs/cloud/home/ada/damaged"]).ok();
    let whole = data.join("damaged");
    site.run("ada", &["cp", arg(&whole), "/pfs/cloud/home/ada/damaged"])
        .ok();
    fetch("damaged").ok();
    assert!(fs::read(back.join("damaged")).unwrap() == content);
    site.stop();
}

/// How each command reports a small file that the disk has changed.
fn assert_damage_is_reported(site: &Site, env: &TestEnvironment, link: &str) {
    let (tree, remote) = ("/pfs/cloud/home/ada/tree", "/pfs/cloud/home/ada/tree/sub/bad");
    let sentence = "its bytes on the server's disk differ from those that were stored; the disk is damaged";
    let back = env.folder("back");
    fs::remove_dir_all(&back).expect("it is the test's own");
    fs::create_dir_all(back.join("tree/sub")).expect("it is the test's own");
    fs::write(back.join("tree/sub/bad"), "an earlier one").expect("it is the test's own");
    let whole = site.run("ada", &["cp", "-r", tree, arg(&back)]).refused(1);
    whole.says(remote).says(sentence).says("1 failed");
    assert_eq!(
        fs::read(back.join("tree/sub/bad")).expect("it was there before"),
        b"an earlier one",
        "what is here stays"
    );
    for index in 0..40 {
        let name = format!("sub/{index}");
        let (sent, came) = (env.folder("data").join(&name), back.join("tree").join(&name));
        let [sent, came] = [sent, came].map(|path| fs::read(path).expect("it was sent and came"));
        assert_eq!(came, sent, "{name}");
    }
    assert!(!back.join("tree/.pfs-staging").exists());

    let alone = back.join("alone");
    site.run("ada", &["cp", remote, arg(&alone)])
        .refused(1)
        .says(remote)
        .says(sentence);
    assert!(!alone.exists());
    let printed = site.run("ada", &["cat", remote]).refused(1);
    assert_eq!(printed.stdout, "");
    printed.says(remote).says(sentence);
    let (_, token) = link.split_once("/api/").expect("a link has a path");
    let link = format!("http://{}/api/{}", site.endpoint(), token.trim());
    let read = run("curl", &["-sS", &link]).expect("there is a curl");
    assert!(read.contains(sentence) && !read.contains("home/ada"), "{read}");
    site.run("ada", &["stat", "--digest", remote])
        .refused(1)
        .says(sentence);
}

#[test]
#[ignore = "needs a loop device"]
fn a_damaged_small_file_is_reported_by_every_command_that_reads_it() {
    let env = TestEnvironment::new();
    let storage = env.folder("storage");
    let image = env.folder("images").join("disk");
    let platter = Platter::mount(storage.clone(), &image);
    let settings = format!("storage: {}\n", arg(&storage));
    let mut site = Site::with(&env, &[("ada", ADMIN)], &settings, &[]);
    let data = env.folder("data");
    fs::create_dir_all(data.join("sub")).unwrap();
    for index in 0..40 {
        fs::write(data.join(format!("sub/{index}")), noise(400 + index, 9_000)).unwrap();
    }
    let content = noise(500, 20_000);
    fs::write(data.join("sub/first"), &content).unwrap();
    fs::write(data.join("sub/rewritten"), noise(501, 20_000)).unwrap();
    let (first, tree) = ("/pfs/cloud/home/ada/first", "/pfs/cloud/home/ada/tree");
    site.run("ada", &["cp", "-r", &format!("{}/.", arg(&data)), first])
        .ok();
    // What is known of files goes with them.
    site.run("ada", &["mv", first, tree]).ok();
    let bad = format!("{tree}/sub/bad");
    site.run("ada", &["mv", &format!("{tree}/sub/first"), &bad]).ok();
    let link = site.run("ada", &["publish", &bad]).ok().stdout;
    site.run("ada", &["cat", &bad]).ok();

    // A job writes another content of the same length: that is its right, and nothing is wrong with it.
    let own = noise(502, 20_000);
    let home = site.home("ada").join("tree/sub");
    fs::write(home.join("rewritten"), &own).unwrap();
    run("sync", &["-f", arg(&home)]).expect("what is written can be synced");
    platter.flip_where(&content[8192..][..4096]);
    assert_damaged_on_disk(&home.join("bad"), &content);
    assert_damage_is_reported(&site, &env, &link);
    assert_eq!(
        fs::read(env.folder("back").join("tree/sub/rewritten")).unwrap(),
        own
    );

    site.stop();
    site.start_again();
    assert_damage_is_reported(&site, &env, &link);
    site.run("ada", &["cat", &format!("{tree}/sub/rewritten")]).ok();

    // The right content is sent again although size and time are the same.
    let found = site.run("ada", &["pfs", "fsck"]);
    found.says("damaged");
    site.run("ada", &["cp", "--checksum", arg(&data.join("sub/first")), &bad])
        .ok();
    let back = env.folder("back").join("bad");
    site.run("ada", &["cp", &bad, arg(&back)]).ok();
    assert_eq!(fs::read(back).unwrap(), content);
    site.stop();
}

/// Files that were sent and that the disk changed afterwards, the last of them not.
const SENT: [(&str, usize); 5] = [
    ("large", 9 << 20),
    ("other-large", 9 << 20),
    ("other-small", 20_000),
    ("small", 20_000),
    ("sound", 9 << 20),
];
const REMOTE: &str = "/pfs/cloud/home/ada/d";

/// A server whose disk has changed all [`SENT`] files but the last.
fn with_damaged_files(env: &TestEnvironment) -> (Site<'_>, Platter) {
    let storage = env.folder("storage");
    let mut platter = Platter::mount(storage.clone(), &env.folder("images").join("disk"));
    let settings = format!("storage: {}\n", arg(&storage));
    let mut site = Site::with(env, &[("ada", ADMIN)], &settings, &[]);
    let data = env.folder("data");
    for (seed, (name, size)) in SENT.into_iter().enumerate() {
        fs::write(data.join(name), noise(600 + seed as u64, size)).expect("it is the test's own");
    }
    site.run("ada", &["cp", "-r", arg(&data), REMOTE]).ok();
    site.stop();
    platter.turn_off();
    for (name, _) in &SENT[..4] {
        let content = fs::read(data.join(name)).expect("it was written above");
        platter.flip_where(&content[8192..][..4096]);
    }
    platter.turn_on();
    for (name, _) in &SENT[..4] {
        let content = fs::read(data.join(name)).expect("it was written above");
        assert_damaged_on_disk(&site.home("ada").join("d").join(name), &content);
    }
    site.start_again();
    (site, platter)
}

#[test]
#[ignore = "needs a loop device"]
fn the_command_in_the_hint_repairs_a_damaged_file() {
    let env = TestEnvironment::new();
    let (mut site, _platter) = with_damaged_files(&env);
    let (data, back) = (env.folder("data"), env.folder("back"));
    for name in ["small", "large"] {
        let remote = format!("{REMOTE}/{name}");
        site.run("ada", &["stat", "--digest", &remote])
            .refused(1)
            .says("the disk is damaged")
            .says("`paddlectl cp --checksum`");
        site.run("ada", &["cp", "--checksum", arg(&data.join(name)), &remote])
            .ok();
        site.run("ada", &["stat", "--digest", &remote]).ok();
    }
    site.run("ada", &["sync", "--checksum", arg(&data), REMOTE]).ok();
    site.run("ada", &["cp", "-r", REMOTE, arg(&back)]).ok();
    for (name, _) in SENT {
        let [sent, came] = [data.join(name), back.join("d").join(name)].map(|path| fs::read(path).unwrap());
        assert!(sent == came, "{name}");
    }
    site.run("ada", &["pfs", "fsck"]).ok().says("none damaged");
    site.stop();
}

#[test]
#[ignore = "needs a loop device"]
fn a_copy_on_the_cluster_repairs_a_damaged_file() {
    let env = TestEnvironment::new();
    let (mut site, _platter) = with_damaged_files(&env);
    let (data, good) = (env.folder("data"), "/pfs/cloud/home/ada/good");
    site.run("ada", &["cp", "-r", arg(&data), good]).ok();
    for name in ["small", "large"] {
        let (sound, damaged) = (format!("{good}/{name}"), format!("{REMOTE}/{name}"));
        site.run("ada", &["cp", "--checksum", &sound, &damaged])
            .ok()
            .says("1 file copied");
        site.run("ada", &["stat", "--digest", &damaged]).ok();
    }
    // One is repaired, the other goes: damaged or not, only the destination has it.
    site.run("ada", &["rm", &format!("{good}/other-small")]).ok();
    site.run("ada", &["sync", "--checksum", "--delete", good, REMOTE])
        .ok()
        .says("1 file copied, 3 unchanged, 1 removed;");
    site.run("ada", &["check", good, REMOTE]).ok();
    site.run("ada", &["pfs", "fsck"]).ok().says("none damaged");
    site.stop();
}

#[test]
#[ignore = "needs a loop device"]
fn check_names_each_damaged_file_and_compares_the_others() {
    let env = TestEnvironment::new();
    let (mut site, _platter) = with_damaged_files(&env);
    let data = env.folder("data");
    fs::write(data.join("new"), "only here").unwrap();
    let found = site.run("ada", &["check", arg(&data), REMOTE]);
    assert_eq!(found.code, Some(1), "{found}");
    assert_eq!(
        found.stdout,
        "DIFFERENCE\tPATH\ndamaged\tlarge\nonly left\tnew\ndamaged\tother-large\n\
         damaged\tother-small\ndamaged\tsmall\n"
    );
    found
        .says("5 differences; 1 file identical")
        .says("`paddlectl cp --checksum`");
    let [here, there] = [arg(&data.join("large")).to_owned(), format!("{REMOTE}/large")];
    let alone = site.run("ada", &["check", &here, &there]);
    assert_eq!(alone.code, Some(1), "{alone}");
    assert!(alone.stdout.contains("damaged"), "{alone}");
    site.stop();
}

#[test]
#[ignore = "needs a loop device"]
fn a_copy_on_the_cluster_does_not_hide_damage() {
    let env = TestEnvironment::new();
    let (mut site, _platter) = with_damaged_files(&env);
    let (copy, mirror) = ("/pfs/cloud/home/ada/copy", "/pfs/cloud/home/ada/mirror");
    for words in [&["cp", "-r", REMOTE, copy][..], &["sync", REMOTE, mirror]] {
        let copied = site.run("ada", words);
        assert_eq!(copied.code, Some(1), "{copied}");
        copied
            .says("2 failed")
            .says(&format!("{REMOTE}/small"))
            .says(&format!("{REMOTE}/other-small"))
            .says("the disk is damaged");
    }
    let small = format!("{REMOTE}/small");
    site.run("ada", &["cp", &small, "/pfs/cloud/home/ada/alone"])
        .refused(1)
        .says(&format!("`{small}`"))
        .says("the disk is damaged");
    for folder in [copy, mirror] {
        site.run("ada", &["stat", &format!("{folder}/small")]).refused(1);
        site.run("ada", &["stat", "--digest", &format!("{folder}/sound")])
            .ok();
        site.run("ada", &["stat", "--digest", &format!("{folder}/large")])
            .refused(1)
            .says("the disk is damaged");
        let here = env.folder("back").join("large");
        site.run("ada", &["cp", &format!("{folder}/large"), arg(&here)])
            .refused(1)
            .says("the disk is damaged");
        assert!(!here.exists());
    }
    site.stop();
}
