"""The types of input data: a sample's data for one data layer."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "DataType",
    "InputType",
    "SequenceType",
    "dense_array",
    "dense_slot",
    "dense_vector",
    "dense_vector_sequence",
    "dense_vector_sub_sequence",
    "index_slot",
    "integer_sequence",
    "integer_value",
    "integer_value_sequence",
    "integer_value_sub_sequence",
    "sparse_binary_vector",
    "sparse_binary_vector_sequence",
    "sparse_float_vector",
    "sparse_float_vector_sequence",
    "sparse_non_value_slot",
    "sparse_value_slot",
    "sparse_vector",
    "sparse_vector_sequence",
]

DENSE, INTEGER, SPARSE_BINARY, SPARSE_FLOAT = "dense", "integer", "sparse_binary", "sparse_float"


@dataclass(frozen=True)
class InputType:
    """`kind` of value, `dim` numbers (or ids below `dim`), one of them or a sequence of them."""

    dim: int
    kind: str
    is_sequence: bool = False

    def __post_init__(self):
        if self.dim < 1:
            raise ValueError(f"the size of a data layer must be at least 1, not {self.dim}")


class SequenceType:
    """How many levels of sequences a value has."""

    NO_SEQUENCE = 0
    SEQUENCE = 1
    SUB_SEQUENCE = 2


class DataType:
    """The kinds of values, by their names of 2016."""

    Dense = DENSE
    SparseNonValue = SPARSE_BINARY
    SparseValue = SPARSE_FLOAT
    Index = INTEGER


def _no_nesting(seq_type):
    if seq_type not in (0, 1):
        raise NotImplementedError("nested sequences (sub-sequences) are not supported; give one sequence per sample")
    return seq_type == 1


def dense_vector(dim, seq_type=0):
    return InputType(dim, DENSE, _no_nesting(seq_type))


def dense_array(dim, seq_type=0):
    return InputType(dim, DENSE, _no_nesting(seq_type))


def integer_value(value_range, seq_type=0):
    return InputType(value_range, INTEGER, _no_nesting(seq_type))


def sparse_binary_vector(dim, seq_type=0):
    return InputType(dim, SPARSE_BINARY, _no_nesting(seq_type))


def sparse_float_vector(dim, seq_type=0):
    return InputType(dim, SPARSE_FLOAT, _no_nesting(seq_type))


def dense_vector_sequence(dim):
    return InputType(dim, DENSE, True)


def integer_value_sequence(value_range):
    return InputType(value_range, INTEGER, True)


def sparse_binary_vector_sequence(dim):
    return InputType(dim, SPARSE_BINARY, True)


def sparse_float_vector_sequence(dim):
    return InputType(dim, SPARSE_FLOAT, True)


def _nested(name):
    def refuse(*_, **__):
        raise NotImplementedError(f"`{name}`: nested sequences are not supported; give one sequence per sample")

    refuse.__name__ = name
    return refuse


dense_vector_sub_sequence = _nested("dense_vector_sub_sequence")
integer_value_sub_sequence = _nested("integer_value_sub_sequence")
sparse_binary_vector_sub_sequence = _nested("sparse_binary_vector_sub_sequence")
sparse_float_vector_sub_sequence = _nested("sparse_float_vector_sub_sequence")

dense_slot = dense_vector
index_slot = integer_value
integer_sequence = integer_value_sequence
sparse_vector = sparse_float_vector
sparse_vector_sequence = sparse_float_vector_sequence
sparse_non_value_slot = sparse_binary_vector
sparse_value_slot = sparse_float_vector
