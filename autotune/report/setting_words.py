"""Settings as people read them: what is not as they have it."""

from dataclasses import replace

from autotune.knobs import in_words
from autotune.model import Settings

OWN = "as you have it"


def settings_words(settings: Settings, own: Settings) -> str:
    """What is not as the user has it: ``precision=bf16 compile=default``; accumulation is told with the batch."""
    changes = in_words(settings, replace(own, accumulate=settings.accumulate))
    return " ".join(f"{name}={text}" for name, text in changes.items()) or OWN
