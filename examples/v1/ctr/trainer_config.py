"""Click prediction by a v1 configuration: sparse ids, a table that is updated sparsely, two layers."""

from paddle.trainer_config_helpers import *

dict_size = get_config_arg("dict_size", int, 60)

define_py_data_sources2(
    train_list="train.list", test_list="test.list", module="dataprovider", obj="process", args={"dict_size": dict_size}
)
settings(batch_size=50, learning_rate=0.1 / 50, learning_method=MomentumOptimizer(0.9))

features = data_layer(name="features", size=dict_size)
hidden = fc_layer(
    input=features, size=16, act=TanhActivation(), param_attr=ParamAttr(initial_std=0.3, sparse_update=True)
)
hidden = fc_layer(input=hidden, size=16, act=TanhActivation())
predicted = fc_layer(input=hidden, size=2, act=SoftmaxActivation())
click = data_layer(name="click", size=2)

auc_evaluator(input=predicted, label=click, name="auc")
outputs(classification_cost(input=predicted, label=click))
