"""The names that the demonstrations of v0.9.0 use of v1's `trainer_config_helpers`."""

import pytest

import paddle.trainer_config_helpers as helpers

USED = """
AdamOptimizer AvgPooling ExtraAttr ExtraLayerAttribute GeneratedInput Inputs L2Regularization LayerOutput LinearActivation MaxPooling
MomentumOptimizer Outputs ParamAttr ParameterAttribute RMSPropOptimizer ReluActivation STanhActivation Settings SoftmaxActivation StaticInput
TanhActivation addto_layer batch_norm_layer beam_search bidirectional_lstm chunk_evaluator classification_cost concat_layer
context_projection cos_sim crf_decoding_layer crf_layer data_layer default_decay_rate default_device default_momentum
define_py_data_sources2 dropout_layer embedding_layer fc_layer first_seq full_matrix_projection get_config_arg gru_step_layer
img_conv_layer img_pool_layer inputs lstmemory maxid_layer memory mixed_layer outputs pooling_layer recurrent_group recurrent_layer
regression_cost seqtext_printer_evaluator sequence_conv_pool settings simple_attention simple_gru simple_lstm small_vgg sum_evaluator
table_projection text_conv_pool
""".split()


def test_the_demonstrations_use_66_names():
    assert len(USED) == 66 and set(USED) <= set(helpers.__all__)


def test_names_may_be_imported_from_the_modules_of_2017():
    from paddle.trainer_config_helpers.activations import TanhActivation
    from paddle.trainer_config_helpers.layers import fc_layer

    assert fc_layer is helpers.fc_layer and TanhActivation is helpers.TanhActivation


@pytest.mark.parametrize("name", ["ctc_layer", "hsigmoid", "value_printer_evaluator", "lstmemory_group", "SubsequenceInput"])
def test_other_names_of_2017_say_what_to_use_instead(name):
    with pytest.raises(NotImplementedError, match=rf"test_v1_names.py:\d+: `{name}` of 2017 is not supported: "):
        getattr(helpers, name)(input=None)


def test_default_names_of_costs_are_v1s():
    x, label = helpers.data_layer(name="x", size=2), helpers.data_layer(name="label", size=2)
    out = helpers.fc_layer(input=x, size=2, act=helpers.SoftmaxActivation())
    assert helpers.classification_cost(input=out, label=label).name.startswith("__cost_")
    assert helpers.regression_cost(input=out, label=x).name.startswith("__square_error_cost_")


def test_a_cosine_is_multiplied_by_5_in_v1():
    x = helpers.data_layer(name="x", size=2)
    assert helpers.cos_sim(a=x, b=x).conf["scale"] == 5


def test_no_name_hides_a_builtin():
    import builtins

    assert not set(helpers.__all__) & set(dir(builtins))
