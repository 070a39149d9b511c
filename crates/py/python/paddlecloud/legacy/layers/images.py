"""Layers on images: rows of channels × height × width values."""

from __future__ import annotations

import math

from paddlecloud.legacy import activations as act_
from paddlecloud.legacy import poolings
from paddlecloud.legacy.activations import Activation
from paddlecloud.legacy.attributes import ParamAttr
from paddlecloud.legacy.graph import GraphError, Image, Node, bias, default_name, users_line, weight
from paddlecloud.legacy.layers.building import make


def _image_of(node: Node, channels: int | None) -> Image:
    if node.image is not None and channels in (None, node.image.channels):
        return node.image
    channels = channels or 1
    side = math.isqrt(node.size // channels)
    if channels * side * side != node.size:
        raise GraphError(
            f"{users_line()}: layer `{node.name}` of size {node.size} is not a square image with {channels} channels"
        )
    return Image(channels, side, side)


def _pair(value, other) -> tuple[int, int]:
    """(x, y) of an option that may be a number, a pair, or have its own `_y`."""
    if isinstance(value, (list, tuple)):
        return int(value[0]), int(value[1])
    return int(value), int(value if other is None else other)


def img_conv(
    input, filter_size, num_filters, name=None, num_channels=None, act=None, groups=1, stride=1, padding=0, dilation=1,
    bias_attr=None, param_attr=None, shared_biases=True, layer_attr=None, filter_size_y=None, stride_y=None, padding_y=None,
    dilation_y=None, trans=False, layer_type=None,
):  # fmt: skip
    """Convolution of an image; with relu where no activation is given."""
    if trans:
        raise NotImplementedError(
            f"{users_line()}: transposed convolution is not supported; use `paddle.nn.Conv2DTranspose`"
        )
    name = name or default_name("conv")
    image = _image_of(input, num_channels)
    (width, height), strides, paddings = (
        _pair(filter_size, filter_size_y),
        _pair(stride, stride_y),
        _pair(padding, padding_y),
    )
    dilations = _pair(dilation, dilation_y)
    if image.channels % groups or num_filters % groups:
        raise GraphError(
            f"{users_line()}: {image.channels} channels and {num_filters} filters cannot be divided into {groups} groups"
        )
    out = [
        (side + 2 * pad - ((kernel - 1) * spread + 1)) // step + 1
        for side, kernel, step, pad, spread in zip(
            (image.width, image.height), (width, height), strides, paddings, dilations
        )
    ]
    if min(out) < 1:
        raise GraphError(
            f"{users_line()}: a filter of {width} × {height} does not fit images of {image.width} × {image.height}"
        )
    made = Image(num_filters, out[1], out[0])
    count = num_filters * (image.channels // groups) * width * height
    spread = math.sqrt(2 / (width * height * image.channels))
    kernel = weight(name, 0, (1, count), param_attr, deviation=spread, has_dims=False)
    bias_spec = bias(name, (num_filters, 1) if shared_biases else (1, made.size), bias_attr)
    return make(
        name, "img_conv", [input], made.size, parameters=[kernel, bias_spec], act=Activation.of(act, act_.Relu),
        layer_attr=layer_attr, image=made, source=image, weights=[kernel], bias=bias_spec, shared=shared_biases, groups=groups,
        kernel=(height, width), stride=strides[::-1], padding=paddings[::-1], dilation=dilations[::-1],
    )  # fmt: skip


def img_pool(
    input, pool_size, name=None, num_channels=None, pool_type=None, stride=1, padding=0, layer_attr=None, pool_size_y=None,
    stride_y=None, padding_y=None, ceil_mode=True, exclude_mode=None,
):  # fmt: skip
    """The largest value or the mean of each window; a window that begins in the image counts, so sizes round up."""
    image = _image_of(input, num_channels)
    kernel, strides, paddings = _pair(pool_size, pool_size_y), _pair(stride, stride_y), _pair(padding, padding_y)
    rounded = math.ceil if ceil_mode else math.floor
    out = [
        rounded((side + 2 * pad - size) / step) + 1
        for side, size, step, pad in zip((image.width, image.height), kernel, strides, paddings)
    ]
    if any((count - 1) * step - pad >= side for count, step, pad, side in zip(out, strides, paddings, (image.width, image.height))):
        raise GraphError(
            f"{users_line()}: the last window of `img_pool` is outside images of {image.width} × {image.height}; use less padding"
        )
    made = Image(image.channels, out[1], out[0])
    pooling = poolings.Pooling.of(pool_type, poolings.Max)
    return make(
        name or default_name("pool"), "img_pool", [input], made.size, layer_attr=layer_attr, image=made, source=image,
        pooling=pooling.name, kernel=kernel[::-1], stride=strides[::-1], padding=paddings[::-1],
        exclude=exclude_mode is not False,
    )  # fmt: skip


def batch_norm(
    input, act=None, name=None, img3D=False, num_channels=None, bias_attr=None, param_attr=None, layer_attr=None,
    batch_norm_type=None, epsilon=1e-5, moving_average_fraction=0.9, use_global_stats=None, mean_var_names=None,
):  # fmt: skip
    """Normalizes each channel over the batch in training, and by running means in testing; with relu by default."""
    name = name or default_name("batch_norm")
    image = input.image
    if image is None and num_channels not in (None, input.size):
        image = _image_of(input, num_channels)
    channels = image.channels if image is not None else input.size
    scale = weight(
        name, 0, (1, channels), param_attr if param_attr is not None else ParamAttr(initial_mean=1.0, initial_std=0.0)
    )
    names = mean_var_names or (f"_{name}.w1", f"_{name}.w2")
    moving = [
        weight(
            name,
            number,
            (1, channels),
            ParamAttr(name=names[number - 1], initial_mean=0.0, initial_std=0.0, is_static=True),
        )
        for number in (1, 2)
    ]
    bias_spec = bias(name, (1, channels), bias_attr)
    return make(
        name, "batch_norm", [input], input.size, parameters=[scale, *moving, bias_spec], act=Activation.of(act, act_.Relu),
        layer_attr=layer_attr, image=image, weights=[scale, *moving], bias=bias_spec, channels=channels, epsilon=epsilon,
        fraction=moving_average_fraction, use_global=use_global_stats,
    )  # fmt: skip


def img_cmrnorm(input, size, scale=0.0128, power=0.75, name=None, num_channels=None, layer_attr=None):
    """Normalizes across `size` neighbouring channels."""
    image = _image_of(input, num_channels)
    return make(
        name or default_name("crmnorm"), "img_cmrnorm", [input], input.size, layer_attr=layer_attr, image=image,
        width=size, scale=scale / size, power=power,
    )  # fmt: skip
