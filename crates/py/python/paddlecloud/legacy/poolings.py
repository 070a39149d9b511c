"""How the values of a sequence or of an image's window become one."""

from __future__ import annotations


class Pooling:
    name = "max"

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @staticmethod
    def of(value, default) -> Pooling:
        if value is None:
            return default()
        found = value() if isinstance(value, type) else value
        if not isinstance(found, Pooling):
            raise TypeError(f"a pooling such as `paddle.pooling.Max()` is expected, not {value!r}")
        return found


class Max(Pooling):
    """The largest value."""

    def __init__(self, output_max_index=None):
        if output_max_index:
            raise NotImplementedError("`output_max_index` is not supported; use `paddle.layer.max_id` on the layer")


class Avg(Pooling):
    """The mean; `strategy` may be that of `Sum` or `SquareRootN` as well."""

    STRATEGY_AVG = "average"
    STRATEGY_SUM = "sum"
    STRATEGY_SQROOTN = "squarerootn"

    def __init__(self, strategy=STRATEGY_AVG):
        self.name = {"average": "average", "sum": "sum", "squarerootn": "sqrtn"}[strategy]


class Sum(Pooling):
    name = "sum"


class SquareRootN(Pooling):
    """The sum divided by the square root of the length."""

    name = "sqrtn"


class CudnnMax(Max):
    pass


class CudnnAvg(Avg):
    pass
