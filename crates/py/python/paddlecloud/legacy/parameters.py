"""The parameters of a network by name, as numpy arrays. A machine computes on the same memory."""

from __future__ import annotations

import zlib

import numpy as np

from paddlecloud.legacy import archive, graph, settings
from paddlecloud.legacy.graph import ParameterSpec


class Parameters:
    """A dictionary of numpy arrays; `get` and `[]` give copies, `set` and `[] =` check shapes."""

    def __init__(self):
        self._specs: dict[str, ParameterSpec] = {}
        self._values: dict[str, np.ndarray] = {}
        self._tensors = {}
        # A trainer with `ModelAverage` sets this while tests and predictions run.
        self.averaged = None

    @classmethod
    def of(cls, nodes) -> Parameters:
        """New parameters for a network, with initial values that depend on the seed and each parameter's name alone."""
        made = cls()
        for spec in graph.parameter_specs(nodes).values():
            source = np.random.default_rng([settings.seed(), zlib.crc32(spec.name.encode())])
            made._add(spec, spec.start(source))
        return made

    def _add(self, spec, value):
        self._specs[spec.name] = spec
        self._values[spec.name] = np.ascontiguousarray(value, np.float32)

    def names(self):
        return list(self._specs)

    keys = names

    def has_key(self, key):
        return key in self._specs

    def __contains__(self, key):
        return key in self._specs

    def __iter__(self):
        return iter(self._specs)

    def __len__(self):
        return len(self._specs)

    def spec(self, name) -> ParameterSpec:
        if name not in self._specs:
            raise ValueError(f"there is no parameter `{name}`; there are {', '.join(self._specs) or 'none'}")
        return self._specs[name]

    def get_shape(self, key):
        return self.spec(key).shape

    def get(self, parameter_name):
        self.spec(parameter_name)
        return self._values[parameter_name].copy()

    __getitem__ = get

    def set(self, parameter_name, value):
        shape = self.get_shape(parameter_name)
        if not isinstance(value, np.ndarray):
            raise ValueError(f"parameter `{parameter_name}` must be a numpy array, not {type(value).__name__}")
        if value.shape != shape:
            raise ValueError(f"parameter `{parameter_name}` must have shape {shape}, not {value.shape}")
        self._values[parameter_name][...] = value

    __setitem__ = set

    def get_grad(self, key):
        """The gradient of the last batch."""
        self.spec(key)
        tensor = self._tensors.get(key)
        if tensor is None or tensor.grad is None:
            raise ValueError(f"parameter `{key}` has no gradient yet")
        return tensor.grad.numpy()

    def clear_gradients(self):
        for tensor in self._tensors.values():
            tensor.clear_gradient(False)

    def serialize(self, name, f):
        archive.write_values(f, self._values[self.spec(name).name])

    def deserialize(self, name, f):
        self.set(name, archive.read_values(f.read(), name).reshape(self.get_shape(name)))

    def to_tar(self, f):
        """Saves all parameters; `f` must be open for binary writing."""
        archive.write_tar(f, self._specs.values(), lambda name: self._values[name])

    @staticmethod
    def from_tar(f):
        """What `to_tar` saved, also in 2017."""
        made = Parameters()
        for spec, values in archive.read_tar(f):
            made._add(spec, values)
        return made

    def init_from_tar(self, f, exclude_params=()):
        """Takes over the saved values of the parameters that are known here."""
        for spec, values in archive.read_tar(f):
            if spec.name not in self._specs or spec.name in exclude_params:
                continue
            if self._specs[spec.name].size != values.size:
                raise ValueError(
                    f"parameter `{spec.name}` has shape {self._specs[spec.name].shape} here and {spec.shape} in the file"
                )
            self._values[spec.name][...] = values.reshape(self._specs[spec.name].shape)

    def array(self, name):
        """The memory itself, for optimizers."""
        return self._values[name]

    def tensor(self, name):
        """The parameter as a tensor on the same memory, made when it is first asked for."""
        tensor = self._tensors.get(name)
        if tensor is None:
            import paddle

            tensor = paddle.to_tensor(self._values[name], stop_gradient=self._specs[name].is_static)
            self._tensors[name] = tensor
            self._values[name] = np.from_dlpack(tensor.detach())
        return tensor
