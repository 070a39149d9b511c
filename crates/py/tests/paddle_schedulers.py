"""The rows of `paddle.optimizer.lr`: a base for every scheduler, and another value of every argument."""

import paddle
from paddle_programs import Make

lr = paddle.optimizer.lr

# Of each scheduler: the arguments of the base, and for each argument its other value. A dictionary holds the arguments of
# the base and of the program.
SCHEDULERS = {
    "NoamDecay": (
        {"d_model": 16, "warmup_steps": 8, "learning_rate": 0.5},
        {"d_model": 64, "warmup_steps": 4, "learning_rate": 0.2, "last_epoch": 5},
    ),
    "PiecewiseDecay": (
        {"boundaries": [5, 10], "values": [0.1, 0.05, 0.01]},
        {"boundaries": [2, 4], "values": [0.05, 0.05, 0.01], "last_epoch": 4},
    ),
    "NaturalExpDecay": (
        {"learning_rate": 0.1, "gamma": 0.1},
        {"learning_rate": 0.05, "gamma": 0.5, "last_epoch": 5},
    ),
    "InverseTimeDecay": (
        {"learning_rate": 0.1, "gamma": 0.1},
        {"learning_rate": 0.05, "gamma": 0.5, "last_epoch": 5},
    ),
    "PolynomialDecay": (
        {"learning_rate": 0.1, "decay_steps": 8},
        {"learning_rate": 0.05, "decay_steps": 16, "end_lr": 0.02, "power": 2.0, "cycle": True, "last_epoch": 3},
    ),
    "LinearWarmup": (
        {"learning_rate": 0.1, "warmup_steps": 8, "start_lr": 0.0, "end_lr": 0.1},
        {"learning_rate": 0.05, "warmup_steps": 4, "start_lr": 0.05, "end_lr": 0.05, "last_epoch": 4},
    ),
    "ExponentialDecay": (
        {"learning_rate": 0.1, "gamma": 0.9},
        {"learning_rate": 0.05, "gamma": 0.5, "last_epoch": 5},
    ),
    "MultiStepDecay": (
        {"learning_rate": 0.1, "milestones": [5, 10]},
        {"learning_rate": 0.05, "milestones": [2, 4], "gamma": 0.5, "last_epoch": 4},
    ),
    "StepDecay": (
        {"learning_rate": 0.1, "step_size": 5},
        {"learning_rate": 0.05, "step_size": 3, "gamma": 0.5, "last_epoch": 3},
    ),
    "LambdaDecay": (
        {"learning_rate": 0.1, "lr_lambda": lambda step: 0.9**step},
        {"learning_rate": 0.05, "lr_lambda": lambda step: 0.5**step, "last_epoch": 5},
    ),
    "ReduceOnPlateau": (
        {"learning_rate": 0.1, "patience": 2, "threshold": 0.03},
        {
            "learning_rate": 0.05,
            "mode": "max",
            "factor": 0.5,
            "patience": 4,
            "threshold": 0.0,
            "threshold_mode": "abs",
            "cooldown": ({"patience": 1}, {"patience": 1, "cooldown": 8}),
            "min_lr": 0.05,
            "epsilon": 1.0,
        },
    ),
    "CosineAnnealingDecay": (
        {"learning_rate": 0.1, "T_max": 10},
        {"learning_rate": 0.05, "T_max": 20, "eta_min": 0.05, "last_epoch": 5},
    ),
    "MultiplicativeDecay": (
        {"learning_rate": 0.1, "lr_lambda": lambda step: 0.9},
        {"learning_rate": 0.05, "lr_lambda": lambda step: 0.5, "last_epoch": 5},
    ),
    "OneCycleLR": (
        {"max_learning_rate": 0.1, "total_steps": 30},
        {
            "max_learning_rate": 0.05,
            "total_steps": 25,
            "divide_factor": 2.0,
            "end_learning_rate": 0.05,
            "phase_pct": 0.6,
            "anneal_strategy": "linear",
            "three_phase": True,
            "last_epoch": 5,
        },
    ),
    "CyclicLR": (
        {"base_learning_rate": 0.01, "max_learning_rate": 0.1, "step_size_up": 4},
        {
            "base_learning_rate": 0.05,
            "max_learning_rate": 0.05,
            "step_size_up": 2,
            "step_size_down": 2,
            "mode": "triangular2",
            "exp_gamma": ({"mode": "exp_range"}, {"mode": "exp_range", "exp_gamma": 0.9}),
            "scale_fn": lambda cycle: 0.5,
            "scale_mode": (
                {"scale_fn": lambda at: 0.9**at},
                {"scale_fn": lambda at: 0.9**at, "scale_mode": "iterations"},
            ),
            "last_epoch": 3,
        },
    ),
    "LinearLR": (
        {"learning_rate": 0.1, "total_steps": 10},
        {"learning_rate": 0.05, "total_steps": 4, "start_factor": 0.9, "end_factor": 0.5, "last_epoch": 5},
    ),
    "CosineAnnealingWarmRestarts": (
        {"learning_rate": 0.1, "T_0": 5},
        {"learning_rate": 0.05, "T_0": 8, "T_mult": 2, "eta_min": 0.05, "last_epoch": 3},
    ),
}


