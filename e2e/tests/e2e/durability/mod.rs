//! An acknowledged submit survives a power cut: checks the system calls of the real server, in their real order.
//!
//! The server runs under `strace` while the real client submits. The test checks what was synced before the reply was
//! sent: contents, names of folders, and the row.

mod downloads;
pub mod trace;
mod uploads;

use std::path::Path;

use e2e::{TestEnvironment, wait_until};

use trace::{Call, Trace};

const CALLS: &str = "trace=read,recvfrom,readv,write,writev,sendto,sendmsg,pwrite64,pwritev,fsync,fdatasync,syncfs,\
                     rename,renameat,renameat2,mkdir,mkdirat";

/// A sync that must have happened between two moments.
pub struct RequiredSync {
    what: String,
    /// Lines of the trace: it begins after the first and is over before the second.
    between: (usize, usize),
    matches_call: Box<dyn Fn(&Call) -> bool>,
}

impl RequiredSync {
    pub fn sync(path: &str, between: (usize, usize)) -> RequiredSync {
        let of_path = format!("<{path}>");
        RequiredSync {
            what: format!("sync {path}"),
            between,
            matches_call: Box::new(move |call| call.is_sync() && call.text.contains(&of_path)),
        }
    }

    fn is_met(&self, calls: &[Call]) -> bool {
        calls.iter().any(|call| self.is_met_by(call))
    }

    fn is_met_by(&self, call: &Call) -> bool {
        let (after, before) = self.between;
        call.begins > after && call.ends < before && (self.matches_call)(call)
    }
}

/// A package's place in the storage, and the renames that show its publication.
struct Published<'a> {
    /// `…/.paddlecloud/packages`
    folder: String,
    /// The rename that gave the tree its name, and the one that gave its list of files its own.
    tree: &'a Call,
    list: &'a Call,
    /// `…/.pfs-staging/<staged>`: where the tree lay before.
    staged: String,
}

impl<'a> Published<'a> {
    fn in_trace(trace: &'a Trace, before: usize) -> Self {
        let renames = |wanted: &dyn Fn(&str) -> bool| {
            let found = trace.calls.iter().rev().find(|call| {
                call.ends < before
                    && call.is_rename()
                    && call.target().is_some_and(|(folder, name)| {
                        folder.ends_with("/.paddlecloud/packages") && wanted(&name)
                    })
            });
            found.expect("the package was published")
        };
        let list = renames(&|name| name.ends_with(".json") && !name.contains("wanted"));
        let tree = renames(&|name| !name.contains('.'));
        let (staging, staged) = tree.source().expect("a rename has a source");
        Self {
            folder: tree.target().expect("a rename has a target").0,
            staged: format!("{staging}/{staged}"),
            tree,
            list,
        }
    }
}

/// A server under `strace` and the file that tells its calls.
struct Traced {
    server: e2e::Background,
    file: std::path::PathBuf,
}

impl Traced {
    fn start(env: &TestEnvironment) -> Traced {
        let file = env.folder("trace").join("calls");
        let data = env.home().join(".paddle/local");
        let tool = tool(&file);
        let args = ["--embedded", "--data", data.to_str().expect("a plain name")];
        let mut server = env.start_under(&tool, "paddlecloud-server", &args);
        server.wait_for_line("ready version=");
        Traced { server, file }
    }

    /// Ends the server and returns what it did.
    fn end(self, env: &TestEnvironment) -> Trace {
        env.paddlectl(&["server", "stop"]).ok();
        self.server.end();
        Trace::read(&self.file)
    }
}

/// The words before a program whose calls are to be written to a file.
pub fn tool(file: &Path) -> [&str; 11] {
    let file = file.to_str().expect("a plain name");
    [
        "strace",
        "-f",
        "-y",
        "-s",
        "4200",
        "-e",
        CALLS,
        "-e",
        "signal=none",
        "-o",
        file,
    ]
}

#[test]
#[ignore = "needs strace"]
fn package_folders_and_row_are_synced_before_a_submit_is_acknowledged() {
    let env = TestEnvironment::new();
    let traced = Traced::start(&env);
    let package = env
        .package("kept")
        .file("train.sh", "echo kept\n")
        .file("data/part-0", "zero")
        .file("data/deep/part-1", "one");
    env.submit("kept-by-name", &package, &["-entry", "sh train.sh"]);
    env.paddlectl(&["wait", "kept-by-name"]).ok();
    let trace = traced.end(&env);

    let submit = trace.exchange("POST /api/v1/jobs ", "200");
    let row = trace
        .row("kept-by-name", submit.request)
        .expect("the row was written");
    // The request that publishes the package also accepts the job.
    let published = Published::in_trace(&trace, row.begins);
    let mut required = Vec::new();
    for file in ["train.sh", "data/part-0", "data/deep/part-1"] {
        let path = format!("{}/{file}", published.staged);
        let written = trace.last_write(&path).expect("its bytes were written");
        required.push(RequiredSync::sync(&path, (written.ends, published.tree.begins)));
    }
    for folder in ["", "/data", "/data/deep"] {
        let path = format!("{}{folder}", published.staged);
        required.push(RequiredSync::sync(
            &path,
            (submit.request.ends, published.tree.begins),
        ));
    }
    let names =
        |after: &Call, before: &Call| RequiredSync::sync(&published.folder, (after.ends, before.begins));
    required.push(names(published.tree, published.list));
    required.push(names(published.list, row));
    let (staging, list) = published.list.source().expect("a rename has a source");
    let draft = format!("{staging}/{list}");
    let written = trace.last_write(&draft).expect("the list of files was written");
    required.push(RequiredSync::sync(&draft, (written.ends, published.list.begins)));
    for made in trace.folders_made_above(Path::new(&published.folder)) {
        let above = made.path.parent().expect("a folder lies in a folder");
        let above = above.to_str().expect("a plain name");
        required.push(RequiredSync::sync(above, (made.call.ends, row.begins)));
    }
    required.push(RequiredSync {
        what: "sync the database's log".to_owned(),
        between: (row.ends, submit.reply.begins),
        matches_call: Box::new(|call| call.is_sync() && call.text.contains("server.db-wal>")),
    });
    check(&required, trace);
}

