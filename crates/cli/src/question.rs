//! Asks for a yes or a no at a terminal. Elsewhere nobody is asked.

use std::io::IsTerminal;

use crate::error::CliError;
use crate::world::World;

/// Whether somebody sees the question and can answer it.
pub fn can_be_asked(world: &World) -> bool {
    world.err.is_terminal && std::io::stdin().is_terminal()
}

/// The answer; anything but `y` or `yes` means no.
pub fn is_agreed(question: &str, world: &mut World) -> Result<bool, CliError> {
    world.err.ask(&format!("{question} [y/N]"));
    let mut answer = String::new();
    std::io::stdin()
        .read_line(&mut answer)
        .map_err(|error| CliError::refused(format!("cannot read the answer: {error}")))?;
    let answer = answer.trim();
    Ok(answer.eq_ignore_ascii_case("y") || answer.eq_ignore_ascii_case("yes"))
}
