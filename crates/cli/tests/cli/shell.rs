//! A hermetic shell: its own home, its own environment, a fixed time.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use paddlecloud_cli::World;

/// What a command left behind.
#[derive(Debug)]
pub struct Outcome {
    pub code: u8,
    pub out: String,
    pub err: String,
}

impl Outcome {
    /// All of it in one text, without what differs from run to run.
    pub fn story(&self, shell: &Shell) -> String {
        let text = format!(
            "exit {}\n--- stdout\n{}--- stderr\n{}",
            self.code, self.out, self.err
        );
        shell.tidy(&text)
    }
}

/// Where commands are typed.
pub struct Shell {
    home: tempfile::TempDir,
    env: BTreeMap<String, String>,
    pub is_terminal: bool,
    hidden: Vec<(String, String)>,
}

impl Shell {
    pub fn new() -> Shell {
        let home = tempfile::tempdir().unwrap();
        let text = home.path().display().to_string();
        let env = [
            ("HOME", text.as_str()),
            ("PATH", "/usr/bin:/bin"),
            ("LANG", "C.UTF-8"),
            ("SECRET", "never sent"),
        ];
        Shell {
            env: env
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            is_terminal: false,
            hidden: vec![(text, "HOME".to_owned())],
            home,
        }
    }

    /// A shell whose configuration names this server.
    pub fn at(endpoint: &str) -> Shell {
        let mut shell = Shell::new();
        shell.write(
            ".paddle/config",
            &format!("datacenters:\n- name: dc1\n  username: me\n  token: t0\n  endpoint: {endpoint}\n"),
        );
        shell.hidden.push((endpoint.to_owned(), "ENDPOINT".to_owned()));
        shell
    }

    pub fn home(&self) -> &Path {
        self.home.path()
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.env.insert(name.to_owned(), value.to_owned());
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn tidy(&self, text: &str) -> String {
        let hide = |text: String, (from, to): &(String, String)| text.replace(from, to);
        self.hidden.iter().fold(text.to_owned(), hide)
    }

    /// Runs `paddlectl` with these words.
    pub fn run(&self, words: &[&str]) -> Outcome {
        let (out, err) = (Buffer::default(), Buffer::default());
        let mut world = World::made_of(
            self.env.clone(),
            Box::new(out.clone()),
            Box::new(err.clone()),
            self.is_terminal,
            || "2026-01-01T12:00:00Z".parse().unwrap(),
        );
        let args = words.iter().map(Into::into).collect();
        let code = paddlecloud_cli::run("paddlectl", args, &mut world);
        drop(world);
        Outcome {
            code,
            out: out.text(),
            err: err.text(),
        }
    }

    /// Runs a line without quotes in it.
    pub fn line(&self, line: &str) -> Outcome {
        self.run(&line.split_whitespace().collect::<Vec<_>>())
    }
}

#[derive(Clone, Default)]
struct Buffer(Rc<RefCell<Vec<u8>>>);

impl Buffer {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.borrow()).into_owned()
    }
}

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
