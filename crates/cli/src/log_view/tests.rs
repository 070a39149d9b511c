//! What is shown of log events.

use super::*;

fn worker(role: &str, index: u32, attempt: u32) -> Arc<LogWorker> {
    Arc::new(LogWorker {
        name: format!("job-{role}-{index}"),
        role: role.to_owned(),
        index,
        attempt,
        from: None,
        is_behind: false,
    })
}

fn data(worker: &Arc<LogWorker>, bytes: &[u8]) -> LogEvent {
    LogEvent::Data {
        worker: worker.clone(),
        stream: Stream::Output,
        offset: 0,
        unix_nanos: 1_500_000_000_250_000_000,
        bytes: bytes.to_vec(),
    }
}

fn shown(style: Style, events: &[LogEvent]) -> String {
    let mut view = LogView::new(style);
    let mut out = Vec::new();
    events.iter().for_each(|event| view.show(event, &mut out));
    view.end(&mut out);
    String::from_utf8_lossy(&out).into_owned()
}

#[test]
fn one_worker_passes_byte_by_byte() {
    let only = worker("trainer", 0, 1);
    let events = [
        LogEvent::Workers(vec![only.clone()]),
        data(&only, b"10%\r20%"),
        data(&only, b"\r\ndone"),
    ];
    assert_eq!(shown(Style::default(), &events), "10%\r20%\r\ndone");
}

#[test]
fn lines_of_several_workers_stay_complete_and_name_their_worker() {
    let (trainer, server) = (worker("trainer", 0, 1), worker("pserver", 10, 2));
    let events = [
        LogEvent::Workers(vec![trainer.clone(), server.clone()]),
        data(&trainer, b"hel"),
        data(&server, b"ready\n"),
        data(&trainer, b"lo\nrest"),
        LogEvent::Gap {
            worker: server.clone(),
            from: 6,
            to: 9,
        },
    ];
    insta::assert_snapshot!(shown(Style::default(), &events), @r"
    pserver-10#2 | ready
    trainer-0    | hello
    trainer-0    | rest
    ");
    let raw = Style {
        raw: true,
        ..Style::default()
    };
    assert!(shown(raw, &events).starts_with("ready\nhello\n"));
}

#[test]
fn a_restart_is_a_message_only_where_no_prefix_shows_it() {
    let attempt = |number| worker("trainer", 0, number);
    let (first, second, other) = (attempt(1), attempt(2), worker("trainer", 1, 1));
    let mut view = LogView::new(Style::default());
    let mut out = Vec::new();
    let mut show = |event: LogEvent| {
        let message = view.restart(&event, &mut out);
        view.show(&event, &mut out);
        (message, String::from_utf8(std::mem::take(&mut out)).unwrap())
    };
    show(LogEvent::Workers(vec![first.clone()]));
    assert_eq!(show(data(&first, b"one")), (None, "one".to_owned()));
    show(LogEvent::Workers(vec![first.clone(), second.clone()]));
    let message = Some("trainer-0 was restarted (attempt 2)".to_owned());
    assert_eq!(show(data(&second, b"two\n")), (message, "\ntwo\n".to_owned()));
    assert_eq!(show(data(&second, b"more\n")).0, None);
    let third = attempt(3);
    show(LogEvent::Workers(vec![first, second, other, third.clone()]));
    assert_eq!(show(data(&third, b"x\n")), (None, "trainer-0#3 | x\n".to_owned()));
}

#[test]
fn a_gap_adds_no_text_and_another_worker_starts_on_a_new_line() {
    let (one, two) = (worker("trainer", 0, 1), worker("trainer", 1, 1));
    let events = [
        LogEvent::Workers(vec![one.clone()]),
        data(&one, b"xxxx"),
        LogEvent::Gap {
            worker: one.clone(),
            from: 4,
            to: 9,
        },
        data(&one, b"yy"),
        LogEvent::Workers(vec![one.clone(), two.clone()]),
        data(&two, b"zz\n"),
    ];
    insta::assert_snapshot!(shown(Style::default(), &events), @r"
    xxxxyy
    trainer-1 | zz
    ");
}

#[test]
fn a_progress_bar_is_a_line_with_its_last_step() {
    let (one, two) = (worker("trainer", 0, 1), worker("trainer", 1, 1));
    let events = [
        LogEvent::Workers(vec![one.clone(), two]),
        data(&one, b"10%\r20%\r"),
        data(&one, b"30%\n40%\r50%\r"),
    ];
    assert_eq!(
        shown(Style::default(), &events),
        "trainer-0 | 30%\ntrainer-0 | 50%\n"
    );
}

#[test]
fn split_carriage_returns_end_a_line_once() {
    let (one, two) = (worker("trainer", 0, 1), worker("trainer", 1, 1));
    let events = [
        LogEvent::Workers(vec![one.clone(), two]),
        data(&one, b"10%\r20%\r"),
        data(&one, b"\nend\r\n"),
    ];
    assert_eq!(
        shown(Style::default(), &events),
        "trainer-0 | 20%\ntrainer-0 | end\n"
    );
}

#[test]
fn unfinished_bars_are_known_in_the_order_of_the_workers() {
    let workers = [0, 1, 2, 3].map(|index| worker("trainer", index, 1));
    let mut view = LogView::new(Style::default());
    let mut out = Vec::new();
    view.show(&LogEvent::Workers(workers.to_vec()), &mut out);
    view.show(&data(&workers[2], b"\r\x1b[2K 10%"), &mut out);
    view.show(&data(&workers[0], b"\x1b[32m5%\x1b[0m\r6%\r"), &mut out);
    view.show(&data(&workers[1], b"no bar, only unfinished"), &mut out);
    view.show(&data(&workers[3], b"100%\r    \r"), &mut out);
    assert_eq!(out, b"");
    assert_eq!(view.bars(), ["trainer-0 | 6%", "trainer-2 |  10%"]);
    view.show(&data(&workers[0], b"\n7%"), &mut out);
    assert_eq!(view.bars(), ["trainer-2 |  10%"]);
    assert_eq!(out, b"trainer-0 | 6%\n");
}

#[test]
fn a_restart_ends_the_bar_of_the_attempt_before() {
    let (one, other) = (worker("trainer", 0, 1), worker("trainer", 1, 1));
    let again = worker("trainer", 0, 2);
    let mut view = LogView::new(Style::default());
    let mut out = Vec::new();
    let workers = vec![one.clone(), other, again.clone()];
    view.show(&LogEvent::Workers(workers), &mut out);
    view.show(&data(&one, b"50%\r"), &mut out);
    view.show(&data(&again, b"10%\r"), &mut out);
    assert_eq!(out, b"trainer-0   | 50%\n");
    assert_eq!(view.bars(), ["trainer-0#2 | 10%"]);
}

#[test]
fn a_colour_ends_with_its_line_on_a_terminal() {
    let (one, two) = (worker("trainer", 0, 1), worker("trainer", 1, 1));
    let events = [
        LogEvent::Workers(vec![one.clone(), two]),
        data(&one, b"\x1b[31mred\n\x1b[1;32mgreen\x1b[0m\nplain\n"),
    ];
    let coloured = Style {
        colour: true,
        ..Style::default()
    };
    let text = shown(coloured, &events);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].ends_with("\x1b[31mred\x1b[0m"), "{text:?}");
    assert!(lines[1].ends_with("\x1b[1;32mgreen\x1b[0m"), "{text:?}");
    assert!(!lines[1].ends_with("\x1b[0m\x1b[0m"), "{text:?}");
    assert!(lines[2].ends_with("plain"), "{text:?}");
    assert!(
        shown(Style::default(), &events).contains("\x1b[31mred\n"),
        "bytes stay as they are"
    );
}

