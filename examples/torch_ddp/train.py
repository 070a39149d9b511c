"""Trains a small network with PyTorch's own DistributedDataParallel: trainers exchange gradients over gloo.

`init_process_group` reads MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE, which are set in every worker.
"""

import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

BATCH = 64
BATCHES = 200
REPORT_EVERY = 25
GOOD_ENOUGH = 0.02


def batch(trainer, number):
    """A batch of this trainer's share of points on a wave."""
    source = torch.Generator().manual_seed(1_000_003 * trainer + number)
    x = torch.rand(BATCH, 1, generator=source) * 4 - 2
    return x, torch.sin(2 * x)


def main():
    dist.init_process_group("gloo")
    trainer = dist.get_rank()
    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(1, 32), torch.nn.Tanh(), torch.nn.Linear(32, 1))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for at in range(BATCHES):
        x, y = batch(trainer, at)
        loss = ((model(x) - y) ** 2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if at % REPORT_EVERY == 0:
            print(f"pass 0 batch {at:3} loss {loss.item():.6f}", flush=True)

    with torch.no_grad():
        x, y = batch(1_000, 0)
        held_out = ((network(x) - y) ** 2).mean().item()
    print(f"trainer {trainer} of {dist.get_world_size()}: held-out loss {held_out:.6f}", flush=True)
    dist.destroy_process_group()
    if held_out > GOOD_ENOUGH:
        sys.exit("error: training did not find the wave")


if __name__ == "__main__":
    main()
