"""PyTorch with parameter servers: two lines in an existing script.

    from paddlecloud.ps.torch import DistributedOptimizer
    optimizer = DistributedOptimizer(optimizer)

`optimizer.step()` then sends the gradients to the parameter servers, which average them over the trainers and update, and fetches the
new parameters. Rates, momenta, betas and decays are read from the parameter groups at every step, so schedulers work as before.
What does not work is refused by name; docs/reference/ps-torch.md lists both.
"""

from paddlecloud.ps.torch.embedding import Embedding, EmbeddingBag, attach
from paddlecloud.ps.torch.optimizer import DistributedOptimizer

__all__ = ["DistributedOptimizer", "Embedding", "EmbeddingBag", "attach"]
