"""PaddlePaddle 3 with parameter servers: two lines in an existing script.

    from paddlecloud.ps.paddle import DistributedOptimizer
    optimizer = DistributedOptimizer(optimizer)

`optimizer.step()` and `optimizer.minimize(loss)` then send the gradients to the parameter servers, which average them over the
trainers and update, and fetch the new parameters. Every setting is read at every step, by Paddle's own code.
docs/reference/ps-paddle.md lists what works and what is refused.
"""

from paddlecloud.ps.paddle.embedding import Embedding, EmbeddingBag, attach
from paddlecloud.ps.paddle.optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer", "Embedding", "EmbeddingBag", "attach"]
