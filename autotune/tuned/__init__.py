"""A recommendation in the user's own training. Brings in torch: ``import autotune`` does not import this before it is used."""

from autotune.tuned.training import Tuned, load

__all__ = ["Tuned", "load"]
