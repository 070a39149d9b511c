//! Parses the output of `strace -f -y` into calls with their start and end.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

/// One call that succeeded. Times are lines of the trace: the order in which the kernel saw them.
#[derive(Debug, Clone)]
pub struct Call {
    pub name: String,
    /// With its arguments and what it returned.
    pub text: String,
    pub begins: usize,
    pub ends: usize,
}

impl Call {
    pub fn is_sync(&self) -> bool {
        matches!(self.name.as_str(), "fsync" | "fdatasync" | "syncfs")
    }

    pub fn is_rename(&self) -> bool {
        self.name.starts_with("rename")
    }

    fn is_read(&self) -> bool {
        matches!(self.name.as_str(), "read" | "recvfrom" | "readv")
    }

    fn is_write(&self) -> bool {
        matches!(
            self.name.as_str(),
            "write" | "writev" | "sendto" | "sendmsg" | "pwrite64" | "pwritev"
        )
    }

    /// The first argument, which for most of these calls is a file descriptor: `4</a/b>`.
    fn first_argument(&self) -> &str {
        let from = self.name.len() + 1;
        let rest = &self.text[from..];
        &rest[..rest.find([',', ')']).unwrap_or(rest.len())]
    }

    /// Folder and name a rename takes from.
    pub fn source(&self) -> Option<(String, String)> {
        self.ends_of_rename(0)
    }

    /// Folder and name a rename gives.
    pub fn target(&self) -> Option<(String, String)> {
        self.ends_of_rename(2)
    }

    fn ends_of_rename(&self, at: usize) -> Option<(String, String)> {
        let arguments: Vec<&str> = self.text[self.name.len() + 1..].split(", ").collect();
        let folder = arguments.get(at)?.split_once('<')?.1.strip_suffix('>')?;
        let name = arguments.get(at + 1)?.trim_end_matches(") = 0").trim_matches('"');
        Some((folder.to_owned(), name.to_owned()))
    }
}

/// A request that the server read and the reply it wrote.
pub struct Exchange<'a> {
    pub request: &'a Call,
    pub reply: &'a Call,
}

/// A folder that was made.
pub struct Made<'a> {
    pub path: PathBuf,
    pub call: &'a Call,
}

/// All calls, by the time at which they were over.
pub struct Trace {
    pub calls: Vec<Call>,
}

impl Trace {
    pub fn read(file: &Path) -> Trace {
        let text = fs::read(file).expect("strace wrote its file");
        let mut open: HashMap<String, (String, usize)> = HashMap::new();
        let mut calls = Vec::new();
        for (at, line) in String::from_utf8_lossy(&text).lines().enumerate() {
            let Some((process, rest)) = line.split_once(' ') else {
                continue;
            };
            let rest = rest.trim_start();
            if let Some(head) = rest.strip_suffix(" <unfinished ...>") {
                open.insert(process.to_owned(), (head.to_owned(), at));
            } else if let Some((_, end)) = rest.split_once(" resumed>").filter(|_| rest.starts_with("<...")) {
                let Some((head, start)) = open.remove(process) else {
                    continue;
                };
                calls.extend(call(head + end, start, at));
            } else {
                calls.extend(call(rest.to_owned(), at, at));
            }
        }
        Trace { calls }
    }

    /// The last exchange whose request begins like this and whose reply has this status.
    #[track_caller]
    pub fn exchange(&self, request: &str, status: &str) -> Exchange<'_> {
        let request_line = format!("\"{request}");
        let status_line = format!("HTTP/1.1 {status}");
        let requests = self
            .calls
            .iter()
            .filter(|call| call.is_read() && call.text.contains(&request_line));
        let exchanges = requests.filter_map(|request| Some((request, self.reply_to(request)?)));
        exchanges
            .filter(|(_, reply)| reply.text.contains(&status_line))
            .map(|(request, reply)| Exchange { request, reply })
            .next_back()
            .unwrap_or_else(|| panic!("no {request:?} was answered with {status}\n{}", self.text()))
    }

    fn reply_to(&self, request: &Call) -> Option<&Call> {
        let same_socket = |call: &&Call| {
            call.begins > request.ends
                && call.is_write()
                && call.first_argument() == request.first_argument()
                && call.text.contains("HTTP/1.1 ")
        };
        self.calls
            .iter()
            .filter(same_socket)
            .min_by_key(|call| call.begins)
    }

    /// The last time bytes went to a file.
    pub fn last_write(&self, path: &str) -> Option<&Call> {
        let of_path = format!("<{path}>");
        let mut writes = self.calls.iter().filter(|call| call.is_write());
        writes.rfind(|call| call.first_argument().ends_with(&of_path))
    }

    /// The first page of the database's log that names this job and was written after the request was read.
    pub fn row(&self, job: &str, request: &Call) -> Option<&Call> {
        let is_row = |call: &&Call| {
            call.begins > request.ends
                && call.first_argument().ends_with("server.db-wal>")
                && call.text.contains(job)
        };
        self.calls.iter().filter(|call| call.is_write()).find(is_row)
    }

    /// Every folder on the way to a path, itself included, that did not exist before.
    pub fn folders_made_above(&self, path: &Path) -> Vec<Made<'_>> {
        let made = self.calls.iter().filter_map(|call| {
            let path = made_folder(call)?;
            Some(Made { path, call })
        });
        made.filter(|made| path.starts_with(&made.path)).collect()
    }

    /// The trace without its many reads, for a person who looks for what is missing.
    pub fn text(&self) -> String {
        let calls = self.calls.iter().filter(|call| !call.is_read());
        let lines = calls.map(|call| {
            let text: String = call.text.chars().take(200).collect();
            format!("{:>6} {text}", call.ends)
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn call(text: String, begins: usize, ends: usize) -> Option<Call> {
    let name = text.split_once('(')?.0.to_owned();
    let failed = text
        .rsplit_once(" = ")
        .is_none_or(|(_, result)| result.starts_with('-') || result.starts_with('?'));
    let is_call = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    (is_call && !failed).then_some(Call {
        name,
        text,
        begins,
        ends,
    })
}

fn made_folder(call: &Call) -> Option<PathBuf> {
    let arguments: Vec<&str> = call.text[call.name.len() + 1..].split(", ").collect();
    let name = |at: usize| arguments.get(at).map(|text| text.trim_matches('"'));
    match call.name.as_str() {
        "mkdir" => Some(PathBuf::from(name(0)?)),
        "mkdirat" => {
            let folder = arguments.first()?.split_once('<')?.1.strip_suffix('>')?;
            Some(Path::new(folder).join(name(1)?))
        }
        _ => None,
    }
}
