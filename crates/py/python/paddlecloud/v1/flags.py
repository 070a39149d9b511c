"""The flags of `paddle train`: as typed, from a job's environment, and their defaults."""

from __future__ import annotations

import difflib
import os
import sys

from paddlecloud.v1.configuration import ConfigError

DEFAULTS = {
    "config": "trainer_config.py",
    "config_args": "",
    "job": "train",
    "num_passes": "100",
    "start_pass": "0",
    "save_dir": "",
    "saving_period": "1",
    "log_period": "100",
    "test_period": "0",
    "test_pass": "-1",
    "dot_period": "0",
    "init_model_path": "",
    "predict_output_dir": "",
    "checkgrad_eps": "1e-2",
    "local": "",
    "use_gpu": "0",
    "seed": "1",
    "trainer_count": "1",
    "trainer_id": "0",
    "pservers": "",
    "port": "7164",
    "ports_num": "1",
    "ports_num_for_sparse": "1",
    "num_gradient_servers": "1",
    "nics": "",
}
# Accepted as typed. They have no meaning here: graphics cards, memory and threads of 2017, its logs, and how it talked to its servers.
IGNORED = {
    "allow_inefficient_sparse_update", "allow_only_one_model_on_one_gpu", "alsologtostderr", "async_count", "async_lagged_ratio_default",
    "async_lagged_ratio_min", "average_test_period", "beam_size", "check_sparse_distribution_batches",
    "check_sparse_distribution_in_pserver", "check_sparse_distribution_ratio", "check_sparse_distribution_unbalance_degree",
    "colorlogtostderr", "comment", "cuda_dir", "cudnn_conv_workspace_limit_in_mb", "cudnn_dir", "data_server_port", "distribute_test",
    "enable_grad_share", "enable_parallel_vector", "feed_data", "fraction_of_cpu_memory_to_use", "fraction_of_gpu_memory_to_use", "gpu_id",
    "grad_share_block_num", "lapack_dir", "layer_stack_error_only_current_thread", "load_missing_parameter_strategy",
    "loadsave_parameters_in_pserver", "log_barrier_abstract", "log_barrier_lowest_nodes", "log_barrier_show_log", "log_clipping",
    "log_dir", "log_error_clipping", "log_link", "log_period_server", "log_prefix", "logbuflevel", "logbufsecs", "logtostderr",
    "max_log_size", "memory_threshold_on_load_data", "minloglevel", "model_list", "nccl_dir", "nnpack_allocate_outside",
    "nnpack_num_threads", "num_pservers", "parallel_nn", "parallel_thread_num", "pool_limit_size", "prev_batch_state", "profile_data_file",
    "profile_signal", "pserver_num_threads", "python_bin", "python_path", "rdma_tcp", "rnn_use_batch",
    "show_check_sparse_distribution_log", "show_layer_stat", "show_parameter_stats_period", "small_messages", "sock_listen_queue_size",
    "sock_recv_buf_size", "sock_send_buf_size", "start_pserver", "stderrthreshold", "stop_logging_if_full_disk",
    "test_all_data_in_one_period", "test_wait", "thread_local_rand_use_global_seed", "undefok", "use_mkldnn", "use_nnpack",
    "use_old_updater", "use_pinned_memory", "v", "version", "vmodule", "warpctc_dir", "with_cost",
}  # fmt: skip
# Known in 2017, with an effect that there is none of here.
REFUSED = {
    "diy_beam_search_prob_so", "feat_file", "flagfile", "fromenv", "predict_file", "save_only_one", "saving_period_by_batches",
    "tryfromenv",
}  # fmt: skip
JOBS = ("train", "test", "checkgrad")

_KNOWN = DEFAULTS.keys() | IGNORED | REFUSED

