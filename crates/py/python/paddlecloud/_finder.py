"""Makes `paddle.v2`, `paddle.job` and v1's modules importable, with PaddlePaddle or without it.

PaddlePaddle owns the package `paddle`, so none of our files are in it. A finder at the end of `sys.meta_path`
is asked only for what nobody else has: `paddle.v2`, `paddle.job` and v1's `paddle.trainer` and `paddle.trainer_config_helpers`
always, and `paddle` itself only while one of those is being imported, be it by `import paddle.job` or by `from paddle import job`.
A program that just looks whether `paddle` is there finds nothing of ours.

The file `paddlecloud-compat.pth` imports this module at every start of Python: it must stay small.
"""

from __future__ import annotations

import sys

_JOB = "paddle.job"
# Packages of ours by the folder below `_paddle` that they are in.
_PACKAGES = {"paddle.v2": "v2", "paddle.trainer": "trainer", "paddle.trainer_config_helpers": "trainer_config_helpers"}
_OURS = (_JOB, *_PACKAGES)
# Below these a missing module may be one of 2017, of which an error says what to use instead.
_OF_2017 = ("paddle.v2.", "paddle.trainer.", "py_paddle")
# Modules of v1 whose names are all in their package here.
_PARTS_OF_V1 = {f"paddle.trainer_config_helpers.{part}" for part in (
    "activations", "attrs", "data_sources", "evaluators", "layers", "networks", "optimizers", "poolings",
)}  # fmt: skip


class PaddleFinder:
    """Finds the modules of the documents if no other finder does."""

    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "paddle":
            return _stand_in_spec() if _is_imported_for_ours() and not _is_elsewhere(cls) else None
        if name in _PACKAGES:
            return _package_spec(name)
        if name == _JOB:
            return _alias_spec(name, "paddlecloud.job")
        if name in _PARTS_OF_V1:
            return _alias_spec(name, "paddle.trainer_config_helpers")
        if name.startswith(_OF_2017):
            from paddlecloud.legacy.unsupported import refuse_module

            refuse_module(name)
        return None

    @classmethod
    def invalidate_caches(cls) -> None:
        """Nothing is cached."""


class _Alias:
    """Loads a module by giving another one its name, so that both are one."""

    def __init__(self, real: str) -> None:
        self._real = real

    def create_module(self, spec):
        return None

    def exec_module(self, module) -> None:
        import importlib

        sys.modules[module.__name__] = importlib.import_module(self._real)


def install() -> None:
    """Adds the finder, once."""
    if not any(getattr(finder, "__name__", "") == PaddleFinder.__name__ for finder in sys.meta_path):
        sys.meta_path.append(PaddleFinder)


def _alias_spec(name: str, real: str):
    from importlib.machinery import ModuleSpec

    return ModuleSpec(name, _Alias(real), origin=real)  # type: ignore[arg-type]


def _stand_in_spec():
    from importlib.util import spec_from_file_location

    # No search locations of its own: everything below it goes through the finder, as with the real one.
    return spec_from_file_location("paddle", _file("_paddle", "__init__.py"), submodule_search_locations=[])


def _package_spec(name: str):
    from importlib.util import spec_from_file_location

    folder = _file("_paddle", _PACKAGES[name])
    return spec_from_file_location(name, _file(folder, "__init__.py"), submodule_search_locations=[folder])


def _file(*parts: str) -> str:
    import os

    return os.path.join(os.path.dirname(os.path.abspath(__file__)), *parts)


def _is_imported_for_ours() -> bool:
    """Whether `paddle` is wanted as the parent of one of our names.

    The import system asks for a parent without saying for whom, so its own frames are looked at, and then the
    statement that runs in the frame before them.
    """
    frame = sys._getframe(2)
    while frame is not None and _belongs_to_import_system(frame):
        wanted = frame.f_locals.get("fullname") or frame.f_locals.get("name")
        if isinstance(wanted, str) and (wanted + ".").startswith(tuple(each + "." for each in _OURS)):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None and _takes_ours(frame)


def _takes_ours(frame) -> bool:
    """Whether a frame is at `from paddle import job` or the like; `import paddle` takes no names."""
    ours = {each.partition(".")[2] for each in _OURS}
    consts = frame.f_code.co_consts
    if not any(isinstance(const, tuple) and not ours.isdisjoint(_words(const)) for const in consts):
        return False
    import dis

    before = None
    for instruction in dis.get_instructions(frame.f_code):
        # Python 3.10 stands at an instruction's prefix, later ones at the instruction itself.
        if instruction.opname == "EXTENDED_ARG":
            continue
        if instruction.offset >= frame.f_lasti:
            return instruction.opname == "IMPORT_NAME" and not ours.isdisjoint(_words(before))
        before = instruction.argval
    return False


def _words(value) -> list[str]:
    """The names in what an import statement takes; nothing in anything else."""
    return [word for word in value if isinstance(word, str)] if isinstance(value, tuple) else []


def _belongs_to_import_system(frame) -> bool:
    module = frame.f_globals.get("__name__", "")
    return module in ("_frozen_importlib", __name__) or module.startswith("importlib")


def _is_elsewhere(own) -> bool:
    """Whether a finder behind ours, such as that of an editable install, has `paddle`."""
    for finder in sys.meta_path:
        find = getattr(finder, "find_spec", None)
        if finder is not own and find is not None and find("paddle", None) is not None:
            return True
    return False


install()
