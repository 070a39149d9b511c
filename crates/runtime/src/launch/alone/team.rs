//! The members of a job, in the same order in every pod.

use std::net::Ipv4Addr;

/// The addresses of all workers, and which of them is this pod's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Team {
    pub pservers: Vec<Ipv4Addr>,
    pub trainers: Vec<Ipv4Addr>,
    /// This pod's index in its role; a pod with both roles has the same index in both.
    pub index: u32,
    pub own: Ipv4Addr,
}

impl Team {
    /// The parameter servers in the format of `--pservers`.
    pub fn pserver_list(&self) -> String {
        joined(&self.pservers)
    }

    pub fn trainer_list(&self) -> String {
        joined(&self.trainers)
    }
}

fn joined(addresses: &[Ipv4Addr]) -> String {
    let words: Vec<String> = addresses.iter().map(Ipv4Addr::to_string).collect();
    words.join(",")
}

/// Orders pods without a completion index: by address, sorted as text.
pub fn sorted_as_text(mut addresses: Vec<Ipv4Addr>) -> Vec<Ipv4Addr> {
    addresses.sort_by_key(Ipv4Addr::to_string);
    addresses
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_sort_as_text_and_not_as_numbers() {
        let given: Vec<Ipv4Addr> = ["10.0.0.9", "10.0.0.10", "10.0.0.100"]
            .map(|address| address.parse().unwrap())
            .into();
        let words: Vec<String> = sorted_as_text(given).iter().map(Ipv4Addr::to_string).collect();
        assert_eq!(words, ["10.0.0.10", "10.0.0.100", "10.0.0.9"]);
    }
}
