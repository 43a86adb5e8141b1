"""A training script as one has it: it imports nothing of autotune, and autotune runs it as it is. Torch only.

    python examples/train_script.py --batch-size 16
    autotune search --memory-limit 512MiB --device cpu -- \
        python examples/train_script.py --batch-size {batch} --output {scratch}

The second command starts the first one again and again, with sizes in place of ``{batch}``, and ends it after a few steps.
"""

import argparse
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

SIDE = 32
"""Pixels of an image in each direction."""


def images(number: int) -> TensorDataset:
    """Noise with a bright square in one of four corners, which is what is to be told."""
    pixels = torch.randn(number, 1, SIDE, SIDE)
    corners = torch.randint(0, 4, (number,))
    for image, corner in zip(pixels, corners.tolist(), strict=True):
        top, left = (SIDE // 2) * (corner // 2), (SIDE // 2) * (corner % 2)
        image[:, top : top + SIDE // 2, left : left + SIDE // 2] += 1
    return TensorDataset(pixels, corners)


def main() -> None:
    """Train, and save what was learnt after every epoch."""
    parser = argparse.ArgumentParser(description="Tell in which corner of an image the bright square is.")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--output", type=Path, default=Path("trained"))
    args = parser.parse_args()

    torch.manual_seed(0)
    loader = DataLoader(images(2048), batch_size=args.batch_size, shuffle=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(32 * 4, 4),
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for epoch in range(args.epochs):
        for pixels, corners in loader:
            loss = nn.functional.cross_entropy(model(pixels.to(device)), corners.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.3f}")
        args.output.mkdir(parents=True, exist_ok=True)
        torch.save(model.state_dict(), args.output / "model.pt")


if __name__ == "__main__":
    main()
