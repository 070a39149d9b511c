"""The layer graph behind `paddle.v2` and v1 configurations, computed by PaddlePaddle 3.

`graph`, `attributes`, `types`, `layers`, `networks` and `evaluators` describe a network and need no PaddlePaddle. `kernels`, `machine` and
`training` compute it and import PaddlePaddle when they are first used. The design is docs/design/0013-paddle-v2.md.
"""
