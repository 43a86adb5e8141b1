"""How a search ended, in sentences."""

from dataclasses import replace

from autotune.knobs import in_words
from autotune.model import Answer, Compile, Form, Reason, Settings
from autotune.search.apart import plain
from autotune.search.settings.candidates import affordable
from autotune.search.settings.choose import leader
from autotune.search.settings.explore import improvement, worth
from autotune.search.settings.guard import accumulation_differs
from autotune.search.settings.spending import compiles
from autotune.search.settings.table import Guard
from autotune.search.settings.view import View


def reason_of(view: View, answer: Answer) -> str:
    """Why the search ended here, in sentences."""
    assert answer.settings is not None, "a settings search always says for which"
    changes = changed_words(answer.settings, view.asked.space.base)
    of = f" with {changes}" if changes else " with your own settings"
    parts = [
        f"Batch {answer.recommended_batch}{of} is certified after {len(view.history)} probes{_times(view, answer)}"
    ]
    if not answer.complete:
        parts.append("Time ran out before the search was complete")
    if view.rescued and view.table.guard(view.origin) is Guard.UNKNOWN:
        parts.append("Your own settings fit at no batch size, so that nothing could be compared with them")
    if accumulation_differs(view):
        parts.append("Micro-batches do not add up to what one large batch trains")
    if view.opened:
        parts += _left_out(view)
    return ". ".join(parts) + "."


def _times(view: View, answer: Answer) -> str:
    """How much faster than the user's own settings, where both were timed."""
    assert answer.settings is not None, "a settings search always says for which"
    own = view.table.row(view.asked.base).speeds
    new = view.row_of(answer.settings).speeds.get(answer.recommended_batch)
    if plain(answer.settings) == view.asked.base or not own or new is None:
        return ""
    return f", {new / max(own.values()):.2f} times as fast as your own settings"


def _left_out(view: View) -> list[str]:
    """Compiled settings that promised enough and were not tried for what compiling takes."""
    if Compile.DEFAULT not in view.asked.space.values("compile"):
        return []
    lead = leader(view)
    wanted = [
        settings
        for settings in view.asked.space.neighbours(lead.settings)
        if compiles(settings)
        and settings not in view.table.rows
        and view.allowed(settings)
        and improvement(view, settings, lead) >= worth(settings)
        and not affordable(view, view.question(settings, view.reference, Form.TIMED, Reason.CHANGE))
    ]
    if not wanted:
        return []
    if any(compiles(settings) for settings in view.table.rows):
        return [f"Of settings that compile, {len(wanted)} more were left out: compiling takes no more than its share"]
    return ["torch.compile was left out: compiling would take more than its share of the time"]


def changed_words(settings: Settings, base: Settings) -> str:
    """What is not as the user has it: ``precision=bf16, compile=default``."""
    changes = in_words(settings, replace(base, accumulate=settings.accumulate))
    return ", ".join(f"{knob}={text}" for knob, text in changes.items())
