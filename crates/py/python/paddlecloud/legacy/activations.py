"""What a layer does with its sum: names of the functions, without the functions themselves."""

from __future__ import annotations


class Activation:
    """`name` is what the kernels know it by."""

    name = "linear"

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"

    @staticmethod
    def of(value, default) -> Activation:
        """The activation a program means: an object, its class, or nothing."""
        if value is None:
            return default()
        found = value() if isinstance(value, type) else value
        if not isinstance(found, Activation):
            raise TypeError(f"an activation such as `paddle.activation.Relu()` is expected, not {value!r}")
        return found


def _activation(class_name: str, name: str):
    return type(class_name, (Activation,), {"name": name, "__doc__": f"The activation `{name}`."})


Linear = _activation("Linear", "linear")
Identity = Linear
Tanh = _activation("Tanh", "tanh")
Sigmoid = _activation("Sigmoid", "sigmoid")
Softmax = _activation("Softmax", "softmax")
SequenceSoftmax = _activation("SequenceSoftmax", "sequence_softmax")
Relu = _activation("Relu", "relu")
BRelu = _activation("BRelu", "brelu")
SoftRelu = _activation("SoftRelu", "softrelu")
STanh = _activation("STanh", "stanh")
Abs = _activation("Abs", "abs")
Square = _activation("Square", "square")
Exp = _activation("Exp", "exponential")
Log = _activation("Log", "log")
Sqrt = _activation("Sqrt", "sqrt")
Reciprocal = _activation("Reciprocal", "reciprocal")
SoftSign = _activation("SoftSign", "softsign")

ALL = {
    kind.__name__: kind
    for kind in (
        Linear, Tanh, Sigmoid, Softmax, SequenceSoftmax, Relu, BRelu, SoftRelu, STanh, Abs, Square, Exp, Log, Sqrt, Reciprocal, SoftSign
    )
}  # fmt: skip
