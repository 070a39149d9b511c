"""Networks made of layers, by the names of `paddle.v2.networks`."""

from __future__ import annotations

from paddlecloud.legacy import activations as act_
from paddlecloud.legacy import layers, poolings
from paddlecloud.legacy.attributes import ExtraAttr
from paddlecloud.legacy.graph import default_name


def sequence_conv_pool(
    input, context_len, hidden_size, name=None, context_start=None, pool_type=None, context_proj_layer_name=None,
    context_proj_param_attr=False, fc_layer_name=None, fc_param_attr=None, fc_bias_attr=None, fc_act=None, pool_bias_attr=None,
    fc_attr=None, context_attr=None, pool_attr=None,
):  # fmt: skip
    """A layer over each window of `context_len` words, then one value per sequence."""
    name = name or default_name("sequence_conv_pooling")
    window = layers.context_projection(input, context_len, context_start, context_proj_param_attr)
    seen = layers.mixed(
        input.size * context_len, context_proj_layer_name or f"{name}_conv_proj", [window], layer_attr=context_attr
    )
    hidden = layers.fc(
        seen, hidden_size, fc_act, fc_layer_name or f"{name}_conv_fc", fc_param_attr, fc_bias_attr, fc_attr
    )
    return layers.pooling(hidden, pool_type, name, pool_bias_attr, layer_attr=pool_attr)


text_conv_pool = sequence_conv_pool


def simple_img_conv_pool(
    input, filter_size, num_filters, pool_size, name=None, pool_type=None, act=None, groups=1, conv_stride=1, conv_padding=0,
    bias_attr=None, num_channel=None, param_attr=None, shared_bias=True, conv_layer_attr=None, pool_stride=1, pool_padding=0,
    pool_layer_attr=None,
):  # fmt: skip
    name = name or default_name("conv_pool")
    seen = layers.img_conv(
        input, filter_size, num_filters, f"{name}_conv", num_channel, act, groups, conv_stride, conv_padding, bias_attr=bias_attr,
        param_attr=param_attr, shared_biases=shared_bias, layer_attr=conv_layer_attr,
    )  # fmt: skip
    return layers.img_pool(
        seen,
        pool_size,
        f"{name}_pool",
        pool_type=pool_type,
        stride=pool_stride,
        padding=pool_padding,
        layer_attr=pool_layer_attr,
    )


def img_conv_bn_pool(
    input, filter_size, num_filters, pool_size, name=None, pool_type=None, act=None, groups=1, conv_stride=1, conv_padding=0,
    conv_bias_attr=None, num_channel=None, conv_param_attr=None, shared_bias=True, conv_layer_attr=None, bn_param_attr=None,
    bn_bias_attr=None, bn_layer_attr=None, pool_stride=1, pool_padding=0, pool_layer_attr=None,
):  # fmt: skip
    name = name or default_name("conv_bn_pool")
    seen = layers.img_conv(
        input, filter_size, num_filters, f"{name}_conv", num_channel, act_.Linear(), groups, conv_stride, conv_padding,
        bias_attr=conv_bias_attr, param_attr=conv_param_attr, shared_biases=shared_bias, layer_attr=conv_layer_attr,
    )  # fmt: skip
    even = layers.batch_norm(
        seen, act, f"{name}_bn", bias_attr=bn_bias_attr, param_attr=bn_param_attr, layer_attr=bn_layer_attr
    )
    return layers.img_pool(
        even,
        pool_size,
        f"{name}_pool",
        pool_type=pool_type,
        stride=pool_stride,
        padding=pool_padding,
        layer_attr=pool_layer_attr,
    )