#[test]
fn control_sequences_reach_only_the_terminal_of_a_jobs_owner_with_one_worker() {
    let (one, two) = (worker("trainer", 0, 1), worker("trainer", 1, 1));
    let bytes = b"\x1b[32m10%\x1b[1A\x1b]0;title\x07\n";
    let alone = |reader| {
        let events = [LogEvent::Workers(vec![one.clone()]), data(&one, bytes)];
        shown(
            Style {
                reader,
                ..Style::default()
            },
            &events,
        )
    };
    let unchanged = String::from_utf8_lossy(bytes);
    assert_eq!(alone(Reader::Raw), unchanged);
    assert_eq!(alone(Reader::Owner), unchanged);
    let filtered = "\x1b[32m10%\\u001b]0;title\\u0007\n";
    assert_eq!(alone(Reader::Other), filtered);
    let among = |reader| {
        let workers = LogEvent::Workers(vec![one.clone(), two.clone()]);
        let style = Style {
            reader,
            ..Style::default()
        };
        shown(style, &[workers, data(&one, bytes)])
    };
    assert_eq!(among(Reader::Raw), format!("trainer-0 | {unchanged}"));
    assert_eq!(among(Reader::Owner), format!("trainer-0 | {filtered}"));
}

#[test]
fn preambles_of_several_workers_are_one_line_on_a_terminal() {
    let (one, two, server) = (
        worker("trainer", 0, 1),
        worker("trainer", 1, 1),
        worker("pserver", 0, 1),
    );
    let again = worker("trainer", 1, 2);
    let launcher = |worker: &Arc<LogWorker>, text: &str| LogEvent::Data {
        worker: worker.clone(),
        stream: Stream::Launcher,
        offset: 0,
        unix_nanos: 0,
        bytes: text.as_bytes().to_vec(),
    };
    let lines = "label selector: paddle-job=j, desired: 2\nStarting training job:  /pfs/j\n";
    let all = vec![one.clone(), two.clone(), server, again.clone()];
    let events = [
        LogEvent::Workers(all[..3].to_vec()),
        launcher(&one, lines),
        launcher(&two, lines),
        data(&two, b"trained\n"),
        launcher(&two, "paddlecloud: killed\n"),
        LogEvent::Workers(all),
        launcher(&again, lines),
    ];
    let on_terminal = |raw| {
        let style = Style {
            reader: Reader::Owner,
            raw,
            ..Style::default()
        };
        shown(style, &events)
    };
    insta::assert_snapshot!(on_terminal(false), @r"
    Starting training job: 2 trainers, 1 parameter server
    trainer-1 | trained
    trainer-1 | paddlecloud: killed
    Starting training job again: 1 trainer
    ");
    let whole = shown(Style::default(), &events);
    assert_eq!(whole.matches("label selector").count(), 3, "{whole}");
    assert_eq!(on_terminal(true).matches("label selector").count(), 3);
}

#[test]
fn times_go_before_every_line() {
    let only = worker("trainer", 0, 1);
    let style = Style {
        timestamps: true,
        ..Style::default()
    };
    let events = [LogEvent::Workers(vec![only.clone()]), data(&only, b"a\nb")];
    assert_eq!(
        shown(style, &events),
        "2017-07-14T02:40:00.250Z a\n2017-07-14T02:40:00.250Z b\n"
    );
}
