"""Configurations and data providers of v1, on the layer graph of `paddlecloud.legacy`.

python -m paddlecloud.v1.train --config=trainer_config.py --num_passes=3 --save_dir=output
"""
