"""What a probed command is kept from doing: reporting to experiment trackers, and using other devices. Pure."""

import os
from pathlib import Path


def contained(scratch: Path) -> dict[str, str]:
    """Variables that keep known trackers from noting a probe as a training.

    Args:
        scratch: folder for what they want to write all the same.

    Weights & Biases takes ``WANDB_MODE`` and MLflow ``MLFLOW_TRACKING_URI`` from the environment, as their documentation
    says; what a command is told in its own arguments goes first.
    """
    return {
        "WANDB_MODE": "disabled",
        "WANDB_SILENT": "true",
        "MLFLOW_TRACKING_URI": f"sqlite:///{scratch / 'mlflow.db'}",
        "HF_HUB_DISABLE_TELEMETRY": "1",
    }


def visible_devices(device: str) -> dict[str, str]:
    """``CUDA_VISIBLE_DEVICES`` for a command that shall train on this device: none for ``cpu``, one for ``cuda:1``.

    Within what this process itself may see; ``auto`` and ``cuda`` leave it as it is.
    """
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return {"CUDA_VISIBLE_DEVICES": ""}
    if kind != "cuda" or not index:
        return {}
    seen = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name]
    number = int(index)
    return {"CUDA_VISIBLE_DEVICES": seen[number] if number < len(seen) else index}
