"""The rows of an optimizer's methods and attributes, and of programs that use more than a setting."""

import numpy as np
import paddle
from paddle.nn import ClipGradByNorm
from paddle.regularizer import L2Decay
from paddle_programs import Make, backward, rows_of


def at(step, action):
    """An update that first does something at one step."""

    def update(run):
        if run.step == step:
            action(run)
        run.optimizer.step()

    return update


def copied(state):
    """Paddle's dictionary has the accumulators themselves, and training changes them later."""
    return {key: value.clone() if isinstance(value, paddle.Tensor) else value for key, value in state.items()}


def restored(method):
    """The state of step 5 is loaded at step 12."""

    def update(run):
        if run.step == 5:
            run.saved = copied(run.optimizer.state_dict())
        if run.step == 12:
            getattr(run.optimizer, method)(run.saved)
        run.optimizer.step()

    return update


def methods():
    from paddle_table import BASE, KINDS, Nothing, Refused, Works

    base = BASE["Adam"]
    unchanged = base.but(update=lambda run: None)
    kept = base.but(clear=False)
    steps = {
        "step": lambda run: run.optimizer.step(),
        "minimize": lambda run: run.optimizer.minimize(run.loss),
        "backward": lambda run: run.optimizer.apply_gradients(run.optimizer.backward(run.loss)),
        "apply_gradients": lambda run: run.optimizer.apply_gradients(
            [(parameter, parameter.grad) for parameter in run.model[2].parameters()]
        ),
    }
    for name, update in steps.items():
        yield f".{name}", Works(base.but(update=update), unchanged)
        clipped = base.with_arguments(grad_clip=ClipGradByNorm(0.1), weight_decay=0.2)
        yield f".{name} with `grad_clip`", Works(clipped.but(update=update), base.but(update=update))
    some = base.but(update=lambda run: run.optimizer.minimize(run.loss, parameters=run.model[2].parameters()))
    yield ".minimize(parameters)", Works(some, base)
    for name in ("clear_grad", "clear_gradients", "zero_grad"):
        clear = kept.but(after_step=lambda run, name=name: getattr(run.optimizer, name)())
        yield f".{name}", Works(clear, kept)
    none = kept.but(after_step=lambda run: run.optimizer.clear_grad(set_to_zero=False))
    yield ".clear_grad(set_to_zero)", Works(none, kept)
    rarely = kept.but(backward=sometimes)
    zeros = rarely.but(after_step=lambda run: run.optimizer.zero_grad(set_to_none=False))
    none = rarely.but(after_step=lambda run: run.optimizer.zero_grad(set_to_none=True))
    yield ".zero_grad(set_to_none)", Works(zeros, none)
    yield from arguments_of_methods(base, Works, Nothing)
    yield ".set_lr", Works(base.but(update=at(7, lambda run: run.optimizer.set_lr(0.2))), base)
    shrinks = base.but(after_step=lambda run: run.optimizer.set_lr(run.optimizer.get_lr() * 0.9))
    yield ".get_lr", Works(shrinks, base)
    decay = lambda: paddle.optimizer.lr.ExponentialDecay(0.05, 0.8)  # noqa: E731

    def use_scheduler(run):
        run.scheduler = decay()
        run.optimizer.set_lr_scheduler(run.scheduler)

    yield ".set_lr_scheduler", Works(base.but(update=at(4, use_scheduler)), base)
    replaced = base.but(scheduler=Make(decay))
    yield ".set_lr_scheduler of another", Works(replaced.but(update=at(9, use_scheduler)), replaced)
    for kind in KINDS[1:]:
        own = BASE[kind].but(scheduler=Make(decay)) if kind == "Adam" else BASE[kind]
        for method in ("set_state_dict", "load_state_dict"):
            name = f".{method}" if kind == "Adam" else f".{method} of {kind}"
            yield name, Works(own.but(update=restored(method)), own)
    yield ".state_dict", Works(base.but(update=restored("set_state_dict")), base)
    regularized = base.but(update=at(5, lambda run: setattr(run.optimizer, "regularization", L2Decay(0.3))))
    yield ".regularization", Works(regularized, base)
    yield ".append_regularization_ops", Works(base.but(update=by_hand), base)
    yield from attributes(base, Nothing, Refused)


