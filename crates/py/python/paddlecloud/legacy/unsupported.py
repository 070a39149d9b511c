"""Names of v0.11.0 that are not supported, each with what to use instead."""

from __future__ import annotations

_NESTED = "nested sequences are not supported; give one sequence per sample"
_NN = "write this part in PaddlePaddle 3: {0}"

LAYERS = {
    "BaseGeneratedInput": "use `paddle.layer.GeneratedInput`",
    "BeamInput": "train with `paddle.layer.classification_cost`, and generate with `paddle.layer.beam_search`",
    "SubsequenceInput": _NESTED,
    "bilinear_interp": _NN.format("`paddle.nn.functional.interpolate`"),
    "block_expand": _NN.format("`paddle.nn.functional.unfold`"),
    "conv_operator": _NN.format("`paddle.nn.functional.conv2d`"),
    "conv_projection": "use `paddle.layer.img_conv` and `paddle.layer.addto`",
    "conv_shift": _NN.format("`paddle.nn.functional.conv1d`"),
    "convex_comb": _NN.format("`paddle.einsum`"),
    "crop": _NN.format("`paddle.crop`"),
    "cross_channel_norm": _NN.format("`paddle.nn.functional.normalize`"),
    "cross_entropy_over_beam": "train with `paddle.layer.classification_cost`",
    "ctc": _NN.format("`paddle.nn.functional.ctc_loss`"),
    "detection_output": _NN.format("`paddle.vision.ops`"),
    "factorization_machine": _NN.format("`paddle.einsum`"),
    "gated_unit": "use two `paddle.layer.fc` and `paddle.layer.mixed` with `dotmul_operator`",
    "hsigmoid": _NN.format("`paddle.nn.functional.hsigmoid_loss`"),
    "img_conv3d": _NN.format("`paddle.nn.functional.conv3d`"),
    "img_pool3d": _NN.format("`paddle.nn.functional.max_pool3d`"),
    "kmax_seq_score": _NN.format("`paddle.topk`"),
    "l2_distance": "use `paddle.layer.square_error_cost` or `paddle.layer.dot_prod`",
    "lambda_cost": "use `paddle.layer.rank_cost`",
    "linear_comb": _NN.format("`paddle.einsum`"),
    "maxout": _NN.format("`paddle.nn.functional.maxout`"),
    "multibox_loss": _NN.format("`paddle.vision.ops`"),
    "multiplex": _NN.format("`paddle.multiplex`"),
    "nce": "use `paddle.layer.classification_cost` over all classes",
    "out_prod": _NN.format("`paddle.outer`"),
    "pad": _NN.format("`paddle.nn.functional.pad`"),
    "prelu": _NN.format("`paddle.nn.functional.prelu`"),
    "print": "print in the event handler, or use `extra_layers=` with `paddle.infer`",
    "printer": "print in the event handler, or use `extra_layers=` with `paddle.infer`",
    "priorbox": _NN.format("`paddle.vision.ops.prior_box`"),
    "repeat": "use `paddle.layer.concat` with the layer several times",
    "resize": _NN.format("`paddle.reshape`"),
    "roi_pool": _NN.format("`paddle.vision.ops.roi_pool`"),
    "rotate": _NN.format("`paddle.rot90`"),
    "row_conv": "use `paddle.layer.context_projection`",
    "sampling_id": _NN.format("`paddle.multinomial`"),
    "scale_shift": "use `paddle.layer.fc` of size 1, or `paddle.layer.slope_intercept`",
    "scale_sub_region": _NN.format("indexing"),
    "selective_fc": "use `paddle.layer.fc`",
    "seq_slice": _NN.format("indexing"),
    "spp": "use several `paddle.layer.img_pool` and `paddle.layer.concat`",
    "sub_nested_seq": _NESTED,
    "sub_seq": _NN.format("indexing"),
    "switch_order": _NN.format("`paddle.transpose`"),
    "tensor": _NN.format("`paddle.nn.functional.bilinear`"),
    "trans": _NN.format("`paddle.transpose`"),
    "upsample": _NN.format("`paddle.nn.functional.interpolate`"),
    "warp_ctc": _NN.format("`paddle.nn.functional.ctc_loss`"),
}

# Names that v1 has without `_layer` behind them. Others, such as `print` and `pad`, belong to the program there.
BARE_IN_V1 = {
    "BaseGeneratedInput": LAYERS["BaseGeneratedInput"],
    "BeamInput": LAYERS["BeamInput"],
    "CudnnAvgInclPadPooling": "use `AvgPooling`",
    "MaxWithMaskPooling": "use `MaxPooling`",
    "SubsequenceInput": LAYERS["SubsequenceInput"],
    "conv_operator": LAYERS["conv_operator"],
    "conv_projection": LAYERS["conv_projection"],
    "cross_entropy_over_beam": LAYERS["cross_entropy_over_beam"],
    "factorization_machine": LAYERS["factorization_machine"],
    "hsigmoid": LAYERS["hsigmoid"],
    "lambda_cost": LAYERS["lambda_cost"],
}

