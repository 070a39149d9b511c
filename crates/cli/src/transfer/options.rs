//! The flags that every command which moves files takes.

use std::num::NonZeroUsize;

use paddlecloud_core::quantity::Bytes;
use paddlecloud_transfer::TransferOptions;

use super::filter::FilterArgs;

/// How files are moved, and which.
#[derive(Debug, Clone, clap::Args)]
pub struct TransferArgs {
    #[command(flatten)]
    pub filter: FilterArgs,

    /// Compare contents instead of sizes and times
    #[arg(long)]
    pub checksum: bool,

    /// Never overwrite
    #[arg(long, short = 'n', visible_alias = "no-overwrite")]
    pub no_clobber: bool,

    /// Print what would be done, do nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Limit in bytes per second: `500K`, `10M`
    #[arg(long, value_name = "RATE", value_parser = rate)]
    pub bwlimit: Option<u64>,

    /// Concurrent requests, at most 256
    #[arg(long, value_name = "NUMBER", value_parser = at_a_time)]
    pub transfers: Option<NonZeroUsize>,
}

impl TransferArgs {
    /// The first given flag that selects files or previews the transfer.
    pub fn unfit_for_stdin(&self) -> Option<&'static str> {
        match (self.filter.is_given(), self.dry_run) {
            (true, _) => Some("--exclude`, `--include` or `--files-from"),
            (false, true) => Some("--dry-run"),
            (false, false) => None,
        }
    }

    /// The same with flags for writing files.
    pub fn unfit_for_stdout(&self) -> Option<&'static str> {
        let flags = [
            (self.no_clobber, "-n"),
            (self.checksum, "--checksum"),
            (self.transfers.is_some(), "--transfers"),
            (self.bwlimit.is_some(), "--bwlimit"),
        ];
        let given = flags.into_iter().find(|(is_given, _)| *is_given);
        given.map_or_else(|| self.unfit_for_stdin(), |(_, flag)| Some(flag))
    }

    pub fn options(&self) -> TransferOptions {
        let usual = TransferOptions::default();
        TransferOptions {
            checksum: self.checksum,
            no_overwrite: self.no_clobber,
            bwlimit: self.bwlimit,
            transfers: self.transfers.unwrap_or(usual.transfers),
            dry_run: self.dry_run,
            new_folders: usual.new_folders,
        }
    }
}

/// Every request has a connection; many systems allow a program 1024 descriptors.
const MOST_AT_A_TIME: usize = 256;

fn at_a_time(text: &str) -> Result<NonZeroUsize, String> {
    let number = text.parse::<NonZeroUsize>().ok();
    number
        .filter(|number| number.get() <= MOST_AT_A_TIME)
        .ok_or_else(|| format!("it must be a number from 1 to {MOST_AT_A_TIME}"))
}

fn rate(text: &str) -> Result<u64, String> {
    let bytes: Bytes = text.parse().map_err(|_| {
        format!("`{text}` is not a rate: write a number of bytes per second and K, M, G or Ki, Mi, Gi")
    })?;
    match bytes.as_u64() {
        0 => Err("it must be greater than 0".to_owned()),
        rate => Ok(rate),
    }
}

#[cfg(test)]
mod tests {
    use super::{at_a_time, rate};

    #[test]
    fn rates_are_read_as_people_write_them() {
        assert_eq!(rate("500K"), Ok(500_000));
        assert_eq!(rate("2Mi"), Ok(2 << 20));
        assert!(rate("0").is_err());
        assert!(rate("fast").is_err());
    }

    #[test]
    fn the_number_of_concurrent_requests_is_bounded() {
        assert_eq!(at_a_time("256").map(|number| number.get()), Ok(256));
        for text in ["0", "257", "10000", "-1", "many"] {
            assert_eq!(
                at_a_time(text),
                Err("it must be a number from 1 to 256".to_owned()),
                "{text}"
            );
        }
    }
}