def sometimes(run):
    """The first layer has a gradient in every other step."""
    hidden = run.model[1](run.model[0](run.x))
    loss = (run.model[2](hidden.detach() if run.step % 2 else hidden) - run.x.sum(axis=1, keepdim=True)) ** 2
    loss.mean().backward()


def arguments_of_methods(base, works, nothing):
    """Arguments that may be left out; the others are in the row of their method."""
    last = lambda run: run.model[2].parameters()  # noqa: E731

    def applied(**arguments):
        def update(run):
            given = {name: make(run) for name, make in arguments.items()}
            run.optimizer.apply_gradients(run.optimizer.backward(run.loss, **given))

        return base.but(update=update)

    def minimized(**arguments):
        def update(run):
            run.optimizer.minimize(run.loss, **{name: make(run) for name, make in arguments.items()})

        return base.but(update=update)

    yield ".backward(parameters)", works(applied(parameters=last), base)
    static = "only static graphs read it"
    program, ignored = lambda run: paddle.static.Program(), lambda run: {run.model[0].weight.name}
    for argument, make in {"startup_program": program, "no_grad_set": ignored, "callbacks": lambda run: []}.items():
        yield f".backward({argument})", nothing(static, applied(**{argument: make}), base)
    for argument, make in {"startup_program": program, "no_grad_set": ignored}.items():
        yield f".minimize({argument})", nothing(static, minimized(**{argument: make}), base)
    without = base.but(update=lambda run: by_hand(run, None))
    yield ".append_regularization_ops(regularization)", works(base.but(update=by_hand), without)


def by_hand(run, regularization=L2Decay(0.3)):
    """Gradients that the program regularizes itself."""
    pairs = [(parameter, parameter.grad) for parameter in run.model.parameters()]
    run.optimizer.apply_gradients(run.optimizer.append_regularization_ops(pairs, regularization))


def attributes(base, nothing, refused):
    for name in ("helper", "type"):
        yield f".{name}", nothing("Paddle sets it for itself")
    yield ".initial_accumulator_value", nothing("is read when training begins; give it to Adagrad")
    for name in ("fusion_storage", "merged_model_params", "fused_buffer_version", "fused_states_buffer"):
        yield f".{name}", nothing("empty without `use_fusion_storage`, which is refused")
    for name in ("buffer_ipc_meta", "accumulators_meta", "master_weights_meta"):
        yield f".fused_states_{name}", nothing("empty without `use_fusion_storage`, which is refused")
    for name in ("need_refuse", "reset_need_refuse"):
        called = base.but(update=at(3, lambda run, name=name: getattr(run.optimizer, name)()))
        yield f".{name}", nothing("of `use_fusion_storage`, which is refused", called, base)
    calls = {
        "use_fusion_storage": lambda run: run.optimizer.use_fusion_storage(),
        "set_merged_model_params": lambda run: run.optimizer.set_merged_model_params({}),
        "get_opti_var_name_list": lambda run: run.optimizer.get_opti_var_name_list(),
        "sharded_state_dict": lambda run: run.optimizer.sharded_state_dict({}),
    }
    for name, call in calls.items():
        program = base.but(kind="AdamW", update=at(3, call))
        yield f".{name}", refused(program, f"the parameter servers do not support `{name}`")


class Shared(paddle.nn.Layer):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = paddle.nn.Linear(5, 5), paddle.nn.Linear(5, 5), paddle.nn.Linear(5, 1)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.last(paddle.tanh(self.second(paddle.tanh(self.first(x)))))


def normalized():
    return paddle.nn.Sequential(
        paddle.nn.Linear(5, 8), paddle.nn.BatchNorm1D(8), paddle.nn.Dropout(0.1), paddle.nn.Linear(8, 1)
    )


