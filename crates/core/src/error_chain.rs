//! An error with its causes on one line, for logs and for the user who starts the program.

/// An error and everything that caused it, on one line.
pub fn chain_of(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.fold(String::new(), |text, cause| {
        let cause = cause.to_string();
        match () {
            () if text.is_empty() => cause,
            // Some errors of other crates include their cause in their own message.
            () if text.ends_with(&cause) => text,
            () => format!("{text}: {cause}"),
        }
    })
}
