"""The search for settings: which of them, with which batch, from the history of probes. Pure, but for Optuna's sampler."""

from autotune.search.settings.finder import SettingsFinder
from autotune.search.settings.spending import spent

__all__ = ["SettingsFinder", "spent"]
