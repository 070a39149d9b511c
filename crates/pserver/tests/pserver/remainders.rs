//! What `topk` has not sent yet: no restart keeps it, and the log says so.

use paddlecloud_pserver::client::{Client, ClientError, Gradients};
use paddlecloud_pserver::optimizer::{Pace, Rule};
use paddlecloud_pserver::steps::Mode;

use crate::restarts::Fragile;
use crate::training::dense;

const LOST: &str = "what `topk` had not sent of the gradients before is lost, so the model will differ from that of an undisturbed run";

fn notices(job: &Fragile) -> Vec<String> {
    let heard = std::mem::take(&mut *job.heard.0.lock().unwrap());
    heard
        .into_iter()
        .filter(|message| message.contains("topk"))
        .collect()
}

#[test]
fn remainders_are_dropped_after_a_rollback_and_reported_lost_after_a_restart() {
    let mut job = Fragile::new(2, 1, Mode::Sync);
    job.gradients = Gradients::TopK(0.5);
    let mut client = job.connect(0);
    client.create_dense(dense("w", 2, Rule::Sgd), &[0.0; 2]).unwrap();
    let mut values = [0.0; 2];
    let mut step = |client: &mut Client, gradient: [f32; 2]| {
        client.push(&[("w", &gradient)], Pace::default())?;
        client.finish_step(&mut [("w", &mut values)], None)?;
        Ok::<_, ClientError>(values)
    };
    let rate = {
        let moved = step(&mut client, [1.0, 0.25]).unwrap();
        assert_eq!(moved[1], 0.0, "only the larger half is sent");
        -moved[0]
    };
    // Back to step 0, whose files are written when it has ended. The remainder of 0.25 belongs to the step that is repeated.
    job.wait_for_checkpoint(0);
    job.crash(1);
    let error = step(&mut client, [0.0, 8.0]).unwrap_err();
    assert_eq!(error.rolled_back_to(), Some(0));
    assert_eq!(notices(&job), [format!("training was rolled back: {LOST}")]);
    assert_eq!(step(&mut client, [0.0, 1.0]).unwrap(), [0.0, -rate]);
    assert_eq!(notices(&job), [""; 0]);

    drop(client);
    let restarted = job.connect_as(0, 2);
    assert_eq!(restarted.step(), 1);
    assert_eq!(notices(&job), [format!("this trainer begins at step 1: {LOST}")]);
}
