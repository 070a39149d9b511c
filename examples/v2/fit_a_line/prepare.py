"""Writes a data set in the layout of the Boston housing archive: `python prepare.py [folder]`.

The folder is used as DATA_HOME. Prices follow a line plus noise of a known size, so that anyone can see how good a model can get.
"""

import os
import sys

import numpy as np

SAMPLES = 506
NOISE = 2.0


def main(folder):
    source = np.random.default_rng(20170524)
    scale = source.uniform(0.5, 50.0, 13)
    features = source.random((SAMPLES, 13)) * scale
    weights = source.normal(0.0, 6.0, 13) / scale
    prices = 22.5 + (features - features.mean(axis=0)) @ weights + source.normal(0.0, NOISE, SAMPLES)
    os.makedirs(os.path.join(folder, "uci_housing"), exist_ok=True)
    path = os.path.join(folder, "uci_housing", "housing.data")
    np.savetxt(path, np.column_stack([features, prices]), fmt="%10.5f")
    print(f"wrote {SAMPLES} samples to {path}; no model has a mean squared error below about {NOISE**2}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "data")
