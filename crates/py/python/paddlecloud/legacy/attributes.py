"""What a program says about parameters and layers beside their sizes: `ParamAttr` and `ExtraAttr`."""

from __future__ import annotations

__all__ = ["ExtraAttr", "HookAttribute", "ParamAttr"]


class HookAttribute:
    """A hook on a parameter's updates: `pruning` keeps the smallest `sparsity_ratio` of a parameter's initial values at 0."""

    def __init__(self, type, sparsity_ratio=None):
        if type != "pruning":
            raise ValueError(f"a hook's type must be 'pruning', not {type!r}")
        if not isinstance(sparsity_ratio, (int, float)) or not 0 <= sparsity_ratio <= 1:
            raise ValueError(f"`sparsity_ratio` must be between 0 and 1, not {sparsity_ratio!r}")
        self.type = type
        self.sparsity_ratio = float(sparsity_ratio)


class ParamAttr:
    """How a parameter starts and how it is trained.

    Without an initial value given, a weight starts normally distributed with deviation 1/sqrt(rows), and a bias as 0.
    """

    def __init__(
        self,
        name=None,
        is_static=False,
        initial_std=None,
        initial_mean=None,
        initial_max=None,
        initial_min=None,
        l1_rate=None,
        l2_rate=None,
        learning_rate=None,
        momentum=None,
        gradient_clipping_threshold=None,
        sparse_update=False,
        update_hooks=None,
        initializer=None,
    ):
        if (initial_max is None) != (initial_min is None):
            raise ValueError("`initial_max` and `initial_min` must be set together")
        if initial_max is not None and initial_max <= initial_min:
            raise ValueError(f"`initial_max` must be above `initial_min`: {initial_max} is not above {initial_min}")
        if update_hooks is not None and not isinstance(update_hooks, HookAttribute):
            raise TypeError(f"`update_hooks` must be a HookAttribute, not {update_hooks!r}")
        self.name = name
        self.is_static = is_static
        self.initial_std = initial_std
        self.initial_mean = initial_mean
        self.initial_max = initial_max
        self.initial_min = initial_min
        self.l1_rate = l1_rate
        self.l2_rate = l2_rate
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.gradient_clipping_threshold = gradient_clipping_threshold
        self.sparse_update = sparse_update
        self.update_hooks = update_hooks
        self.initializer = initializer

    @property
    def is_smart(self) -> bool:
        """Whether the deviation of the initial values follows from the parameter's shape."""
        return self.initial_std is None and self.initial_mean is None and self.initial_max is None

    @staticmethod
    def of(value) -> ParamAttr:
        """The attribute a program means: `None`, a `ParamAttr`, or the name of a parameter."""
        if value is None or value is True:
            return ParamAttr()
        if isinstance(value, ParamAttr):
            return value
        if isinstance(value, str):
            return ParamAttr(name=value)
        raise TypeError(f"a parameter attribute must be a ParamAttr, not {value!r}")


class ExtraAttr:
    """What a layer has beside its parameters. `device` has no meaning here."""

    def __init__(self, error_clipping_threshold=None, drop_rate=None, device=None):
        if drop_rate is not None and not 0 <= drop_rate < 1:
            raise ValueError(f"`drop_rate` must be at least 0 and below 1, not {drop_rate}")
        self.error_clipping_threshold = error_clipping_threshold
        self.drop_rate = drop_rate or 0.0
        self.device = device
