"""Learning rates of 2017: functions of the number of samples seen, or of the pass."""

from __future__ import annotations

import math


def rate_of(kind, base, a, b, args):
    """A function of (samples seen with this batch, number of the pass) for a schedule by its name of 2017."""
    if kind in ("manual", "pass_manual"):
        return _by_segments(base, segments(args), kind == "pass_manual")
    shapes = {
        "constant": lambda n: base,
        "poly": lambda n: base * math.pow(1.0 + a * n, -b),
        "caffe_poly": lambda n: base * math.pow(1.0 - n / a, b) if n <= a else 0.0,
        "exp": lambda n: base * math.pow(a, n / b),
        "discexp": lambda n: base * math.pow(a, n // b),
        "linear": lambda n: max(base - a * n, b),
    }
    if kind not in shapes:
        raise ValueError(
            f"`learning_rate_schedule` must be one of {', '.join([*shapes, 'manual', 'pass_manual'])}, not {kind!r}"
        )
    shape = shapes[kind]
    return lambda samples, number: shape(samples)


def segments(args):
    """`1000:1.0,2000:0.9` as pairs."""
    try:
        found = [(int(end), float(factor)) for end, factor in (part.split(":") for part in args.split(","))]
    except (AttributeError, ValueError):
        raise ValueError(f"`learning_rate_args` must look like '1000:1.0,2000:0.9', not {args!r}") from None
    if [end for end, _ in found] != sorted(end for end, _ in found):
        raise ValueError(f"the segments of `learning_rate_args` must ascend: {args!r}")
    return found


def _by_segments(base, parts, by_pass):
    def rate(samples, number):
        at = number if by_pass else samples
        factor = next((factor for end, factor in parts if at <= end), parts[-1][1])
        return base * factor

    return rate
