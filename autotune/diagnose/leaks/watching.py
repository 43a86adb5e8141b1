"""Steps a training and reads what it holds after each step. In the child."""

from dataclasses import asdict

import torch

from autotune.diagnose.examiner import Training
from autotune.model import LeakEvidence

DEFAULT_STEPS = 24


class LeakExaminer:
    """See ``Examiner``."""

    def __init__(self, steps: int | None) -> None:
        """``steps``: None = as many as it takes to tell."""
        self._steps = steps
        self._held: list[int] = []

    def begin(self, device: torch.device) -> None:
        """Nothing is recorded while the model is made."""

    def run(self, training: Training) -> None:
        for _ in range(self._steps or DEFAULT_STEPS):
            training.step()
            self._held.append(training.held_bytes())

    def facts(self) -> dict[str, object]:
        return asdict(LeakEvidence(steps=len(self._held), held_bytes=tuple(self._held)))
