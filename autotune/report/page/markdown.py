"""A view as Markdown of GitHub's kind: for pull requests and job summaries.

What is the user's is shown as it is: code spans where it is code, elsewhere with everything escaped that would be markup,
HTML, a mention or a table's end.
"""

import re
from collections.abc import Iterator, Sequence

from autotune.report.page.tables import (
    Table,
    memory_table,
    parts_table,
    phases_table,
    rank_table,
    ranks_note,
    step_words,
    timeline_table,
    times_table,
)
from autotune.report.page.view import Answer, NoAnswer, View
from autotune.report.quoted import block, code
from autotune.report.words import format_rate, format_share
from autotune.units import format_bytes

_SPECIAL = re.compile(r"([\\`*_\[\]#|~$]|^[-+](?=\s)|^[-=](?=[-=]+$))")
_NUMBERED = re.compile(r"^(\d+)([.)])(?=\s|$)")
_TIMES = "\N{MULTIPLICATION SIGN}"
_MOST_ROWS = 60
"""Of a table in a comment; a job summary may have 1 MiB, a comment 65,536 characters."""


def render_markdown(view: View) -> str:
    """The whole text, ending in one line break."""
    return "\n".join(_lines(view)) + "\n"


def _lines(view: View) -> Iterator[str]:
    yield f"## autotune: {code(view.model)}"
    yield ""
    yield from _answer(view, view.answer) if view.answer else _no_answer(view, view.no_answer)
    if view.mind:
        yield from ("", "**Mind**", "")
        yield from (f"- {_text(words)}" for words in view.mind)
    if view.ranks > 1:
        yield from ("", "### Ranks", "", _text(ranks_note(view)))
        for probe in view.by_rank:
            table = rank_table(probe)
            yield from ("", f"{_text(table.caption)}:", "")
            yield from _table(table)
    if view.tried:
        yield from ("", "### What was tried, and why it lost", "")
        yield from _table(_tried(view))
    if view.memory and view.memory[0].parts:
        yield from _folded(memory_table(view.memory[0]))
    if view.step and view.step.timeline:
        yield from _folded(timeline_table(view.step.timeline))
    if view.step and (peaks := phases_table(view.step)):
        yield from _folded(peaks)
    if any(row.seconds for row in view.times):
        yield from _folded(times_table(view))
    if view.probes:
        yield from _folded(_probes(view))
    yield from ("", "<details><summary>Machine and workload</summary>", "")
    for title, rows in view.facts.items():
        yield f"- **{_text(title)}**: " + "; ".join(f"{_text(label)}: {_text(value)}" for label, value in rows.items())
    yield from ("", "</details>", "")
    if view.reproduce:
        yield from (*block(view.reproduce), "")
    yield _text(view.reproduce_note)


def _answer(view: View, answer: Answer) -> Iterator[str]:
    lead = f"Predicted for {view.ranks} ranks, which were not run:" if view.predicted else "Train with"
    held = f" ({words})" if (words := step_words(answer)) else ""
    settings = " ".join(code(f"{name}={value}") for name, value in answer.changes.items())
    own = f" ({code(view.own_settings)})" if view.own_settings else ""
    yield f"**{lead} batch size {answer.batch_size}**{held}, with {settings or f'your own settings{own}'}."
    yield ""
    end = f"{answer.refuted_at} fails" if answer.refuted_at else answer.bound
    rows: tuple[tuple[str, ...], ...] = (
        *([] if view.predicted else [("speed", _speed(answer))]),
        (f"largest {'predicted' if view.predicted else 'safe'} batch", f"{answer.max_batch}; {end}"),
        ("peak memory", format_share(answer.peak_bytes, answer.budget_bytes)),
        ("device", view.device),
    )
    yield from _table(Table(caption="", headings=("", ""), rows=rows, numbers=frozenset()))
    yield ""
    yield from (f"- {'✅' if claim.holds else '❔'} {_text(claim.text)}" for claim in view.claims)
    for command in view.commands:
        yield from ("", *block(command))


def _speed(answer: Answer) -> str:
    """That of the answer, against that of the user's own settings."""
    if answer.samples_per_second is None:
        return "not timed"
    words, together = f"{format_rate(answer.samples_per_second)} samples/s", answer.all_ranks_samples_per_second
    words += "" if together is None else f" in each rank, {format_rate(together)} in all"
    if not answer.changes:
        return words
    if answer.speedup is None:
        return f"{words}; your own settings were not timed"
    own = f"{format_rate(answer.own_samples_per_second)} samples/s at batch {answer.own_batch}"
    return f"{words}, {answer.speedup:.2f} times as fast as your own settings ({own})"


def _no_answer(view: View, ended: NoAnswer | None) -> Iterator[str]:
    assert ended is not None
    yield f"**{_text(ended.title)}** on {_text(view.device)}: {_text(ended.message)}"
    if ended.parts:
        table = parts_table(ended, view.budget_bytes)
        yield from ("", f"{table.caption}:", "")
        yield from _table(table)
    if ended.detail:
        yield from ("", *block(ended.detail))
    yield from ("", f"Next: {code(ended.next_action)}")


def _tried(view: View) -> Table:
    return Table(
        caption="",
        headings=("settings", "batch", "samples/s", "gain", "peak", "what became of it"),
        rows=tuple(
            (
                row.settings,
                str(row.batch_size),
                format_rate(row.samples_per_second),
                f"{row.gain:.2f}{_TIMES}" if row.gain else "-",
                format_bytes(row.peak_bytes),
                row.verdict,
            )
            for row in view.tried
        ),
        numbers=frozenset({1, 2, 3, 4}),
    )


def _probes(view: View) -> Table:
    return Table(
        caption=f"All probes ({len(view.probes) + view.probes_left_out})",
        headings=("#", "batch", "form", "why", "peak", "samples/s", "outcome", "settings"),
        rows=tuple(
            (
                str(row.number),
                str(row.batch_size),
                row.form,
                row.reason,
                format_bytes(row.peak_bytes),
                format_rate(row.samples_per_second),
                row.outcome,
                row.settings,
            )
            for row in view.probes
        ),
        numbers=frozenset({0, 1, 4, 5}),
    )


def _folded(table: Table) -> Iterator[str]:
    yield from ("", f"<details><summary>{_text(table.caption)}</summary>", "")
    yield from _table(table)
    yield from ("", "</details>")


def _table(table: Table) -> Iterator[str]:
    yield _row(table.headings)
    yield "|" + "|".join("---:" if at in table.numbers else "---" for at in range(len(table.headings))) + "|"
    yield from (_row(row) for row in table.rows[-_MOST_ROWS:])
    if len(table.rows) > _MOST_ROWS:
        yield ""
        yield f"The last {_MOST_ROWS} of {len(table.rows)} rows."


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(_text(cell) for cell in cells)} |"


def _text(words: str) -> str:
    """In one line, nothing of it markup: no HTML, no mention (@), no link that is made of what looks like one."""
    line = " ".join(words.split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    line = _NUMBERED.sub(r"\1\\\2", _SPECIAL.sub(r"\\\1", line))
    return line.replace("@", "&#64;").replace("://", "&#58;//")
