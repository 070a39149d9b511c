"""Clicks that this example makes up: numbers, pairs of hour and device, and bags of the items that a user saw before."""

import os

import numpy as np
import torch

HOURS, DEVICES, ITEMS, NUMBERS = 24, 4, 2_000, 8


class Clicks(torch.utils.data.Dataset):
    """A trainer's share of the samples; outside a job all of them."""

    def __init__(self, samples, seed):
        trainer = int(os.environ.get("PADDLE_INIT_TRAINER_ID", "0"))
        trainers = int(os.environ.get("PADDLE_INIT_NUM_GRADIENT_SERVERS", "1"))
        taste = np.random.default_rng(1).normal(size=ITEMS)
        source = np.random.default_rng(seed)
        self.samples = [make(source, taste) for _ in range(samples)][trainer::trainers]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


def make(source, taste):
    numbers = source.normal(size=NUMBERS).astype(np.float32)
    hour, device = source.integers(HOURS), source.integers(DEVICES)
    # Some items are seen much more often than others.
    items = (ITEMS * source.random(source.integers(1, 8)) ** 3).astype(np.int64)
    interest = taste[items].mean() + numbers[:2].sum() + (hour > 17) * (device - 1.5)
    return np.float32(interest > source.normal() / 4), numbers, hour * DEVICES + device, items


def collate(samples):
    """Bags one after the other, with the place where each begins."""
    clicked, numbers, pairs, items = zip(*samples)
    offsets = np.cumsum([0, *(len(bag) for bag in items[:-1])])
    arrays = (np.array(clicked), np.stack(numbers), np.array(pairs), np.concatenate(items), offsets)
    return [torch.from_numpy(array) for array in arrays]
