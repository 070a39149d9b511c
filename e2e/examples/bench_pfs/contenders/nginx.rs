//! nginx and curl: a plain `PUT` up, ranges in parallel down, many small files over sixteen connections.
//!
//! curl writes every range to a separate file. It runs twice: until the parts are joined to the requested file, and only
//! until all parts exist.

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

use super::server::{Server, free_port, program};
use super::{Contender, Durable, shell, synced, twice};
use crate::stage::{Load, Stage};

/// Ranges that are fetched at once.
const RANGES: u64 = 4;

struct Nginx {
    folder: PathBuf,
    lists: PathBuf,
    durable: Durable,
    parts: Parts,
    server: Rc<Server>,
}

/// When a file that comes in parts counts as fetched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parts {
    Joined,
    Apart,
}

pub fn start(stage: &Stage) -> Option<Vec<Box<dyn Contender>>> {
    program("curl")?;
    let (own, folder) = (stage.empty("nginx-own"), stage.empty("nginx"));
    let port = free_port();
    let config = own.join("nginx.conf");
    fs::write(&config, configuration(&own, &folder, port)).expect("a file in our own folder");
    let mut command = Command::new(program("nginx")?);
    command.arg("-p").arg(&own).arg("-c").arg(&config);
    let server = Rc::new(Server::start(port, &mut command));
    let mut all = Vec::new();
    for parts in [Parts::Joined, Parts::Apart] {
        all.extend(twice(stage, |durable| {
            Some(Nginx {
                folder: folder.clone(),
                lists: own.clone(),
                durable,
                parts,
                server: server.clone(),
            })
        })?);
    }
    Some(all)
}

/// As its documentation recommends for files. What arrives is staged on the same disk and renamed.
fn configuration(own: &Path, folder: &Path, port: u16) -> String {
    let user = match rustix::process::geteuid().is_root() {
        true => "user root;\n",
        false => "",
    };
    format!(
        "{user}daemon off;\nworker_processes auto;\npid {own}/pid;\nerror_log {own}/error.log;\n\
         events {{ worker_connections 512; }}\n\
         http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_requests 100000;\n\
         client_max_body_size 0;\n  client_body_buffer_size 1m;\n  client_body_temp_path {own}/body;\n\
         proxy_temp_path {own}/t1;\n  fastcgi_temp_path {own}/t2;\n  uwsgi_temp_path {own}/t3;\n\
         scgi_temp_path {own}/t4;\n\
         server {{\n    listen 127.0.0.1:{port};\n    root {folder};\n\
         location / {{ dav_methods PUT; create_full_put_path on; }}\n  }}\n}}\n",
        own = own.display(),
        folder = folder.display(),
    )
}

impl Nginx {
    fn url(&self, load: &Load) -> String {
        format!("http://127.0.0.1:{}/{}", self.server.port, load.name())
    }

    /// A list for curl: one `url` and one file for each of the load's files.
    fn list(&self, load: &Load, name: &str, mut line: impl FnMut(&str) -> String) -> String {
        let mut text = String::new();
        for folder in fs::read_dir(&load.path).expect("the load is ours").flatten() {
            for file in fs::read_dir(folder.path()).expect("the load is ours").flatten() {
                let file = file.path();
                let file = file.strip_prefix(&load.path).expect("it lies in it");
                let file = file.to_str().expect("loads have plain names");
                writeln!(text, "url = \"{}/{file}\"", self.url(load)).expect("text grows");
                writeln!(text, "{}", line(file)).expect("text grows");
            }
        }
        let list = self.lists.join(name);
        fs::write(&list, text).expect("a file in our own folder");
        format!(
            "curl -sSf -Z --parallel-max 16 --create-dirs -K '{}'",
            list.display()
        )
    }

    fn ranges(&self, load: &Load, into: &Path) -> String {
        let step = load.bytes.div_ceil(RANGES);
        let fetch = |index: u64| {
            let (from, to) = (index * step, ((index + 1) * step).min(load.bytes) - 1);
            let part = into.join(format!("part{index}"));
            format!(
                "curl -sSf -r {from}-{to} -o '{}' '{}' &\n",
                part.display(),
                self.url(load)
            )
        };
        let fetched: String = (0..RANGES).map(fetch).chain(["wait\n".to_owned()]).collect();
        match self.parts {
            Parts::Joined => fetched + &joining(load, into),
            Parts::Apart => fetched,
        }
    }

    fn finished(&self, line: String, folder: &Path) -> Command {
        match self.durable {
            Durable::Yes => shell(synced(line, folder)),
            Durable::No => shell(line),
        }
    }
}

/// The cheapest way a shell has: the first part grows by the others.
fn joining(load: &Load, into: &Path) -> String {
    let part = |index: u64| format!("'{}'", into.join(format!("part{index}")).display());
    let others: Vec<String> = (1..RANGES).map(part).collect();
    format!(
        "cat {others} >> {first}\nrm {others}\nmv {first} '{whole}'",
        others = others.join(" "),
        first = part(0),
        whole = into.join(load.name()).display(),
    )
}

impl Contender for Nginx {
    fn name(&self) -> String {
        match self.parts {
            Parts::Joined => self.durable.named("nginx + curl"),
            Parts::Apart => self.durable.named("nginx + curl, in 4 parts"),
        }
    }

    fn up(&self, load: &Load) -> Command {
        let line = match load.is_tree() {
            true => self.list(load, "up", |file| {
                format!("upload-file = \"{}\"", load.path.join(file).display())
            }),
            false => format!("curl -sSf -T '{}' '{}'", load.path.display(), self.url(load)),
        };
        self.finished(line, &self.folder)
    }

    fn down(&self, load: &Load, into: &Path) -> Command {
        let to = into.join(load.name());
        let line = match load.is_tree() {
            true => self.list(load, "down", |file| {
                format!("output = \"{}\"", to.join(file).display())
            }),
            false => self.ranges(load, into),
        };
        self.finished(line, into)
    }

    fn kept(&self, load: &Load) -> PathBuf {
        self.folder.join(load.name())
    }

    fn join(&self, load: &Load, fetched: &Path) {
        if !load.is_tree() && self.parts == Parts::Apart {
            let joined = shell(joining(load, fetched)).status();
            assert!(joined.is_ok_and(|status| status.success()), "parts can be joined");
        }
    }
}
