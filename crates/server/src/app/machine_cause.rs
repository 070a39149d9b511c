//! Whether a failed worker needed something that this machine does not permit.

use paddlecloud_api::jobs::WhyView;
use paddlecloud_worker::protocol::NO_OWN_VIEW;

/// Paths that exist only in a worker's private view of the file system.
const OF_A_VIEW: [&str; 3] = ["/trainer_id", "/trainer_count", "/pfs/"];

/// Adds this machine's restrictions to the reason, if the last lines of the failed worker mention such a path.
pub(super) fn add(answer: &mut WhyView, degraded: &[String]) {
    let lines = answer
        .first_failure
        .iter()
        .flat_map(|failure| &failure.last_lines);
    let missed = OF_A_VIEW
        .into_iter()
        .find(|path| lines.clone().any(|line| line.contains(path)));
    let lacks_views = degraded.iter().any(|note| note.starts_with(NO_OWN_VIEW));
    if let (Some(path), true) = (missed, lacks_views) {
        let instead = match path {
            "/trainer_id" => "PADDLE_INIT_TRAINER_ID",
            "/trainer_count" => "PADDLE_INIT_NUM_GRADIENT_SERVERS",
            _ => "PADDLE_CLOUD_HOME and PADDLE_CLOUD_PUBLIC",
        };
        answer.reason.push_str(&format!(
            "; this machine permits no namespaces, so a worker may not find `{path}`: read {instead} instead"
        ));
    }
}
