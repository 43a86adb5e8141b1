"""A training script in the usual manner: argparse, a data set, PyTorch's data loader. It knows nothing of autotune."""

import argparse

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

WIDTH = 1 << 16
"""Of the activations, 256 KiB a sample each."""

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--samples", type=int, default=1000)
parser.add_argument("--epochs", type=int, default=20)
parser.add_argument("--accumulate", type=int, default=1)
parser.add_argument("--drop-last", action="store_true")
parser.add_argument("--workers", type=int, default=0)
parser.add_argument("--spawn", action="store_true")
parser.add_argument("--output", default="")
args = parser.parse_args()


def main() -> None:
    torch.manual_seed(0)
    data = TensorDataset(torch.randn(args.samples, 8), torch.randint(0, 4, (args.samples,)))
    loader = DataLoader(
        data,
        batch_size=args.batch_size,
        shuffle=True,
        drop_last=args.drop_last,
        num_workers=args.workers,
        multiprocessing_context="spawn" if args.spawn else None,
    )
    model = nn.Sequential(nn.Linear(8, WIDTH), nn.Tanh(), nn.Sigmoid(), nn.Tanh(), nn.Linear(WIDTH, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    model.eval()
    with torch.no_grad():  # a sanity check before training
        model(data[:2][0])
    model.train()
    seen = 0
    for epoch in range(args.epochs):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels) / args.accumulate
            loss.backward()
            seen += 1
            if seen % args.accumulate == 0:
                optimizer.step()
                optimizer.zero_grad()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
        if args.output:
            torch.save(model.state_dict(), f"{args.output}/model.pt")


if __name__ == "__main__":
    main()
