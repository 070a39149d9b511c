"""What training makes small: one number per sample, or per position of a sequence."""

from __future__ import annotations

from paddlecloud.legacy import evaluators
from paddlecloud.legacy.graph import GraphError, default_name, users_line, weight
from paddlecloud.legacy.layers.building import as_list, expect_size, make


def square_error_cost(input, label, weight=None, name=None, coeff=1.0, layer_attr=None):
    """The sum of squared differences."""
    return _cost("square_error", "square_error_cost", name, input, label, weight, coeff, layer_attr, same_size=True)


mse_cost = regression_cost = square_error_cost


def classification_cost(
    input,
    label,
    weight=None,
    name=None,
    evaluator=evaluators.classification_error,
    layer_attr=None,
    coeff=1.0,
    top_k=None,
):
    """Cross entropy of class probabilities, with the share of wrong answers as a metric."""
    node = _cost("cross_entropy", "classification_cost", name, input, label, weight, coeff, layer_attr)
    for each in as_list(evaluator) if evaluator is not None else []:
        each(
            input=input,
            label=label,
            weight=weight,
            name=each.__name__ + "_evaluator",
            **({} if top_k is None else {"top_k": top_k}),
        )
    return node


def cross_entropy_cost(input, label, name=None, coeff=1.0, weight=None, layer_attr=None):
    return _cost("cross_entropy", "cross_entropy", name, input, label, weight, coeff, layer_attr)


cross_entropy = cross_entropy_cost


def cross_entropy_with_selfnorm_cost(input, label, name=None, coeff=1.0, softmax_selfnorm_alpha=0.1, layer_attr=None):
    node = _cost("selfnorm_cross_entropy", "cross_entropy_with_selfnorm", name, input, label, None, coeff, layer_attr)
    node.conf["alpha"] = softmax_selfnorm_alpha
    return node


def multi_binary_label_cross_entropy_cost(input, label, name=None, coeff=1.0, layer_attr=None):
    """Cross entropy of independent yes/no answers."""
    return _cost(
        "binary_cross_entropy", "multi_binary_label_cross_entropy", name, input, label, None, coeff, layer_attr
    )


multi_binary_label_cross_entropy = soft_binary_class_cross_entropy_cost = multi_binary_label_cross_entropy_cost


def huber_regression_cost(input, label, name=None, delta=1.0, coeff=1.0, layer_attr=None):
    node = _cost(
        "huber_regression", "huber_regression_cost", name, input, label, None, coeff, layer_attr, same_size=True
    )
    node.conf["delta"] = delta
    return node


def huber_classification_cost(input, label, name=None, coeff=1.0, layer_attr=None):
    expect_size(input, "input", 1)
    return _cost("huber_classification", "huber_classification_cost", name, input, label, None, coeff, layer_attr)


def smooth_l1_cost(input, label, name=None, coeff=1.0, layer_attr=None):
    return _cost("smooth_l1", "smooth_l1_cost", name, input, label, None, coeff, layer_attr, same_size=True)


def sum_cost(input, name=None, layer_attr=None):
    return make(
        name or default_name("sum_cost"),
        "cost",
        [input],
        1,
        layer_attr=layer_attr,
        rule="sum",
        coeff=1.0,
        has_weight=False,
    )


def rank_cost(left, right, label, weight=None, name=None, coeff=1.0, layer_attr=None):
    """How badly two scores are ordered."""
    expect_size(left, "left", 1)
    expect_size(right, "right", 1)
    inputs = [left, right, label, *([weight] if weight is not None else [])]
    conf = {"rule": "rank", "coeff": coeff, "has_weight": weight is not None}
    return make(name or default_name("rank_cost"), "cost", inputs, 1, layer_attr=layer_attr, **conf)


def crf(input, label, size=None, weight=None, param_attr=None, name=None, coeff=1.0, layer_attr=None):
    """The negative log likelihood of a tag sequence under a linear chain."""
    name = name or default_name("crf_layer")
    size = size or input.size
    expect_size(input, "input", size)
    transitions = _crf_weight(name, size, param_attr)
    inputs = [input, label, *([weight] if weight is not None else [])]
    conf = {"weights": [transitions], "coeff": coeff, "has_weight": weight is not None}
    return make(name, "crf", inputs, 1, parameters=[transitions], layer_attr=layer_attr, **conf)


def crf_decoding(input, size, label=None, param_attr=None, name=None, layer_attr=None):
    """The likeliest tags; with `label`, 1 where the tag is wrong."""
    name = name or default_name("crf_decoding_layer")
    expect_size(input, "input", size)
    transitions = _crf_weight(name, size, param_attr)
    inputs = [input, *([label] if label is not None else [])]
    return make(name, "crf_decoding", inputs, 1, parameters=[transitions], layer_attr=layer_attr, weights=[transitions])


def _crf_weight(name, size, param_attr):
    return weight(name, 0, (size + 2, size), param_attr)


def _cost(rule, prefix, name, input, label, weight, coeff, layer_attr, same_size=False):
    if same_size and input.size != label.size:
        raise GraphError(f"{users_line()}: `{prefix}`: the input has size {input.size} and the label {label.size}")
    inputs = [input, label, *([weight] if weight is not None else [])]
    conf = {"rule": rule, "coeff": coeff, "has_weight": weight is not None}
    return make(name or default_name(prefix), "cost", inputs, 1, layer_attr=layer_attr, **conf)


COSTS = ("cost", "crf")