def img_conv_group(
    input, conv_num_filter, pool_size, num_channels=None, conv_padding=1, conv_filter_size=3, conv_act=None, conv_with_batchnorm=False,
    conv_batchnorm_drop_rate=0, pool_stride=1, pool_type=None, param_attr=None,
):  # fmt: skip
    """Convolutions one after another, then a pooling: the block of VGG."""
    count = len(conv_num_filter)

    def each(value):
        return list(value) if isinstance(value, (list, tuple)) else [value] * count

    options = zip(
        conv_num_filter,
        each(conv_padding),
        each(conv_filter_size),
        each(conv_act),
        each(conv_with_batchnorm),
        each(conv_batchnorm_drop_rate),
    )
    last = input
    for filters, padding, size, act, with_norm, rate in options:
        act = act or act_.Relu()
        last = layers.img_conv(
            last,
            size,
            filters,
            num_channels=num_channels,
            act=act_.Linear() if with_norm else act,
            padding=padding,
            param_attr=param_attr,
        )
        num_channels = None
        if with_norm:
            last = layers.batch_norm(last, act, layer_attr=ExtraAttr(drop_rate=rate) if rate else None)
    return layers.img_pool(last, pool_size, pool_type=pool_type, stride=pool_stride)


def _vgg(input, blocks, num_channels):
    for filters, rates in blocks:
        input = img_conv_group(
            input, [filters] * len(rates), 2, num_channels, conv_act=act_.Relu(), conv_with_batchnorm=True, conv_batchnorm_drop_rate=rates,
            pool_stride=2, pool_type=poolings.Max(),
        )  # fmt: skip
        num_channels = None
    return input


def small_vgg(input_image, num_channels, num_classes):
    seen = _vgg(
        input_image, [(64, [0.3, 0]), (128, [0.4, 0]), (256, [0.4, 0.4, 0]), (512, [0.4, 0.4, 0])], num_channels
    )
    seen = layers.img_pool(seen, 2, pool_type=poolings.Max(), stride=2)
    hidden = layers.fc(layers.dropout(seen, 0.5), 512, act_.Linear(), layer_attr=ExtraAttr(drop_rate=0.5))
    return layers.fc(layers.batch_norm(hidden, act_.Relu()), num_classes, act_.Softmax())


def vgg_16_network(input_image, num_channels, num_classes=1000):
    seen = input_image
    for filters, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        seen = img_conv_group(
            seen, [filters] * count, 2, num_channels, conv_act=act_.Relu(), pool_stride=2, pool_type=poolings.Max()
        )
        num_channels = None
    for _ in range(2):
        seen = layers.fc(seen, 4096, act_.Relu(), layer_attr=ExtraAttr(drop_rate=0.5))
    return layers.fc(seen, num_classes, act_.Softmax())


def simple_lstm(
    input, size, name=None, reverse=False, mat_param_attr=None, bias_param_attr=None, inner_param_attr=None, act=None, gate_act=None,
    state_act=None, mixed_layer_attr=None, lstm_cell_attr=None,
):  # fmt: skip
    """A projection to the four gates, and an LSTM."""
    name = name or default_name("lstm")
    sums = layers.mixed(
        4 * size,
        f"{name}_transform",
        [layers.full_matrix_projection(input, 0, mat_param_attr)],
        layer_attr=mixed_layer_attr,
    )
    return layers.lstmemory(
        sums, name, size, reverse, act, gate_act, state_act, bias_param_attr, inner_param_attr, lstm_cell_attr
    )


def bidirectional_lstm(input, size, name=None, return_seq=False, concat_attr=None, concat_act=None, **given):
    name = name or default_name("bidirectional_lstm")
    both = [
        simple_lstm(
            input,
            size,
            f"{name}_{way}",
            reverse=way == "bw",
            **{key[4:]: value for key, value in given.items() if key.startswith(f"{way}d_")},
        )
        for way in ("fw", "bw")
    ]
    return _both_ways(both, name, return_seq, concat_attr, concat_act, given)


