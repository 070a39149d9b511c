"""Sentiment of short texts by a v1 configuration, with a choice of networks: `--config_args=network=lstm`."""

from paddle.trainer_config_helpers import *

network = get_config_arg("network", str, "cnn")
is_predict = get_config_arg("is_predict", bool, False)

with open("data/dict.txt") as file:
    word_dict = {line.split()[0]: number for number, line in enumerate(file)}

define_py_data_sources2(
    train_list=None if is_predict else "data/train.list",
    test_list="data/pred.list" if is_predict else "data/test.list",
    module="dataprovider",
    obj="process_predict" if is_predict else "process",
    args={"dictionary": word_dict},
)
settings(
    batch_size=1 if is_predict else 50,
    learning_rate=1e-2,
    learning_method=AdamOptimizer(),
    regularization=L2Regularization(8e-4),
    gradient_clipping_threshold=25,
)

data = data_layer(name="word", size=len(word_dict))
embedding = embedding_layer(input=data, size=16)
if network == "emb":  # a bag of words
    text = pooling_layer(input=embedding, pooling_type=AvgPooling())
elif network == "cnn":
    text = sequence_conv_pool(input=embedding, context_len=3, hidden_size=32)
else:
    lstm = simple_lstm(input=embedding, size=16, lstm_cell_attr=ExtraAttr(drop_rate=0.1))
    text = pooling_layer(input=lstm, pooling_type=MaxPooling())
output = fc_layer(input=text, size=2, act=SoftmaxActivation())

if is_predict:
    outputs([maxid_layer(output), output])
else:
    label = data_layer(name="label", size=2)
    outputs(classification_cost(input=output, label=label))