def embedded(sparse):
    return lambda: paddle.nn.Sequential(
        paddle.nn.Embedding(7, 4, sparse=sparse), paddle.nn.Flatten(), paddle.nn.Linear(8, 1)
    )


def of_rows(model, x):
    return ((model(rows_of(x)) - x.sum(axis=1, keepdim=True)) ** 2).mean()


def seeded(run):
    """Dropout draws from the generator of the whole process."""
    paddle.seed(100 + run.step)
    backward(run)


def several(count):
    def accumulate(run):
        for _ in range(count):
            backward(run)

    return accumulate


def freeze(layer, first, last):
    """A layer that is frozen for some steps."""

    def turn(run):
        for parameter in run.model[layer].parameters():
            parameter.stop_gradient = first <= run.step < last

    def freezing(run):
        turn(run)
        backward(run)

    return freezing


def clipped(base, name, *arguments, only_first=False, **more):
    """A program that clips its gradients itself, or those of its first layer."""

    def clip(run):
        backward(run)
        layer = run.model[0] if only_first else run.model
        getattr(paddle.nn.utils, name)(layer.parameters(), *arguments, **more)

    return base.but(backward=clip)


def clipping_functions(base):
    from paddle_table import Nothing, Works

    for name in ("clip_grad_norm_", "clip_grad_value_"):
        program = clipped(base, name, 0.01)
        yield name, Works(program, base)
        yield f"{name}(parameters)", Works(clipped(base, name, 0.01, only_first=True), program)
    norm = clipped(base, "clip_grad_norm_", 0.01)
    yield "clip_grad_norm_(max_norm)", Works(clipped(base, "clip_grad_norm_", 0.1), norm)
    yield "clip_grad_norm_(norm_type)", Works(clipped(base, "clip_grad_norm_", 0.01, norm_type=1.0), norm)
    raises = clipped(base, "clip_grad_norm_", 0.01, error_if_nonfinite=True)
    yield "clip_grad_norm_(error_if_nonfinite)", Nothing("it raises in the program itself", raises, norm)
    yield "clip_grad_value_(clip_value)", Works(
        clipped(base, "clip_grad_value_", 0.1), clipped(base, "clip_grad_value_", 0.01)
    )


def hooked(run):
    for parameter in run.model[0].parameters():
        parameter.register_hook(lambda gradient: gradient * 0.5)


def cast(kind):
    return lambda: paddle.nn.Sequential(paddle.nn.Linear(5, 8), paddle.nn.Tanh(), paddle.nn.Linear(8, 1)).to(dtype=kind)


def loaded(run):
    """A saved model, loaded after the optimizer was wrapped."""
    source = np.random.default_rng(8)
    state = {name: source.normal(0, 0.3, value.shape).astype(np.float32) for name, value in run.model.state_dict().items()}
    run.model.set_state_dict(state)


def changed(change):
    def update(run):
        if run.step == 3:
            change(run.model[0].weight)
        run.optimizer.step()

    return update


class Halved(paddle.nn.clip.ClipGradBase):
    """A clipping class of the program's own."""

    def _dygraph_clip(self, params_grads):
        return [(parameter, gradient * 0.5) for parameter, gradient in params_grads]


class Cubic(L2Decay):
    """A regularizer of the program's own."""

    def __call__(self, param, grad, block):
        return param**3


def scaled(run):
    """As with mixed precision. On a CPU Paddle's scaler changes nothing."""
    run.scaler = getattr(run, "scaler", None) or paddle.amp.GradScaler(init_loss_scaling=1024)
    run.loss = run.losses(run.model, run.x)
    run.scaler.scale(run.loss).backward()


