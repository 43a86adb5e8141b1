"""Settings as people read them: what is not as they have it."""

from dataclasses import replace

from autotune.knobs import in_words
from autotune.model import Settings

OWN = "as you have it"


def settings_words(settings: Settings, own: Settings) -> str:
    """What is not as the user has it: ``precision=bf16 compile=default``; accumulation is told with the batch."""
    return _changes(settings, own) or OWN


def given_words(own: Settings) -> str:
    """What of the user's own settings is not the default, likewise; empty where nothing."""
    return _changes(own, Settings())


def _changes(settings: Settings, base: Settings) -> str:
    changes = in_words(settings, replace(base, accumulate=settings.accumulate))
    return " ".join(f"{name}={text}" for name, text in changes.items())