POOLINGS = {
    "CudnnAvgInclPad": "use `paddle.pooling.Avg`",
    "MaxWithMask": "use `paddle.pooling.Max`",
}

NETWORKS = {
    "dot_product_attention": "use `paddle.networks.simple_attention`",
    "lstmemory_group": "use `paddle.networks.simple_lstm`",
    "lstmemory_unit": "use `paddle.layer.lstm_step` with two `paddle.layer.memory`",
    "inputs": "pass `feeding=` to `paddle.trainer.SGD.train`",
    "multi_head_attention": _NN.format("`paddle.nn.MultiHeadAttention`"),
    "outputs": "pass the layers to `paddle.parameters.create` and `paddle.trainer.SGD`",
}

EVALUATORS = {
    "classification_error_printer": "print `event.metrics` in the event handler",
    "ctc_error": "compute it from what `paddle.infer` returns",
    "detection_map": "compute it from what `paddle.infer` returns",
    "gradient_printer": "print `parameters.get_grad(name)` in the event handler",
    "maxframe_printer": "print what `paddle.infer` returns",
    "maxid_printer": "print what `paddle.infer(..., field='id')` returns",
    "pnpair": "use `paddle.evaluator.auc`",
    "rank_auc": "use `paddle.evaluator.auc`",
    "seqtext_printer": "print what `paddle.infer(..., field='id')` returns",
    "value_printer": "print what `paddle.infer` returns",
}

DATASETS = {
    "flowers": "read your copy of it with your own reader: a function that yields samples",
    "mq2007": "read your copy of it with your own reader: a function that yields samples",
    "sentiment": "use `paddle.dataset.imdb`",
    "voc2012": "read your copy of it with your own reader: a function that yields samples",
    "wmt16": "use `paddle.dataset.wmt14`, or read your copy of it with your own reader",
}

MODULES = {
    "config_base": "use `paddle.layer`",
    "data_feeder": "pass samples to `paddle.trainer.SGD.train` or `paddle.infer`, which feed them themselves",
    "fluid": "fluid programs became PaddlePaddle itself: use `import paddle`",
    "image": "use `paddle.vision.transforms`",
    "master": "use `paddle.reader.creator.cloud_reader`, or `paddlecloud.data.RecordDataset`",
    "model": "use `paddle.parameters.Parameters.to_tar` and `from_tar`",
    "op": "write `a + b`, `a * 2` and the like on layers, or use `paddle.layer.mixed`",
    "plot": "print or log `event.cost` in the event handler and draw it with matplotlib",
}

# Modules of 2017 elsewhere.
OTHER_MODULES = {
    "paddle.trainer.PyDataProvider": "use `paddle.trainer.PyDataProvider2`",
    "paddle.trainer.config_parser": "use `paddle.trainer_config_helpers`; to predict, run `paddle train --job=test --predict_output_dir`",
    "py_paddle": "use `paddle.v2`, or `paddle train --job=test --predict_output_dir`",
}


def refuse_module(path: str) -> None:
    """Raises where a module of 2017 is not here, with what to use instead."""
    parent, _, name = path.rpartition(".")
    table = {"paddle.v2": MODULES, "paddle.v2.dataset": DATASETS}.get(parent, {})
    instead = OTHER_MODULES.get(path) or table.get(name)
    if instead is not None:
        # Without `name=`, for which `from paddle.v2.dataset import …` would replace the text by its own.
        raise ModuleNotFoundError(f"`{path}` of 2017 is not supported: {instead}")


def refuse(module: str, table: dict[str, str]):
    """A module's `__getattr__`: an error that says what to use instead."""

    def __getattr__(name):
        if name.startswith("__"):
            raise AttributeError(f"module '{module}' has no attribute {name!r}")
        from paddlecloud.legacy.graph import users_line

        if name in table:
            raise AttributeError(f"{users_line()}: `{module}.{name}` of 2017 is not supported: {table[name]}")
        # With `name=` Python adds no suggestion of its own.
        raise AttributeError(f"{users_line()}: module '{module}' has no attribute {name!r}{_did_you_mean(module, name)}", name=name)

    return __getattr__


def _did_you_mean(module: str, name: str) -> str:
    import difflib
    import sys

    known = sys.modules[module].__all__
    close = difflib.get_close_matches(name, known, 3, 0.5)
    return f"; did you mean {' or '.join(f'`{each}`' for each in close)}?" if close else f"; it has {', '.join(sorted(known))}"