#[test]
#[ignore = "needs strace"]
fn a_package_of_many_files_is_synced_by_syncfs() {
    let env = TestEnvironment::new();
    let traced = Traced::start(&env);
    let package = (0..100).fold(
        env.package("many").file("train.sh", "echo many\n"),
        |package, number| package.file(&format!("data/{number}"), format!("{number}\n")),
    );
    env.submit("many", &package, &["-entry", "sh train.sh"]);
    env.paddlectl(&["wait", "many"]).ok();
    let trace = traced.end(&env);

    let submit = trace.exchange("POST /api/v1/jobs ", "200");
    let published = Published::in_trace(&trace, submit.reply.begins);
    let written =
        (0..100).filter_map(|number| trace.last_write(&format!("{}/data/{number}", published.staged)));
    let last = written.map(|call| call.ends).max().expect("files were written");
    let staged = format!("<{}>", published.staged);
    let required = [
        RequiredSync {
            what: "sync the whole file system".to_owned(),
            between: (last, published.tree.begins),
            matches_call: Box::new(move |call| call.name == "syncfs" && call.text.contains(&staged)),
        },
        RequiredSync::sync(&published.folder, (published.tree.ends, published.list.begins)),
    ];
    check(&required, trace);
}

#[test]
#[ignore = "needs strace"]
fn files_that_a_changed_package_shares_with_the_last_one_are_not_synced_one_by_one() {
    let env = TestEnvironment::new();
    let traced = Traced::start(&env);
    let files = 100;
    let mut package = (0..files).fold(env.package("many"), |package, number| {
        package.file(&format!("data/{number}"), format!("{number}\n"))
    });
    for (job, line) in [("one", "echo one\n"), ("two", "echo two\n")] {
        package = package.file("train.sh", line);
        env.submit(job, &package, &["-entry", "sh train.sh"]);
        env.paddlectl(&["wait", job]).ok();
    }
    let trace = traced.end(&env);
    let of_staged = |call: &&Call| call.is_sync() && call.text.contains("/.pfs-staging");
    let (whole, single): (Vec<_>, Vec<_>) = trace
        .calls
        .iter()
        .filter(of_staged)
        .partition(|call| call.name == "syncfs");
    assert!(whole.len() >= 2, "both packages are synced\n{}", trace.text());
    assert!(
        single.len() < files / 2,
        "{} syncs\n{}",
        single.len(),
        trace.text()
    );
}

/// All of it was done; and had one of it not been done, this would have noticed.
#[track_caller]
pub fn check(required: &[RequiredSync], mut trace: Trace) {
    for required_sync in required {
        assert!(
            required_sync.is_met(&trace.calls),
            "not done: {}\n{}",
            required_sync.what,
            trace.text()
        );
    }
    for required_sync in required {
        let calls = std::mem::take(&mut trace.calls);
        let (with, without): (Vec<Call>, Vec<Call>) =
            calls.into_iter().partition(|call| required_sync.is_met_by(call));
        assert!(
            !required_sync.is_met(&without),
            "would not be missed: {}",
            required_sync.what
        );
        trace.calls = with.into_iter().chain(without).collect();
    }
}

#[test]
fn a_parsed_trace_joins_interrupted_calls() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = folder.path().join("calls");
    let lines = "7 read(4<socket:[1]>, \"POST /api/v1/jobs HTTP/1.1\\r\\n\", 100) = 26\n\
                 7 fsync(9</a/b> <unfinished ...>\n\
                 8 renameat2(3</s>, \"x\", 4</t>, \"y\", RENAME_NOREPLACE) = 0\n\
                 7 <... fsync resumed>) = 0\n\
                 8 fsync(9</a/c>) = -1 EIO (Input/output error)\n\
                 7 writev(4<socket:[1]>, [{iov_base=\"HTTP/1.1 200 OK\\r\\n\", iov_len=17}], 1) = 17\n";
    std::fs::write(&file, lines).expect("a file in a fresh folder");
    let trace = wait_until("a file that is there", || Some(Trace::read(&file)));
    let names: Vec<&str> = trace.calls.iter().map(|call| call.name.as_str()).collect();
    assert_eq!(
        names,
        ["read", "renameat2", "fsync", "writev"],
        "what failed is left out"
    );
    assert_eq!((trace.calls[2].begins, trace.calls[2].ends), (1, 3));
    assert_eq!(trace.calls[1].target(), Some(("/t".to_owned(), "y".to_owned())));
    assert_eq!(trace.exchange("POST /api/v1/jobs ", "200").reply.begins, 5);
}
