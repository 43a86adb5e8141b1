"""In the user's training process: a guard over memory, steps that degrade instead of ending, emergency checkpoints.

Brings in torch: ``import autotune`` does not import this before it is used. Knows neither ledger nor search: what it
sees leaves as values and as lines of a log.
"""

from autotune.runtime.checkpoint import Checkpoint, load_checkpoint, save_checkpoint
from autotune.runtime.guarded import Guard
from autotune.runtime.summary import Proposal, Summary

guard = Guard
"""``autotune.guard``."""

__all__ = ["Checkpoint", "Guard", "Proposal", "Summary", "guard", "load_checkpoint", "save_checkpoint"]
