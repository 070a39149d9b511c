"""Wide and deep with parameter servers. `plain.py` is the same program for one process: five lines differ."""

import hashlib

import torch
from torch import nn
from torch.utils.data import DataLoader

from paddlecloud.ps import Adagrad, connect, torch as distributed
from clicks import DEVICES, HOURS, ITEMS, NUMBERS, Clicks, collate

BATCH, EPOCHS = 64, 3


class WideAndDeep(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.EmbeddingBag(HOURS * DEVICES, 1, mode="sum")
        self.bag = distributed.EmbeddingBag(session, "items", 16, Adagrad(0.1), mode="mean")
        self.deep = nn.Sequential(
            nn.Linear(16 + NUMBERS, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 1)
        )

    def forward(self, numbers, pairs, items, offsets):
        deep = self.deep(torch.cat([self.bag(items, offsets), numbers], dim=1))
        return (self.wide(pairs[:, None]) + deep).squeeze(1)


torch.manual_seed(1)
session = connect(checkpoint_every=20)
model = WideAndDeep()
loader = DataLoader(Clicks(8_000, seed=2), BATCH, shuffle=True, collate_fn=collate)
loss_of = nn.BCEWithLogitsLoss()
optimizer = distributed.DistributedOptimizer(torch.optim.AdamW(model.parameters(), lr=0.01), session)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.02, epochs=EPOCHS, steps_per_epoch=len(loader))

for clicked, *features in session.batches(loader, EPOCHS, keep=[model, scheduler]):
    loss = loss_of(model(*features), clicked)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    if scheduler.last_epoch % 20 == 0:
        print(f"batch {scheduler.last_epoch:3} loss {loss.item():.4f}", flush=True)

model.eval()
with torch.no_grad():
    clicked, *features = collate(Clicks(2_000, seed=3).samples)
    found = model(*features)
    print(f"held-out loss {loss_of(found, clicked).item():.4f}")
    print(f"accuracy {((found > 0) == (clicked > 0)).float().mean().item():.3f}")
    print(f"digest {hashlib.sha256(found.numpy().tobytes()).hexdigest()}", flush=True)
