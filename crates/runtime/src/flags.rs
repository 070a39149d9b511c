//! Options as 2017 wrote them: `--name=value` or `--name value`, with one dash or two. What nobody knows is refused.

use std::collections::BTreeMap;

/// What a command line contains, by name.
pub type Flags = BTreeMap<String, String>;

/// A word that means nothing here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlagError {
    #[error("unknown option `--{name}`{}", did_you_mean(.near, "--"))]
    Unknown { name: String, near: Option<String> },
    #[error("`{word}` is not an option{}", did_you_mean(.near, ""))]
    Word { word: String, near: Option<String> },
    #[error("`--{0}` needs a value")]
    NoValue(String),
}

fn did_you_mean(near: &Option<String>, dashes: &str) -> String {
    match near {
        Some(name) => format!("; did you mean `{dashes}{name}`?"),
        None => String::new(),
    }
}

/// The options a program has.
pub struct Known<'a> {
    pub valued: &'a [&'a str],
    pub switches: &'a [&'a str],
    /// Words that come first and are named if one is misspelled.
    pub commands: &'a [&'a str],
}

impl Known<'_> {
    /// Reads the options; those of 2017 that are not ours may have a value or not.
    pub fn parse(&self, words: &[&str]) -> Result<Flags, FlagError> {
        let mut flags = Flags::new();
        let mut words = words.iter().copied().peekable();
        while let Some(word) = words.next() {
            let (name, given) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            let name = self.name(word, name)?;
            let value = match given {
                Some(value) => value,
                None if self.switches.contains(&name) => "1",
                None => match words.next_if(|next| !next.starts_with('-')) {
                    Some(value) => value,
                    None if self.valued.contains(&name) => return Err(FlagError::NoValue(name.to_owned())),
                    None => "1",
                },
            };
            flags.insert(name.to_owned(), value.to_owned());
        }
        Ok(flags)
    }

    fn name<'w>(&self, word: &str, name: &'w str) -> Result<&'w str, FlagError> {
        let Some(name) = name.strip_prefix("--").or_else(|| name.strip_prefix('-')) else {
            return Err(FlagError::Word {
                word: word.to_owned(),
                near: nearest(word, self.commands.iter().copied()),
            });
        };
        // Switches of 2017 could be turned off by `--nouse_gpu`.
        let positive = name.strip_prefix("no").filter(|name| OF_2017.contains(name));
        let is_known = |name: &str| {
            [self.valued, self.switches, OF_2017]
                .iter()
                .any(|names| names.contains(&name))
        };
        if is_known(name) || positive.is_some() {
            return Ok(name);
        }
        let own = self.valued.iter().chain(self.switches).copied();
        let near = nearest(name, own.clone()).or_else(|| nearest(name, OF_2017.iter().copied()));
        let name = name.to_owned();
        Err(FlagError::Unknown { name, near })
    }
}

/// The name with the fewest wrong letters, one in three at most.
pub fn nearest<'a>(typed: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let near = known.map(|name| (strsim::damerau_levenshtein(typed, name), name));
    let near = near.filter(|(distance, name)| *distance <= (typed.len().min(name.len()) / 3).max(1));
    near.min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name.to_owned())
}

