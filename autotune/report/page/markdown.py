"""A view as Markdown of GitHub's kind: for pull requests and job summaries.

What is the user's is shown as it is: code spans where it is code, elsewhere with everything escaped that would be markup,
HTML, a mention or a table's end.
"""

import re
from collections.abc import Iterator, Sequence

from autotune.report.page.tables import (
    Table,
    memory_table,
    phases_table,
    rank_table,
    ranks_note,
    timeline_table,
    times_table,
)
from autotune.report.page.view import Answer, NoAnswer, View
from autotune.report.words import format_rate, format_share
from autotune.units import format_bytes

_SPECIAL = re.compile(r"([\\`*_{}\[\]()#+!|~$])")
_TIMES = "\N{MULTIPLICATION SIGN}"
_MOST_ROWS = 60
"""Of a table in a comment; a job summary may have 1 MiB, a comment 65,536 characters."""


def render_markdown(view: View) -> str:
    """The whole text, ending in one line break."""
    return "\n".join(_lines(view)) + "\n"


def _lines(view: View) -> Iterator[str]:
    yield f"## autotune: {_code(view.model)}"
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
        yield from _folded("Memory by batch size", memory_table(view.memory[0]))
    if view.step and view.step.timeline:
        yield from _folded("Memory over one step", timeline_table(view.step.timeline))
    if view.step and (peaks := phases_table(view.step)):
        yield from _folded("Memory by phase", peaks)
    timed = [row for row in view.times if row.seconds]
    if timed:
        yield from _folded("Step times", times_table(timed))
    if view.probes:
        yield from _folded(f"All {len(view.probes) + view.probes_left_out} probes", _probes(view))
    yield from ("", "<details><summary>Machine and workload</summary>", "")
    for title, rows in view.facts.items():
        yield f"- **{_text(title)}**: " + "; ".join(f"{_text(label)} {_text(value)}" for label, value in rows.items())
    yield from ("", "</details>", "")
    if view.reproduce:
        yield from _block(view.reproduce)
    yield _text(view.reproduce_note)


def _answer(view: View, answer: Answer) -> Iterator[str]:
    held = f" = {answer.effective} samples a step" if answer.effective != answer.batch_size else ""
    factors = [str(answer.batch_size)]
    factors += [f"{answer.accumulate} accumulated"] if answer.accumulate > 1 else []
    factors += [f"{answer.world} devices"] if answer.world > 1 else []
    settings = " ".join(_code(f"{name}={value}") for name, value in answer.changes.items())
    lead = f"Predicted, not run: each of {answer.ranks} devices would hold" if view.predicted else "Train with"
    yield f"**{lead} batch size {f' {_TIMES} '.join(factors)}{held}**, {f'with {settings}' if settings else 'settings as they are'}."
    yield ""
    rate, own = format_rate(answer.samples_per_second), format_rate(answer.own_samples_per_second)
    against = (
        f"{answer.speedup:.2f}{_TIMES} of your own ({own})"
        if answer.changes and answer.speedup
        else "your own settings"
    )
    end = f"{answer.refuted_at} fails" if answer.refuted_at else answer.bound
    rows: tuple[tuple[str, ...], ...] = (
        *([] if view.predicted else [("speed", f"{rate} samples/s{_in_all(answer)}, {against}")]),
        ("largest safe batch", f"{answer.max_batch}; {end}"),
        ("peak memory", format_share(answer.peak_bytes, answer.budget_bytes)),
        ("device", view.device),
    )
    yield from _table(Table(caption="", headings=("", ""), rows=rows, numbers=frozenset()))
    yield ""
    yield from (f"- {'✅' if claim.holds else '❔'} {_text(claim.text)}" for claim in view.claims)
    for command in view.commands:
        yield ""
        yield from _block(command)


def _in_all(answer: Answer) -> str:
    together = answer.all_ranks_samples_per_second
    return "" if together is None else f" in each rank, {format_rate(together)} in all"


def _no_answer(view: View, ended: NoAnswer | None) -> Iterator[str]:
    assert ended is not None
    yield f"**{_text(ended.title)}** on {_text(view.device)}: {_text(ended.message)}"
    if ended.parts:
        rows = [
            (part.kind, format_bytes(part.size_bytes), "expected" if part.expected else "")
            for part in ended.parts
            if part.size_bytes is not None
        ]
        if ended.requested_bytes is not None:
            rows.append(("the request that failed", format_bytes(ended.requested_bytes), ""))
        yield ""
        headings = (f"memory at batch {ended.at_batch}", "", "")
        yield from _table(Table(caption="", headings=headings, rows=tuple(rows), numbers=frozenset({1})))
    if ended.detail:
        yield ""
        yield from _block(ended.detail)
    yield ""
    yield f"Next: {_text(ended.next_action)}"


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
        caption="",
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


def _folded(title: str, table: Table) -> Iterator[str]:
    yield from ("", f"<details><summary>{_text(title)}</summary>", "")
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
    return _SPECIAL.sub(r"\\\1", line).replace("@", "&#64;").replace("://", "&#58;//")


def _code(words: str) -> str:
    """A code span; in a table ``|`` would end the cell, and line breaks would end the span."""
    line = " ".join(words.split())
    fence = "`" * (1 + _longest_run(line))
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{fence}{pad}{line}{pad}{fence}"


def _block(text: str) -> Iterator[str]:
    fence = "`" * max(3, 1 + _longest_run(text))
    yield from (f"{fence}text", text.rstrip("\n"), fence, "")


def _longest_run(text: str) -> int:
    return max((len(run) for run in re.findall(r"`+", text)), default=0)
