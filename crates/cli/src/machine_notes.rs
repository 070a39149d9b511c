//! What this machine does not permit is the same for every job: mentioned briefly, once per start of its server.
//!
//! The full sentences are part of `server status`.

use paddlecloud_api::server::ServerInfo;

use crate::commands::Context;
use crate::session::Session;

/// Prints the server's notes on a submit: all about the job, and of the machine only that there are some.
pub async fn tell(session: &Session, notes: &[String], context: &mut Context<'_>) {
    let info = if session.is_embedded && !notes.is_empty() {
        session.client.server_get().await.ok()
    } else {
        None
    };
    let is_general = |note: &&String| info.as_ref().is_some_and(|info| info.degraded.contains(note));
    for note in notes.iter().filter(|note| !is_general(note)) {
        context.world.err.note(note);
    }
    if notes.iter().any(|note| is_general(&note))
        && let Some(info) = &info
        && is_news(info, context)
    {
        context.world.err.note(&format!(
            "workers are only partly isolated on this machine: see `{} server status`",
            context.program
        ));
    }
}

/// Whether this start of the server was not mentioned yet; marks it as mentioned.
#[cfg(target_os = "linux")]
fn is_news(info: &ServerInfo, context: &Context<'_>) -> bool {
    let Ok(place) = crate::embedded::EmbeddedFolder::of(&context.world.env) else {
        return true;
    };
    let file = place.data.join("notes-told");
    let start = format!("{} {}\n", info.pid, info.started);
    if std::fs::read_to_string(&file).is_ok_and(|shown| shown == start) {
        return false;
    }
    // If it cannot be remembered, it is mentioned again.
    let _ = std::fs::write(file, start);
    true
}

#[cfg(not(target_os = "linux"))]
fn is_news(_: &ServerInfo, _: &Context<'_>) -> bool {
    true
}
