//! A revoked link stays revoked after a power cut: the system calls of the real server, in their real order.

use e2e::TestEnvironment;

use super::site::Site;
use super::{arg, plant};
use crate::durability::trace::{Call, Trace};
use crate::durability::{RequiredSync, check, tool};

#[test]
#[ignore = "needs strace"]
fn a_revoked_link_is_removed_from_the_disk_before_the_reply() {
    let env = TestEnvironment::new();
    let file = env.folder("trace").join("calls");
    // Beside the server and not above it, so that the server hears when it is to end.
    let [strace, words @ ..] = tool(&file);
    let under = [&[strace, "-D"], &words[..]].concat();
    let mut site = Site::with(&env, &[("ada", "")], "", &under);
    let data = env.folder("data");
    plant(&data, &[("a", "shared on purpose")]);
    let path = "/pfs/cloud/home/ada/a";
    site.run("ada", &["cp", arg(&data.join("a")), path]).ok();
    site.run("ada", &["publish", path]).ok();
    let given = site.run("ada", &["publish", "-o", "json"]).ok().json();
    let id = given[0]["id"].as_str().expect("a link has an id");
    site.run("ada", &["publish", "--revoke", id]).ok();
    site.stop();
    let trace = Trace::read(&file);

    let revoked = trace.exchange("DELETE /api/v1/pfs/shares/", "200");
    let named = renamed(&trace, revoked.request);
    let quoted: Vec<&str> = named.text.split('"').collect();
    let (draft, list) = (quoted[1], quoted[3]);
    let written = trace.last_write(draft).expect("the list was written");
    let folder = list.strip_suffix("/shares.json").expect("it lies in a folder");
    let required = [
        RequiredSync::sync(draft, (written.ends, named.begins)),
        RequiredSync::sync(folder, (named.ends, revoked.reply.begins)),
    ];
    check(&required, trace);
}

/// The call that gave the list of links its name after a request.
fn renamed<'a>(trace: &'a Trace, request: &Call) -> &'a Call {
    let found = trace
        .calls
        .iter()
        .find(|call| call.begins > request.ends && call.is_rename() && call.text.contains("/shares.json\""));
    found.unwrap_or_else(|| panic!("the list was not written\n{}", trace.text()))
}
