"""Reads labelled texts for `trainer_config.py`: `label<TAB>words`."""

from paddle.trainer.PyDataProvider2 import *

UNKNOWN = 0


def initializer(settings, dictionary, **kwargs):
    settings.word_dict = dictionary
    settings.input_types = [integer_value_sequence(len(dictionary)), integer_value(2)]


@provider(init_hook=initializer, cache=CacheType.CACHE_PASS_IN_MEM)
def process(settings, file_name):
    with open(file_name) as file:
        for line in file:
            label, text = line.strip().split("\t")
            yield [settings.word_dict.get(word, UNKNOWN) for word in text.split()], int(label)


def predict_initializer(settings, dictionary, **kwargs):
    settings.word_dict = dictionary
    settings.input_types = [integer_value(len(dictionary), seq_type=SequenceType.SEQUENCE)]


@provider(init_hook=predict_initializer, should_shuffle=False)
def process_predict(settings, file_name):
    with open(file_name) as file:
        for line in file:
            yield [settings.word_dict.get(word, UNKNOWN) for word in line.split()]
