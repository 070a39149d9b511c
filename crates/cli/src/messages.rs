//! Messages for people while a command runs: on stderr, never data. On a terminal, text is escaped.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write};

use crate::printer::{Paint, wants_colour};
use crate::{controls, one_line};

/// Writes messages.
pub struct Messages {
    sink: Box<dyn Write>,
    pub is_terminal: bool,
    colour: bool,
    escapes: bool,
    /// How commands in messages are written, if that is not how they read there.
    typed: Option<TypedProgram>,
}

/// The program with the flags that select its server: a command that a message suggests must reach the same one.
struct TypedProgram {
    names: Vec<String>,
    flags: String,
}

impl TypedProgram {
    /// Adds the flags to each command in backticks, and to one on its own line.
    fn in_full<'a>(&self, text: &'a str) -> Cow<'a, str> {
        let mut full = Cow::Borrowed(text);
        for name in &self.names {
            let (quoted, alone) = (format!("`{name} "), format!("  {name} "));
            if full.contains(&quoted) {
                full = full.replace(&quoted, &format!("{quoted}{} ", self.flags)).into();
            }
            if let Some(rest) = full.strip_prefix(&alone) {
                full = format!("{alone}{} {rest}", self.flags).into();
            }
        }
        full
    }
}

impl Messages {
    pub fn stderr(env: &BTreeMap<String, String>) -> Messages {
        let is_terminal = std::io::stderr().is_terminal();
        Messages {
            sink: Box::new(std::io::stderr()),
            is_terminal,
            colour: wants_colour(env, is_terminal),
            escapes: is_terminal,
            typed: None,
        }
    }

    /// Writes text without colours and progress into a buffer, for tests.
    pub fn to(sink: Box<dyn Write>, escapes: bool) -> Messages {
        Messages {
            sink,
            is_terminal: false,
            colour: false,
            escapes,
            typed: None,
        }
    }

    /// Repeats the flags that select a server in every command that messages suggest from now on.
    pub fn repeat(&mut self, program: &str, flags: &str) {
        // The server does not know by which name its client was called.
        let mut names = vec![program.to_owned(), "paddlectl".to_owned()];
        names.dedup();
        self.typed = (!flags.is_empty()).then(|| TypedProgram {
            names,
            flags: flags.to_owned(),
        });
    }

    /// Prints a line. Errors are ignored: without stderr they cannot be reported.
    pub fn line(&mut self, text: impl AsRef<str>) {
        let shown = self.shown(&self.in_full(text.as_ref())).into_owned();
        let _ = writeln!(self.sink, "{shown}");
    }

    fn in_full<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match &self.typed {
            Some(typed) => typed.in_full(text),
            None => Cow::Borrowed(text),
        }
    }

    /// The text as it may be printed.
    fn shown<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.escapes {
            true => controls::escaped(text),
            false => Cow::Borrowed(text),
        }
    }

    pub fn error(&mut self, text: &str) {
        self.labelled(Paint::Red, "error", text);
    }

    pub fn hint(&mut self, text: &str) {
        self.labelled(Paint::Cyan, "hint", text);
    }

    pub fn note(&mut self, text: &str) {
        self.labelled(Paint::Yellow, "note", text);
    }

    fn labelled(&mut self, paint: Paint, label: &str, text: &str) {
        let label = if self.colour {
            paint.around(&format!("{label}:"))
        } else {
            format!("{label}:")
        };
        let shown = self.shown(&self.in_full(text)).into_owned();
        let _ = writeln!(self.sink, "{label} {shown}");
    }

    /// A question, whose answer is typed on the same line.
    pub fn ask(&mut self, question: &str) {
        let question = self.shown(question);
        let _ = write!(self.sink, "{question} ");
        let _ = self.sink.flush();
    }

    /// `Uploading package ... `, the beginning of a line.
    pub fn begin(&mut self, what: &str) {
        let what = self.shown(what);
        let _ = write!(self.sink, "{what} ... ");
        let _ = self.sink.flush();
    }

    /// Replaces the unfinished line, on a terminal.
    pub fn progress(&mut self, what: &str, detail: &str) {
        if self.is_terminal {
            let room = one_line::columns().saturating_sub(one_line::width(detail) + " ... ".len());
            let what = one_line::shortened(&self.shown(what), room);
            let _ = write!(self.sink, "\r\x1b[K{what} ... {detail}");
            let _ = self.sink.flush();
        }
    }

    /// Finishes a line.
    pub fn done(&mut self, what: &str) {
        self.end(what, "Done");
    }

    /// Finishes a line with an error.
    pub fn failed(&mut self, what: &str) {
        self.end(what, "Failed");
    }

    /// Replaces the unfinished line, on a terminal; elsewhere only its end is missing.
    fn end(&mut self, what: &str, how: &str) {
        if self.is_terminal {
            let what = self.shown(what);
            let _ = writeln!(self.sink, "\r\x1b[K{what} ... {how}");
        } else {
            let _ = writeln!(self.sink, "{how}");
        }
    }
}

/// What a terminal or a file receives during `work`; `<` stands for "replace the line".
#[cfg(test)]
pub fn written(is_terminal: bool, work: impl FnOnce(&mut Messages)) -> String {
    #[derive(Clone, Default)]
    struct Screen(std::rc::Rc<std::cell::RefCell<Vec<u8>>>);
    impl Write for Screen {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().write(bytes)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let screen = Screen::default();
    let mut messages = Messages::to(Box::new(screen.clone()), false);
    messages.is_terminal = is_terminal;
    work(&mut messages);
    let bytes = screen.0.borrow().clone();
    String::from_utf8(bytes).unwrap().replace("\r\x1b[K", "<")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_terminal_the_end_of_a_line_replaces_its_progress() {
        let line = written(true, |messages| {
            messages.begin("Uploading package");
            messages.progress("Uploading package", "8.0 MB of 9.0 MB");
            messages.failed("Uploading package");
        });
        assert_eq!(
            line,
            "Uploading package ... <Uploading package ... 8.0 MB of 9.0 MB<Uploading package ... Failed\n"
        );
    }

    #[test]
    fn elsewhere_a_line_is_written_once() {
        let line = written(false, |messages| {
            messages.begin("Uploading package");
            messages.progress("Uploading package", "8.0 MB of 9.0 MB");
            messages.failed("Uploading package");
        });
        assert_eq!(line, "Uploading package ... Failed\n");
    }
}
