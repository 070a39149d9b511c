"""Predicts with a saved model: `python predict.py output/pass-00000 0.5 0 0 1`."""

import sys

from paddlecloud import ps

folder, *x = sys.argv[1:]
w, b = ps.read_parameter(f"{folder}/w"), ps.read_parameter(f"{folder}/b")
print(f"{w @ [float(word) for word in x] + b[0]:.3f}")
