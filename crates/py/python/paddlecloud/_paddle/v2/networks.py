"""Networks made of layers."""

from paddlecloud.legacy.networks import (
    bidirectional_gru,
    bidirectional_lstm,
    dropout_layer,
    gru_group,
    gru_unit,
    img_conv_bn_pool,
    img_conv_group,
    sequence_conv_pool,
    simple_attention,
    simple_gru,
    simple_gru2,
    simple_img_conv_pool,
    simple_lstm,
    small_vgg,
    text_conv_pool,
    vgg_16_network,
)
from paddlecloud.legacy.unsupported import NETWORKS, refuse

__all__ = [
    "bidirectional_gru",
    "bidirectional_lstm",
    "dropout_layer",
    "gru_group",
    "gru_unit",
    "img_conv_bn_pool",
    "img_conv_group",
    "sequence_conv_pool",
    "simple_attention",
    "simple_gru",
    "simple_gru2",
    "simple_img_conv_pool",
    "simple_lstm",
    "small_vgg",
    "text_conv_pool",
    "vgg_16_network",
]

__getattr__ = refuse("paddle.v2.networks", NETWORKS)
