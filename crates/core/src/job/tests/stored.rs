//! The form of a job in the store. Servers of other versions read it, so it changes only by additions with a default.

use super::*;
use crate::exit::Clash;

/// One that ran, as the server stored it; the first exit has every field.
const STORED: &str = concat!(
    r#"{"id":"j_1m7m4c7ge1vejj","user":"ann","spec":{"name":"kept","package":"/pfs/dc1/home/ann/pkg","#,
    r#""snapshot":"fe0c21e794d193260f88ad50cc622a25fc5ca4a8e3b077bd713ebdd35aea0a8d","parallelism":1,"#,
    r#""trainer":{"cpu":1000,"memory":1073741824,"gpu":0},"pservers":1,"pserver":{"cpu":1000,"#,
    r#""memory":1073741824,"gpu":0},"entry":"sh train.sh","ps_entry":"paddle pserver","ps_ports":2,"#,
    r#""topology":null,"passes":1,"image":null,"registry":null,"envs":{"A":"B"},"priority":0,"#,
    r#""retries":0,"max_runtime":null,"start_limit":"PT10M","grace":"PT30S","#,
    r#""shell_env":{"HOME":"/home/ann","PATH":"/usr/bin:/bin"}},"order":0,"#,
    r#""key":"904c796631b483d342a0a47752c4cf5f","phase":{"final":"succeeded"},"#,
    r#""submitted_at":"2026-11-17T06:51:11.758766128Z","admitted_at":"2026-11-17T06:51:11.758766128Z","#,
    r#""started_at":"2026-11-17T06:51:11.941430453Z","finished_at":"2026-11-17T06:51:12.061165531Z","#,
    r#""message":"its trainer succeeded","note":null,"placement":{"workers":[{"node":"node-1"},"#,
    r#"{"node":"node-1"}]},"workers":[{"role":"pserver","index":0,"name":"kept-pserver-qdba2","#,
    r#""address":"127.180.242.121","attempt":1,"status":"ended","restarts":0,"#,
    r#""started_at":"2026-11-17T06:51:11.869443549Z","ended_at":"2026-11-17T06:51:12.061165531Z","#,
    r#""exit":{"code":null,"signal":15,"oom":true,"clash":{"port":7164,"by":"process 42"},"#,
    r#""log_end":111,"message":"why","lost_output":5,"stopped":true,"#,
    r#""at":"2026-11-17T06:51:12.061165531Z"}},{"role":"trainer","index":0,"#,
    r#""name":"kept-trainer-yzkjg","address":"127.180.242.122","attempt":1,"status":"ended","#,
    r#""restarts":0,"started_at":"2026-11-17T06:51:11.956262446Z","#,
    r#""ended_at":"2026-11-17T06:51:12.001059823Z","exit":{"code":0,"signal":null,"oom":false,"#,
    r#""clash":null,"log_end":310,"message":null,"stopped":false,"#,
    r#""at":"2026-11-17T06:51:12.001059823Z"}}],"culprit":null,"kill_requested":false,"#,
    r#""remove_when_final":false,"timeline":{"moments":[{"at":"2026-11-17T06:51:11.758766128Z","#,
    r#""text":"submitted"},{"at":"2026-11-17T06:51:11.758766128Z","text":"admitted"},"#,
    r#"{"at":"2026-11-17T06:51:11.941430453Z","text":"all workers are ready: starting the trainers"},"#,
    r#"{"at":"2026-11-17T06:51:12.017681667Z","text":"stopping: its trainer succeeded"},"#,
    r#"{"at":"2026-11-17T06:51:12.078706432Z","text":"succeeded"}],"left_out":0},"#,
    r#""timers":{"assembling_since":null,"running_since":null,"#,
    r#""stopping_since":"2026-11-17T06:51:12.017681667Z"},"revision":10,"#,
    r#""changed_at":"2026-11-17T06:51:12.078706432Z"}"#,
);

#[test]
fn a_job_with_an_exit_is_stored_like_this() {
    let job: Job = serde_json::from_str(STORED).unwrap();
    assert_eq!(serde_json::to_string(&job).unwrap(), STORED);
    let exit = job.workers[0].exit.as_ref().unwrap();
    let expected = Exit {
        oom: true,
        clash: Some(Clash {
            port: 7164,
            by: Some("process 42".into()),
        }),
        log_end: 111,
        message: Some("why".into()),
        lost_output: 5,
        stopped: Some(true),
        at: exit.at,
        ..Exit::by_signal(15)
    };
    assert_eq!(*exit, expected);
    let second = Exit {
        log_end: 310,
        stopped: Some(false),
        ..Exit::with_code(0)
    };
    let at = job.workers[1].exit.as_ref().unwrap().at;
    assert_eq!(job.workers[1].exit, Some(Exit { at, ..second }));
}
