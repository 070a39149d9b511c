//! Amounts and shortages in the words of the people who wait for them.

use super::quota::{Kind, Limit};
use super::request::Request;
use super::room::{Load, Shape};
use super::tree::RoomTree;

/// `2 cores`, `1 core`, `0.5 cores`.
pub(super) fn cores(millis: u128) -> String {
    match millis {
        1000 => "1 core".to_owned(),
        _ => format!("{} cores", bare_cores(millis)),
    }
}

fn bare_cores(millis: u128) -> String {
    let (whole, rest) = (millis / 1000, millis % 1000);
    match rest {
        0 => whole.to_string(),
        _ => format!("{whole}.{rest:03}").trim_end_matches('0').to_owned(),
    }
}

/// `4Gi`, `1.5Gi`, `300Mi`: one decimal at most.
pub(super) fn memory(bytes: u128) -> String {
    const UNITS: [(&str, u32); 6] = [
        ("Ei", 60),
        ("Pi", 50),
        ("Ti", 40),
        ("Gi", 30),
        ("Mi", 20),
        ("Ki", 10),
    ];
    let Some((unit, bits)) = UNITS.iter().find(|(_, bits)| bytes >> bits > 0) else {
        return format!("{bytes} bytes");
    };
    let tenths = (bytes * 10) >> bits;
    match tenths % 10 {
        0 => format!("{}{unit}", tenths / 10),
        part => format!("{}.{part}{unit}", tenths / 10),
    }
}

pub(super) fn gpus(count: u128) -> String {
    counted(count, "GPU")
}

/// `1 job`, `2 jobs`.
pub(super) fn counted(count: u128, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        _ => format!("{count} {noun}s"),
    }
}

/// The amounts of which more is asked than there is, as (asked, there, short of) in words.
fn shortages(asked: &Load, there: &Load) -> Vec<(String, String, String)> {
    let mut short = Vec::new();
    if asked.cpu > there.cpu {
        let lack = cores(asked.cpu - there.cpu);
        short.push((cores(asked.cpu), bare_cores(there.cpu), lack));
    }
    if asked.memory > there.memory {
        let lack = format!("{} of memory", memory(asked.memory - there.memory));
        short.push((
            format!("{} of memory", memory(asked.memory)),
            memory(there.memory),
            lack,
        ));
    }
    if asked.gpu > there.gpu {
        short.push((
            gpus(asked.gpu),
            there.gpu.to_string(),
            gpus(asked.gpu - there.gpu),
        ));
    }
    short
}

/// `10 cores asked, 2 here`: how a job exceeds all nodes together, or the largest of them.
pub(super) fn more_than_here(shape: &Shape, idle: &RoomTree) -> String {
    let short = shortages(&shape.total, idle.total());
    if !short.is_empty() {
        let asked = |(asked, there, _): &(String, String, String)| format!("{asked} asked, {there} here");
        return short.iter().map(asked).collect::<Vec<_>>().join("; ");
    }
    larger_than_any(shape, idle)
        .unwrap_or_else(|| "the workers do not fit on the machines one by one".to_owned())
}

/// What follows from asking for more than there is, where big jobs are not refused.
pub(super) fn runs_alone(problem: &str) -> String {
    format!("{problem}: it runs alone, other jobs wait")
}

/// `16 cores asked for one worker, 8 on the largest machine`, if a worker is larger than every node.
pub(super) fn larger_than_any(shape: &Shape, idle: &RoomTree) -> Option<String> {
    let most = Load::of(idle.most(), 1);
    let parts = shape.parts.iter();
    let mut short = parts.flat_map(|part| shortages(&Load::of(&part.need, 1), &most));
    let (asked, there, _) = short.next()?;
    Some(format!(
        "{asked} asked for one worker, {there} on the largest machine"
    ))
}

/// `waits for 3 cores: 4 asked, 1 free of 8`, or `None` when there is enough of everything in sum.
pub(super) fn waits_for(shape: &Shape, free: &RoomTree, idle: &RoomTree) -> Option<String> {
    let there = free.total();
    let (_, _, lack) = shortages(&shape.total, there).into_iter().next()?;
    let numbers = if shape.total.cpu > there.cpu {
        let bare = bare_cores;
        (bare(shape.total.cpu), bare(there.cpu), bare(idle.total().cpu))
    } else if shape.total.memory > there.memory {
        (
            memory(shape.total.memory),
            memory(there.memory),
            memory(idle.total().memory),
        )
    } else {
        let text = |count: u128| count.to_string();
        (text(shape.total.gpu), text(there.gpu), text(idle.total().gpu))
    };
    let (asked, free, all) = numbers;
    Some(format!("waits for {lack}: {asked} asked, {free} free of {all}"))
}

/// `your quota of 10 cores: 8 in use, 4 asked`.
pub(super) fn quota(limit: &Limit) -> String {
    let Limit { used, asked, .. } = *limit;
    let (used, asked) = match limit.kind {
        Kind::Cpu => (bare_cores(used), bare_cores(asked)),
        Kind::Memory => (memory(used), memory(asked)),
        Kind::Gpu | Kind::Trainers => (used.to_string(), asked.to_string()),
    };
    format!(
        "your quota of {}: {used} in use, {asked} asked",
        limit_words(limit)
    )
}

/// `10 cores`, as the limit of a quota.
pub(super) fn limit_words(limit: &Limit) -> String {
    match limit.kind {
        Kind::Cpu => cores(limit.limit),
        Kind::Memory => format!("{} of memory", memory(limit.limit)),
        Kind::Gpu => gpus(limit.limit),
        Kind::Trainers => counted(limit.limit, "trainer"),
    }
}

/// `2 cores asked`, as what a request wants of a limited thing.
pub(super) fn asked_words(limit: &Limit) -> String {
    match limit.kind {
        Kind::Cpu => cores(limit.asked),
        Kind::Memory => format!("{} of memory", memory(limit.asked)),
        Kind::Gpu => gpus(limit.asked),
        Kind::Trainers => counted(limit.asked, "trainer"),
    }
}

/// `7 trainers of 2 cores and 4Gi beside 2 parameter servers`.
pub(super) fn trainers_beside(request: &Request, trainers: u32) -> String {
    let Some(((_, each), servers)) = request.roles.split_last() else {
        return "no workers".to_owned();
    };
    let mut text = format!(
        "{} of {} and {}",
        counted(u128::from(trainers), "trainer"),
        cores(u128::from(each.cpu.as_millis())),
        memory(u128::from(each.memory.as_u64())),
    );
    if each.gpu > 0 {
        text += &format!(" with {}", gpus(u128::from(each.gpu)));
    }
    text + &match servers.iter().map(|(count, _)| u128::from(*count)).sum() {
        0 => " fit".to_owned(),
        count => format!(" fit beside {}", counted(count, "parameter server")),
    }
}