class Halving(lr.LRScheduler):
    """A scheduler of the program's own."""

    def get_lr(self):
        return self.base_lr * 0.5 ** (self.last_epoch // 4)


def step_with_metric(run):
    run.scheduler.step(1.0 - 0.01 * run.step)


def program_of(base, kind, arguments):
    """A program with a scheduler that is made for every run."""
    changes = {"after_step": step_with_metric} if kind is lr.ReduceOnPlateau else {}
    return base.but(scheduler=Make(lambda: kind(**arguments)), **changes)


def schedulers():
    from paddle_table import BASE, Nothing, Works

    sgd = BASE["SGD"]
    for name, (base, others) in SCHEDULERS.items():
        kind = getattr(lr, name)
        plain = program_of(sgd, kind, base)
        yield f"lr.{name}", Works(plain, sgd)
        for argument, value in others.items():
            first, second = value if isinstance(value, tuple) else ({}, {argument: value})
            program = program_of(sgd, kind, base | second)
            yield f"lr.{name}({argument})", Works(program, program_of(sgd, kind, base | first) if first else plain)
        yield f"lr.{name}(verbose)", Nothing("prints")
    own = program_of(sgd, Halving, {"learning_rate": 0.1})
    yield "lr.LRScheduler", Works(own, sgd)
    for argument, value in {"learning_rate": 0.05, "last_epoch": 5}.items():
        program = program_of(sgd, Halving, {"learning_rate": 0.1} | {argument: value})
        yield f"lr.LRScheduler({argument})", Works(program, own)
    yield "lr.LRScheduler(verbose)", Nothing("prints")
    plateau = program_of(sgd, lr.ReduceOnPlateau, SCHEDULERS["ReduceOnPlateau"][0])
    unchanged = plateau.but(after_step=lambda run: None)
    yield "lr.ReduceOnPlateau.step", Works(plateau, unchanged)
    # The metric of a step counts, not its number, which the cooldown ignores too.
    numbered = plateau.but(after_step=lambda run: run.scheduler.step(1.0 - 0.01 * run.step, epoch=run.step * 3))
    yield "lr.ReduceOnPlateau.step(epoch)", Nothing("sets a number that nothing reads", numbered, plateau)
    yield from methods_of_schedulers(own, Works)


def methods_of_schedulers(own, works):
    def restored(method):
        """The state of step 3 is loaded at step 10."""

        def after_step(run):
            if run.step == 3:
                run.saved = run.scheduler.state_dict()
            if run.step == 10:
                getattr(run.scheduler, method)(run.saved)
            run.scheduler.step()

        return after_step

    def by_rate(run):
        run.scheduler.base_lr = run.scheduler.get_lr() * 0.9
        run.scheduler.step()

    def with_keys(run):
        run.scheduler.state_keys()
        run.scheduler.step(run.step // 2)

    yield "lr.LRScheduler.step", works(own, own.but(after_step=lambda run: None))
    yield "lr.LRScheduler.step(epoch)", works(own.but(after_step=lambda run: run.scheduler.step(run.step * 3)), own)
    for method in ("set_state_dict", "set_dict"):
        yield f"lr.LRScheduler.{method}", works(own.but(after_step=restored(method)), own)
    yield "lr.LRScheduler.state_dict", works(own.but(after_step=restored("set_state_dict")), own)
    yield "lr.LRScheduler.state_keys", works(own.but(after_step=with_keys), own)
    yield "lr.LRScheduler.get_lr", works(own.but(after_step=by_rate), own)
