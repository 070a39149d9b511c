"""The names of v1's `trainer_config_helpers`: the layers of `paddlecloud.legacy` with their longer names."""

from __future__ import annotations

import functools
import inspect

from paddlecloud.legacy import activations, evaluators, layers, log, networks, optimizers, poolings, unsupported
from paddlecloud.legacy.attributes import ExtraAttr, HookAttribute, ParamAttr
from paddlecloud.legacy.graph import Image, Node, default_name, users_line
from paddlecloud.legacy.layers.building import make
from paddlecloud.legacy.optimizers import L1Regularization, L2Regularization, ModelAverage
from paddlecloud.v1 import configuration
from paddlecloud.v1.configuration import (
    Inputs,
    Method,
    Outputs,
    Settings,
    default_decay_rate,
    default_device,
    default_momentum,
    define_py_data_sources2,
    get_config_arg,
    inputs,
    outputs,
    settings,
)

_names = {
    "ExtraAttr": ExtraAttr,
    "ExtraLayerAttribute": ExtraAttr,
    "HookAttr": HookAttribute,
    "Inputs": Inputs,
    "L1Regularization": L1Regularization,
    "L2Regularization": L2Regularization,
    "LayerOutput": Node,
    "ModelAverage": ModelAverage,
    "Outputs": Outputs,
    "ParamAttr": ParamAttr,
    "ParameterAttribute": ParamAttr,
    "Settings": Settings,
    "default_decay_rate": default_decay_rate,
    "default_device": default_device,
    "default_momentum": default_momentum,
    "define_py_data_sources2": define_py_data_sources2,
    "get_config_arg": get_config_arg,
    "inputs": inputs,
    "outputs": outputs,
    "settings": settings,
}

# Layers whose v1 name has no `_layer` behind it.
_PLAIN = {
    "AggregateLevel", "ExpandLevel", "GeneratedInput", "StaticInput", "beam_search", "classification_cost", "cos_sim", "cross_entropy", "cross_entropy_with_selfnorm",
    "first_seq", "grumemory", "huber_regression_cost", "huber_classification_cost", "last_seq", "lstmemory", "memory", "mse_cost",
    "multi_binary_label_cross_entropy", "rank_cost", "recurrent_group", "regression_cost", "smooth_l1_cost", "square_error_cost", "sum_cost",
    "context_projection", "dotmul_operator", "dotmul_projection", "full_matrix_projection", "identity_projection", "scaling_projection",
    "slice_projection", "table_projection", "trans_full_matrix_projection",
}  # fmt: skip

for _name in layers.__all__:
    if _name not in ("COSTS", "Projection", "data"):
        _names[_name if _name in _PLAIN else f"{_name}_layer"] = getattr(layers, _name)
_names["cross_entropy_with_selfnorm"] = layers.cross_entropy_with_selfnorm_cost
_names["maxid_layer"] = layers.max_id

for _name, _kind in activations.ALL.items():
    _names[f"{_name}Activation"] = _kind
_names["IdentityActivation"] = activations.Linear

for _name in ("Max", "Avg", "Sum", "SquareRootN", "CudnnMax", "CudnnAvg"):
    _names[f"{_name}Pooling"] = getattr(poolings, _name)

for _name in (
    "simple_lstm", "bidirectional_lstm", "simple_gru", "simple_gru2", "bidirectional_gru", "gru_unit", "gru_group", "sequence_conv_pool",
    "text_conv_pool", "simple_img_conv_pool", "img_conv_bn_pool", "img_conv_group", "small_vgg", "vgg_16_network", "simple_attention",
    "dropout_layer",
):  # fmt: skip
    _names[_name] = getattr(networks, _name)

for _name in ("classification_error", "auc", "precision_recall", "sum", "column_sum", "chunk", "seqtext_printer"):
    _names[f"{_name}_evaluator"] = getattr(evaluators, _name)


def _method(kind):
    def made(*args, **options):
        """A learning method for `settings`."""
        names = ("momentum",) if kind is optimizers.Momentum else ()
        return Method(kind, {**dict(zip(names, args)), **options})

    return made


for _name in ("Momentum", "Adam", "Adamax", "AdaGrad", "DecayedAdaGrad", "AdaDelta", "RMSProp"):
    _names[f"{_name}Optimizer"] = _method(getattr(optimizers, _name))


def data_layer(name, size, height=None, width=None, depth=None, layer_attr=None):
    """What the data provider gives under this name; the provider says of which type it is."""
    image = None
    if height and width:
        image = Image(size // (height * width), height, width)
    return make(name, "data", [], size, layer_attr=layer_attr, image=image, type=None)


def classification_cost(input, label, weight=None, name=None, **options):
    """As in v2, by v1's default name `__cost_0__`."""
    return layers.classification_cost(input, label, weight, name or default_name("cost"), **options)


def cos_sim(a, b, scale=5, size=1, name=None, layer_attr=None):
    """As in v2, but the cosine is multiplied by 5 where nothing is said."""
    return layers.cos_sim(a, b, scale, size, name, layer_attr)


def _checked(function):
    """Warns once per configuration, as 2016 did, about options that are given by their place instead of their name."""
    signature = inspect.signature(function).parameters.values()
    required = sum(each.default is each.empty and each.kind is each.POSITIONAL_OR_KEYWORD for each in signature)

    @functools.wraps(function)
    def call(*args, **options):
        defaults = configuration.current().defaults
        if len(args) > required and "was_warned" not in defaults:
            defaults["was_warned"] = 1
            log.say("default_decorators.py:40", "please use keyword arguments in paddle config.", "WARNING")
        made = function(*args, **options)
        if isinstance(made, Node):
            configuration.current().named.append(made)
        return made

    return call


def _refused(name, instead):
    def refuse(*_, **__):
        raise NotImplementedError(f"{users_line()}: `{name}` of 2017 is not supported: {instead}")

    return refuse


# By their names of v1: `ctc_layer`, `value_printer_evaluator`, and a few that have no such ending.
for _name, _instead in unsupported.LAYERS.items():
    _names.setdefault(f"{_name}_layer", _refused(f"{_name}_layer", _instead))
for _name, _instead in unsupported.BARE_IN_V1.items():
    _names.setdefault(_name, _refused(_name, _instead))
for _name, _instead in unsupported.NETWORKS.items():
    _names.setdefault(_name, _refused(_name, _instead))
for _name, _instead in unsupported.EVALUATORS.items():
    _names.setdefault(f"{_name}_evaluator", _refused(f"{_name}_evaluator", _instead))

_names["data_layer"] = data_layer
_names["classification_cost"] = classification_cost
_names["cos_sim"] = cos_sim
for _name, _value in _names.items():
    if inspect.isfunction(_value) and (_value.__module__.startswith("paddlecloud.legacy") or _value in (data_layer, classification_cost, cos_sim)):
        _names[_name] = _checked(_value)
globals().update(_names)
__all__ = sorted(_names)  # noqa: PLE0605