# What a job's trainers were started with, in this order.
_OF_A_JOB = (
    "port", "nics", "ports_num", "ports_num_for_sparse", "num_passes", "trainer_count", "saving_period", "log_period", "local", "config",
    "use_gpu", "trainer_id", "save_dir", "pservers", "num_gradient_servers",
)  # fmt: skip
_JOB_DEFAULTS = {"local": "0", "log_period": "20"}


class Flags(dict):
    """Values by name. `typed` are the words of the command line."""

    def __init__(self, words: list[str], environment=os.environ):
        in_job = bool(environment.get("PADDLE_INIT_PSERVERS"))
        super().__init__({**DEFAULTS, **(_JOB_DEFAULTS if in_job else {})})
        for name in DEFAULTS:
            if f"PADDLE_INIT_{name.upper()}" in environment:
                self[name] = environment[f"PADDLE_INIT_{name.upper()}"]
        self.typed = _parse(words)
        for name, value in self.typed.items():
            if name not in IGNORED:
                self[name] = value
        if self["job"] not in JOBS:
            raise ConfigError(f"`--job` must be train, test or checkgrad, not {self['job']!r}")
        for name in ("num_passes", "start_pass", "saving_period", "log_period", "dot_period", "seed", "port", "ports_num"):
            if not self[name].lstrip("-").isdigit():
                raise ConfigError(f"`--{name}` must be a whole number, not {self[name]!r}")
        self._in_job = in_job

    def number(self, name: str) -> int:
        return int(self[name])

    def words(self) -> list[str]:
        """The command line: what was typed, then in a job what its environment says."""
        rest = [name for name in _OF_A_JOB if name not in self.typed] if self._in_job else []
        pairs = [*self.typed.items(), *((name, self[name]) for name in rest)]
        return [_program(), *(f"--{name}={value}" for name, value in pairs)]

    def publish(self, environment=os.environ) -> None:
        """Puts what was typed where the parameter server's client looks for it."""
        if environment.get("CONF_PADDLE_GRADIENT_NUM"):
            environment.setdefault("PADDLE_INIT_NUM_GRADIENT_SERVERS", environment["CONF_PADDLE_GRADIENT_NUM"])
        names = ("trainer_id", "pservers", "port", "ports_num", "ports_num_for_sparse", "num_gradient_servers", "trainer_count")
        for name in names:
            if name in self.typed:
                environment[f"PADDLE_INIT_{name.upper()}"] = self[name]
        if "pservers" in self.typed or "port" in self.typed:
            hosts = [host.strip() for host in self["pservers"].split(",") if host.strip()]
            if hosts:
                environment["PADDLE_PSERVERS_IP_PORT_LIST"] = ",".join(f"{host}:{self['port']}" for host in hosts)


def _parse(words):
    """Flags as gflags reads them: `--name=value`, `--name value`, one or two dashes."""
    found = {}
    waiting = list(words)
    while waiting:
        word = waiting.pop(0)
        name, has_value, value = word.removeprefix("-").removeprefix("-").partition("=")
        if not word.startswith("-"):
            raise ConfigError(f"`{word}` is not a flag; flags look like `--config=trainer_config.py`")
        if name.startswith("no") and name not in _KNOWN and name[2:] in _KNOWN:
            name, has_value, value = name[2:], "=", "0"
        if not has_value:
            value = waiting.pop(0) if waiting and not waiting[0].startswith("-") else "1"
        if name in REFUSED:
            raise ConfigError(f"`--{name}` of 2017 is not supported")
        if name not in _KNOWN:
            raise ConfigError(f"unknown flag `--{name}`{_close_name(name)}")
        found[name] = value
    return found


def _close_name(name):
    close = difflib.get_close_matches(name, DEFAULTS, 1) or difflib.get_close_matches(name, IGNORED, 1)
    return f"; did you mean `--{close[0]}`?" if close else f"; the flags are {', '.join(f'--{each}' for each in sorted(DEFAULTS))}"


def _program() -> str:
    return os.path.abspath(sys.argv[0]) if sys.argv and sys.argv[0] else sys.executable
