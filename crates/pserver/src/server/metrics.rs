//! Metrics of the server for Prometheus, over its own small HTTP server. It needs no secret and changes nothing.

use std::fmt::Write as _;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::listen::ListenError;
use super::{Server, Tensor};

/// Time limit for a reader to send its request, and for each write of the reply.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum bytes of a request.
const MAX_REQUEST: usize = 8 << 10;

/// Serves `GET /metrics` on a port, one reader at a time.
pub fn serve_metrics(server: &Arc<Server>, address: SocketAddr) -> Result<SocketAddr, ListenError> {
    let failed = |source| ListenError { address, source };
    let listener = TcpListener::bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    let server = Arc::clone(server);
    let answer_all = move || {
        for stream in listener.incoming().flatten() {
            // A reader that disconnected will ask again.
            let _ = answer(&server, stream);
        }
    };
    let thread = thread::Builder::new().name("ps-metrics".into());
    thread.spawn(answer_all).map_err(failed)?;
    Ok(bound)
}

fn answer(server: &Server, mut stream: TcpStream) -> io::Result<()> {
    stream.set_write_timeout(Some(LIMIT))?;
    let until = Instant::now() + LIMIT;
    let mut request = Vec::new();
    let mut bytes = [0; 1024];
    while !request.ends_with(b"\r\n\r\n") && request.len() < MAX_REQUEST {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut bytes)? {
            0 => break,
            count => request.extend_from_slice(&bytes[..count]),
        }
    }
    let is_known = request.starts_with(b"GET /metrics ") || request.starts_with(b"GET /metrics/ ");
    let (status, body) = match is_known {
        true => ("200 OK", server.metrics()),
        false => ("404 Not Found", "see /metrics\n".to_owned()),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

impl Server {
    /// The metrics in Prometheus' text format.
    pub fn metrics(&self) -> String {
        let mut text = String::new();
        let (step, epoch, pushes, connections, left) = {
            let state = self.state();
            let left = state
                .steps
                .progress()
                .iter()
                .filter(|(_, left)| left.is_some())
                .count();
            (
                state.steps.step(),
                state.steps.epoch(),
                state.pushes,
                state.connected,
                left,
            )
        };
        let mut metric = |name: &str, kind: &str, value: u64| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "# TYPE {name} {kind}\n{name} {value}");
        };
        metric("paddle_pserver_step", "gauge", step);
        metric("paddle_pserver_epoch", "gauge", epoch);
        metric("paddle_pserver_pushes_total", "counter", pushes);
        metric(
            "paddle_pserver_trainer_connections",
            "gauge",
            u64::from(connections),
        );
        metric("paddle_pserver_trainers_left", "gauge", left as u64);
        metric("paddle_pserver_memory_used_bytes", "gauge", self.budget.used());
        metric("paddle_pserver_memory_limit_bytes", "gauge", self.budget.limit());
        self.table_metrics(&mut text);
        text
    }

    fn table_metrics(&self, text: &mut String) {
        text.push_str("# TYPE paddle_pserver_table_rows gauge\n");
        for tensor in self.all_tensors() {
            if let Tensor::Table(table) = tensor {
                let name = table.spec.name.replace('\\', "\\\\").replace('"', "\\\"");
                let rows = table.rows();
                let _ = writeln!(text, "paddle_pserver_table_rows{{table=\"{name}\"}} {rows}");
            }
        }
    }
}
