//! Reports to the parent process that the server is ready, or why it is not.

use std::fs::File;
use std::io::Write;
use std::os::fd::FromRawFd;

/// An optional pipe to the parent, used once.
pub struct Ready(Option<File>);

impl Ready {
    /// Takes ownership of a file descriptor that the parent left open for this.
    pub fn new(fd: Option<i32>) -> Ready {
        let fd = fd.filter(|fd| *fd > 2);
        // SAFETY: the number was passed on the command line for this purpose alone; nothing else in this process has opened or
        // will close it, and the numbers of standard streams are refused above.
        Ready(fd.map(|fd| unsafe { File::from_raw_fd(fd) }))
    }

    pub fn ready(self) {
        self.say(&serde_json::json!({ "ready": true }));
    }

    pub fn failed(self, error: &str, hint: Option<&str>) {
        let hints: Vec<&str> = hint.into_iter().collect();
        self.say(&serde_json::json!({ "error": error, "hints": hints }));
    }

    fn say(self, line: &serde_json::Value) {
        if let Some(mut pipe) = self.0 {
            // The parent may have exited.
            let _ = pipe.write_all(format!("{line}\n").as_bytes());
        }
    }
}
