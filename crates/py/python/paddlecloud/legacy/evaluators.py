"""Metrics of a network. An evaluator belongs to every network that has all of its inputs."""

from __future__ import annotations

import weakref
from dataclasses import dataclass, field
from typing import Any

from paddlecloud.legacy.graph import Node, default_name


@dataclass(eq=False)
class Evaluator:
    kind: str
    name: str
    inputs: list[Node]
    conf: dict[str, Any] = field(default_factory=dict)


# By node, so that evaluators go when their networks do.
_of_node: weakref.WeakKeyDictionary[Node, list[Evaluator]] = weakref.WeakKeyDictionary()


def of_nodes(nodes) -> list[Evaluator]:
    """The evaluators whose inputs are all among `nodes`."""
    return [each for each in _all(nodes) if each.kind != "seqtext_printer"]


def printers(nodes) -> list[Evaluator]:
    """Those that write to files. Their second input, the samples' numbers, is a data layer that nothing else needs."""
    return [each for each in _all(nodes, inputs=1) if each.kind == "seqtext_printer"]


def _all(nodes, inputs=None):
    present = set(map(id, nodes))
    found = [evaluator for node in nodes for evaluator in _of_node.get(node, ())]
    return [evaluator for evaluator in found if all(id(each) in present for each in evaluator.inputs[:inputs])]


def _add(kind, name, inputs, **conf) -> Evaluator:
    inputs = [each for each in inputs if each is not None]
    evaluator = Evaluator(kind, name or default_name(kind + "_evaluator"), inputs, conf)
    _of_node.setdefault(inputs[0], []).append(evaluator)
    return evaluator


def classification_error(input, label, name=None, weight=None, top_k=None, threshold=0.5):
    """The share of samples whose label is not among the `top_k` likeliest classes."""
    return _add(
        "classification_error",
        name,
        [input, label, weight],
        top_k=top_k or 1,
        threshold=threshold,
        weighted=weight is not None,
    )


def auc(input, label, name=None, weight=None):
    """The area under the ROC curve; the last column of `input` is the score."""
    return _add("auc", name, [input, label, weight], weighted=weight is not None)


def precision_recall(input, label, positive_label=None, weight=None, name=None):
    return _add("precision_recall", name, [input, label, weight], positive=positive_label, weighted=weight is not None)


def sum(input, name=None, weight=None):  # noqa: A001 - the name of 2017
    """The sum of a layer's values per sample."""
    return _add("sum", name, [input, weight], weighted=weight is not None)


def column_sum(input, name=None, weight=None):
    """The mean of the last column."""
    return _add("column_sum", name, [input, weight], weighted=weight is not None)


def chunk(input, label, chunk_scheme, num_chunk_types, name=None, excluded_chunk_types=None):
    """Precision, recall and F1 of labelled chunks."""
    conf = {"scheme": chunk_scheme, "types": num_chunk_types, "excluded": tuple(excluded_chunk_types or ())}
    return _add("chunk", name, [input, label], **conf)


def seqtext_printer(input, result_file, id_input=None, dict_file=None, delimited=None, name=None):
    """Writes generated sentences to `result_file` when a v1 configuration is tested: numbers of the samples, ranks, scores, words."""
    conf = {"result_file": result_file, "dict_file": dict_file, "delimited": delimited is None or bool(delimited)}
    return _add("seqtext_printer", name, [input, id_input], **conf)
