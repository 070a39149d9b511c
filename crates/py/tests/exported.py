"""A saved model as other tools get it: exported by `paddlectl pserver export`."""

import json
import subprocess

import numpy as np
import pytest

from paddlecloud import _program

# The types of safetensors that an export has.
TYPES = {"F32": np.float32}


def export(session, folder):
    """The tensors of the session's model by name, from a safetensors file."""
    if _program.find() is None:
        pytest.skip("the wheel was built without the program")
    session.save(folder / "saved")
    target = folder / "model.safetensors"
    subprocess.run([_program.find(), "pserver", "export", folder / "saved", target], check=True, timeout=300)
    return read_safetensors(target.read_bytes())


def read_safetensors(data):
    """Written out, because not every environment has the library."""
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    header.pop("__metadata__", None)
    found = {}
    for name, tensor in header.items():
        first, end = tensor["data_offsets"]
        found[name] = np.frombuffer(body[first:end], TYPES[tensor["dtype"]]).reshape(tensor["shape"])
    return found