def programs():
    from paddle_table import BASE, KINDS, Refused, Works

    base, adam = BASE["SGD"], BASE["Adam"]
    yield "accumulated gradients", Works(adam.but(backward=several(3)), adam)
    yield "a layer frozen at first", Works(adam.but(backward=freeze(0, 0, 8)), adam)
    yield "a layer frozen later", Works(adam.but(backward=freeze(0, 8, 20)), adam)
    yield from clipping_functions(base)
    yield "hooks of parameters", Works(base.but(prepare=hooked), base)
    yield "a shared weight", Works(base.but(model=Shared), base.but(model=Shared, update=lambda run: None))
    batch = base.but(model=normalized, backward=seeded)
    yield "BatchNorm1D and Dropout", Works(batch, batch.but(update=lambda run: None))
    for kind in KINDS:
        dense = BASE[kind].but(model=embedded(False), losses=of_rows)
        sparse = dense.but(model=embedded(True))
        unchanged = dense.but(update=lambda run: None)
        if kind in ("AdamW", "Adadelta", "Adamax"):
            yield f"Embedding(sparse=True) with {kind}", Refused(sparse, f"{kind} does not support the sparse gradient of")
        else:
            yield f"Embedding(sparse=True) with {kind}", Works(sparse, unchanged)
        if kind not in ("Adam", "AdamW"):
            decayed = sparse.with_arguments(weight_decay=0.2)
            yield f"Embedding(sparse=True) with {kind} and `weight_decay`", Works(decayed, unchanged)
    sparse = BASE["Adam"].but(model=embedded(True), losses=of_rows)
    decayed, lazy = sparse.with_arguments(weight_decay=0.2), sparse.with_arguments(lazy_mode=True)
    sentence = "Adam don't support weight_decay with sparse parameters"
    yield "Embedding(sparse=True) with Adam and `weight_decay`", Refused(decayed, sentence, RuntimeError)
    yield "Embedding(sparse=True) with Adam and `lazy_mode`", Refused(lazy, "do not support `lazy_mode` of Adam for the sparse")
    ones = sparse.with_arguments(epsilon=0.1)
    yield "Embedding(sparse=True) with Adam and `epsilon`", Works(ones, sparse)
    yield "a model loaded before the first step", Works(adam.but(prepare=loaded), adam)
    yield "a clipping class of the program", Works(base.with_arguments(grad_clip=Halved()), base)
    own = base.with_arguments(weight_decay=Cubic(0.1))
    yield "a regularizer class of the program", Refused(own, "do not support the regularizer Cubic; use L1Decay or L2Decay")
    for kind in ("float64", "float16", "bfloat16"):
        sentence = f"`parameter0` is {kind}, but the parameter servers compute in float32"
        yield f"parameters of {kind}", Refused(base.but(model=cast(kind)), sentence)
    changes = {
        "clip_": lambda weight: weight.clip_(-0.01, 0.01),
        "data.clip_": lambda weight: weight.data.clip_(-0.01, 0.01),
        "set_value": lambda weight: weight.set_value(np.ones((5, 8), np.float32)),
        "an assignment": lambda weight: weight.__setitem__(0, 1.0),
    }
    for name, change in changes.items():
        program = base.but(update=paddle.no_grad()(changed(change)))
        sentence = "`parameter0` was changed in place after the first step; the parameter servers would undo that"
        yield f"weights changed by {name}", Refused(program, sentence)
    yield from scalers(base, Works)


def scalers(base, works):
    def step(run):
        run.scaler.step(run.optimizer)
        run.scaler.update()

    yield "GradScaler.step", works(base.but(backward=scaled, update=step), base.but(update=lambda run: None))

    def minimize(run):
        run.scaler.minimize(run.optimizer, run.loss)

    yield "GradScaler.minimize", works(base.but(backward=scaled, update=minimize), base.but(update=lambda run: None))


def program_with_all(kind):
    """Much at once, for several trainers."""
    from paddle_table import BASE

    groups = [{"learning_rate": 0.5, "weight_decay": 0.1}, {}]
    scheduler = Make(lambda: paddle.optimizer.lr.ExponentialDecay(BASE[kind].arguments["learning_rate"], 0.9))
    return BASE[kind].but(groups=groups, scheduler=scheduler)