/// All options of `paddle train` and `paddle pserver` in v0.9 to v0.11, and of the two libraries behind them. One list, because both
/// programs took them all. `paddlecloud/v1/flags.py` has the same.
const OF_2017: &[&str] = &[
    "allow_inefficient_sparse_update",
    "allow_only_one_model_on_one_gpu",
    "alsologtostderr",
    "async_count",
    "async_lagged_ratio_default",
    "async_lagged_ratio_min",
    "average_test_period",
    "beam_size",
    "check_sparse_distribution_batches",
    "check_sparse_distribution_in_pserver",
    "check_sparse_distribution_ratio",
    "check_sparse_distribution_unbalance_degree",
    "checkgrad_eps",
    "colorlogtostderr",
    "comment",
    "config",
    "config_args",
    "cuda_dir",
    "cudnn_conv_workspace_limit_in_mb",
    "cudnn_dir",
    "data_server_port",
    "distribute_test",
    "diy_beam_search_prob_so",
    "dot_period",
    "enable_grad_share",
    "enable_parallel_vector",
    "feat_file",
    "feed_data",
    "flagfile",
    "fraction_of_cpu_memory_to_use",
    "fraction_of_gpu_memory_to_use",
    "fromenv",
    "gpu_id",
    "grad_share_block_num",
    "init_model_path",
    "job",
    "lapack_dir",
    "layer_stack_error_only_current_thread",
    "load_missing_parameter_strategy",
    "loadsave_parameters_in_pserver",
    "local",
    "log_barrier_abstract",
    "log_barrier_lowest_nodes",
    "log_barrier_show_log",
    "log_clipping",
    "log_dir",
    "log_error_clipping",
    "log_link",
    "log_period",
    "log_period_server",
    "log_prefix",
    "logbuflevel",
    "logbufsecs",
    "logtostderr",
    "max_log_size",
    "memory_threshold_on_load_data",
    "minloglevel",
    "model_list",
    "nccl_dir",
    "nics",
    "nnpack_allocate_outside",
    "nnpack_num_threads",
    "num_gradient_servers",
    "num_passes",
    "num_pservers",
    "parallel_nn",
    "parallel_thread_num",
    "pool_limit_size",
    "port",
    "ports_num",
    "ports_num_for_sparse",
    "predict_file",
    "predict_output_dir",
    "prev_batch_state",
    "profile_data_file",
    "profile_signal",
    "pserver_num_threads",
    "pservers",
    "python_bin",
    "python_path",
    "rdma_tcp",
    "rnn_use_batch",
    "save_dir",
    "save_only_one",
    "saving_period",
    "saving_period_by_batches",
    "seed",
    "show_check_sparse_distribution_log",
    "show_layer_stat",
    "show_parameter_stats_period",
    "small_messages",
    "sock_listen_queue_size",
    "sock_recv_buf_size",
    "sock_send_buf_size",
    "start_pass",
    "start_pserver",
    "stderrthreshold",
    "stop_logging_if_full_disk",
    "test_all_data_in_one_period",
    "test_pass",
    "test_period",
    "test_wait",
    "thread_local_rand_use_global_seed",
    "trainer_count",
    "trainer_id",
    "tryfromenv",
    "undefok",
    "use_gpu",
    "use_mkldnn",
    "use_nnpack",
    "use_old_updater",
    "use_pinned_memory",
    "v",
    "version",
    "vmodule",
    "warpctc_dir",
    "with_cost",
];

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known<'static> = Known {
        valued: &["port", "ports_num"],
        switches: &["until_trainers_leave"],
        commands: &["stat", "export"],
    };

    fn parse(line: &str) -> Result<Flags, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        KNOWN.parse(&words).map_err(|error| error.to_string())
    }

    #[test]
    fn both_forms_and_one_or_two_dashes_are_read() {
        let flags = parse(
            "-port=7170 --ports_num 2 --until_trainers_leave --nics=eth0 --use_gpu --nolocal --comment x",
        )
        .unwrap();
        assert_eq!(flags["port"], "7170");
        assert_eq!(flags["ports_num"], "2");
        assert_eq!(flags["until_trainers_leave"], "1");
        assert_eq!((flags["nics"].as_str(), flags["comment"].as_str()), ("eth0", "x"));
    }

    #[test]
    fn what_nobody_knew_is_named_with_the_nearest() {
        for (line, message) in [
            ("--prot=7164", "unknown option `--prot`; did you mean `--port`?"),
            (
                "-ports_nun 3",
                "unknown option `--ports_nun`; did you mean `--ports_num`?",
            ),
            (
                "--gpu_ids=3",
                "unknown option `--gpu_ids`; did you mean `--gpu_id`?",
            ),
            ("--something_else", "unknown option `--something_else`"),
            ("statt", "`statt` is not an option; did you mean `stat`?"),
            ("--port --nics=eth0", "`--port` needs a value"),
        ] {
            assert_eq!(parse(line), Err(message.to_owned()), "{line}");
        }
    }

    #[test]
    fn the_trainers_program_knows_the_same_options_of_2017() {
        let trainer = include_str!("../../py/python/paddlecloud/v1/flags.py");
        for name in OF_2017 {
            assert!(
                trainer.contains(&format!("\"{name}\"")),
                "flags.py lacks `{name}`"
            );
        }
    }
}
