//! Progress bars of workers on a terminal: `script` gives the program one, and its bytes are drawn here.

use e2e::{TestEnvironment, wait_until};

/// What a terminal shows after these bytes. It knows only what the program writes.
fn drawn(bytes: &str) -> Vec<String> {
    let mut rows: Vec<Vec<char>> = vec![Vec::new()];
    let (mut row, mut column) = (0_usize, 0_usize);
    let mut rest = bytes.chars();
    while let Some(c) = rest.next() {
        match c {
            '\n' => row += 1,
            '\r' => column = 0,
            '\u{8}' => column = column.saturating_sub(1),
            '\x1b' => {
                assert_eq!(rest.next(), Some('['), "{bytes:?}");
                let mut number = String::new();
                let letter = rest.by_ref().find(|c| {
                    number.push(*c);
                    c.is_ascii_alphabetic()
                });
                number.pop();
                match letter {
                    Some('A') => row -= number.parse::<usize>().expect("how far up"),
                    Some('J') => {
                        rows[row].truncate(column);
                        rows.truncate(row + 1);
                    }
                    Some('K') => rows[row].truncate(column),
                    Some('m') => {}
                    other => panic!("an unknown sequence {other:?} in {bytes:?}"),
                }
            }
            c => {
                let width = rows[row].len().max(column + 1);
                rows[row].resize(width, ' ');
                rows[row][column] = c;
                column += 1;
            }
        }
        rows.resize(rows.len().max(row + 1), Vec::new());
    }
    rows.into_iter().map(String::from_iter).collect()
}

/// The rows about steps.
fn bars(lines: &[String]) -> Vec<String> {
    let rows = drawn(&(lines.join("\n") + "\n"));
    rows.into_iter().filter(|row| row.contains("step ")).collect()
}

#[test]
fn progress_bars_of_several_workers_are_redrawn_in_place() {
    let env = TestEnvironment::new();
    let gate = env.gate("go");
    let program = "show() { for step in $(seq $1 $2); do printf '\\rstep %s of 60' $step; done; }\n\
                   show 1 30\ncat $GATE\nshow 31 60\n";
    let package = env.package("job").file("train.sh", program);
    let submit = format!(
        "paddlectl submit -f -jobname bars -parallelism 4 -pservers 0 -cpu 20m -memory 32Mi -env {} -entry 'sh train.sh' {}",
        gate.variable("GATE"),
        package.arg()
    );
    let mut following = env.start_program("script", &["-qefc", &submit, "/dev/null"]);
    let expected = |step: u32| (0..4).map(move |index| format!("trainer-{index} | step {step} of 60"));
    wait_until("the bars of all workers must be shown", || {
        bars(following.lines_so_far())
            .into_iter()
            .eq(expected(30))
            .then_some(())
    });
    gate.open_until("the job must end", || following.has_ended());
    let (status, lines) = following.end();
    assert_eq!(status.code(), Some(0), "{lines:?}");
    let mut left = bars(&lines);
    left.sort();
    assert!(left.iter().cloned().eq(expected(60)), "{left:?}");

    // A line of the reader, not of the steps in it: on a terminal, and in a pipe.
    let last = "paddlectl logs -n 1 bars";
    let (_, lines) = env.start_program("script", &["-qefc", last, "/dev/null"]).end();
    let mut shown: Vec<String> = drawn(&lines.join("\n"))
        .into_iter()
        .filter(|row| row.contains("trainer-"))
        .collect();
    shown.sort();
    assert!(shown.iter().cloned().eq(expected(60)), "{shown:?}");
    let piped = env.paddlectl(&["logs", "-n", "1", "bars"]).ok().stdout;
    let mut piped: Vec<&str> = piped.lines().collect();
    piped.sort();
    assert!(piped.iter().copied().eq(expected(60)), "{piped:?}");
}
