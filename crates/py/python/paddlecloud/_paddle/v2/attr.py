"""Attributes of parameters and layers."""

from paddlecloud.legacy.attributes import (
    ExtraAttr,
    ExtraAttr as Extra,
    ExtraAttr as ExtraLayerAttribute,
    HookAttribute,
    HookAttribute as Hook,
    ParamAttr,
    ParamAttr as Param,
    ParamAttr as ParameterAttribute,
)

__all__ = [
    "Extra",
    "ExtraAttr",
    "ExtraLayerAttribute",
    "Hook",
    "HookAttribute",
    "Param",
    "ParamAttr",
    "ParameterAttribute",
]