def simple_gru(
    input, size, name=None, reverse=False, mixed_param_attr=None, mixed_bias_param_attr=None, mixed_layer_attr=None, gru_bias_attr=None,
    gru_param_attr=None, act=None, gate_act=None, gru_layer_attr=None, naive=False,
):  # fmt: skip
    """A projection to the three gates, and a GRU."""
    name = name or default_name("simple_gru")
    parts = [layers.full_matrix_projection(input, 0, mixed_param_attr)]
    sums = layers.mixed(
        3 * size, f"{name}_transform", parts, bias_attr=False if mixed_bias_param_attr is None else mixed_bias_param_attr,
        layer_attr=mixed_layer_attr,
    )  # fmt: skip
    return layers.grumemory(sums, name, size, reverse, act, gate_act, gru_bias_attr, gru_param_attr, gru_layer_attr)


def simple_gru2(
    input, size, name=None, reverse=False, mixed_param_attr=None, mixed_bias_attr=None, gru_param_attr=None, gru_bias_attr=None, act=None,
    gate_act=None, mixed_layer_attr=None, gru_cell_attr=None,
):  # fmt: skip
    return simple_gru(
        input, size, name or default_name("simple_gru2"), reverse, mixed_param_attr, mixed_bias_attr, mixed_layer_attr, gru_bias_attr,
        gru_param_attr, act, gate_act, gru_cell_attr,
    )  # fmt: skip


def bidirectional_gru(input, size, name=None, return_seq=False, concat_attr=None, concat_act=None, **given):
    name = name or default_name("bidirectional_gru")
    both = [
        simple_gru2(
            input,
            size,
            f"{name}_{way}",
            reverse=way == "bw",
            **{key[4:]: value for key, value in given.items() if key.startswith(f"{way}d_")},
        )
        for way in ("fw", "bw")
    ]
    return _both_ways(both, name, return_seq, concat_attr, concat_act, given)


def _both_ways(both, name, return_seq, concat_attr, concat_act, given):
    unknown = [key for key in given if not key.startswith(("fwd_", "bwd_"))]
    if unknown:
        raise TypeError(f"there is no option `{unknown[0]}`")
    if not return_seq:
        both = [layers.last_seq(both[0]), layers.first_seq(both[1])]
    return layers.concat(both, concat_act, name, concat_attr)


def gru_unit(
    input, memory_boot=None, size=None, name=None, gru_bias_attr=None, gru_param_attr=None, act=None, gate_act=None, gru_layer_attr=None,
    naive=False,
):  # fmt: skip
    """One step of a GRU with its own memory, inside `recurrent_group`."""
    name = name or default_name("gru_unit")
    size = size or input.size // 3
    before = layers.memory(name, size, boot_layer=memory_boot)
    step = layers.gru_step_naive if naive else layers.gru_step
    return step(input, before, size, act, name, gate_act, gru_bias_attr, gru_param_attr, gru_layer_attr)


def gru_group(input, memory_boot=None, size=None, name=None, reverse=False, **given):
    name = name or default_name("gru_group")
    return layers.recurrent_group(
        lambda x: gru_unit(x, memory_boot, size, name, **given), input, reverse, f"{name}_recurrent_group"
    )


def simple_attention(
    encoded_sequence,
    encoded_proj,
    decoder_state,
    transform_param_attr=None,
    softmax_param_attr=None,
    weight_act=None,
    name=None,
):
    """A mean of the encoded positions, weighted by how well each fits the decoder's state."""
    name = name or default_name("attention")
    wanted = layers.mixed(
        encoded_proj.size, f"{name}_transform", [layers.full_matrix_projection(decoder_state, 0, transform_param_attr)]
    )
    spread = layers.expand(wanted, encoded_sequence, f"{name}_expand")
    both = layers.mixed(encoded_proj.size, f"{name}_combine", [spread, encoded_proj], weight_act or act_.Tanh())
    fit = layers.fc(both, 1, act_.SequenceSoftmax(), f"{name}_softmax", softmax_param_attr, False)
    scaled = layers.scaling(encoded_sequence, fit, f"{name}_scaling")
    return layers.pooling(scaled, poolings.Sum(), f"{name}_pooling")


def dropout_layer(input, dropout_rate, name=None):
    return layers.dropout(input, dropout_rate, name)
