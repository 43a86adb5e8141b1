"""A diagnosis as text and as JSON: the answer of each section first, then what it rests on. Pure."""

from collections.abc import Callable

from autotune.model import Findings, Unanswered
from autotune.report.advised import advice_lines, snapshot_lines
from autotune.report.fragmentation import fragmentation_lines
from autotune.report.leaks import leak_facts, leak_lines
from autotune.report.peak import peak_lines
from autotune.report.records import to_json
from autotune.units import format_bytes

_SECTIONS: dict[str, tuple[Callable[[Findings], object], Callable[[Findings], list[str]]]] = {
    "leaks": (lambda findings: findings.leaks, leak_lines),
    "composition": (lambda findings: findings.peak, peak_lines),
    "fragmentation": (lambda findings: findings.fragmentation, fragmentation_lines),
    "snapshot": (lambda findings: findings.snapshots, snapshot_lines),
    "advice": (lambda findings: findings.advised, advice_lines),
}
"""Section -> (its noun, or None where it was not asked for; its lines)."""


def findings_text(findings: Findings) -> str:
    """All of it, for people: a block a section, each with its answer in its first line."""
    blocks = [lines(findings) for noun, lines in _SECTIONS.values() if noun(findings) is not None]
    blocks += [_unanswered_lines(one) for one in findings.unanswered]
    return "\n\n".join("\n".join(block) for block in [*blocks, _tail(findings)])


def findings_json(findings: Findings) -> str:
    """The same for programs. ASCII."""
    return to_json(
        {
            "schema_version": 1,
            "clean": findings.clean,
            "workload": {"ref": findings.workload.ref, "fingerprint": findings.workload.fingerprint},
            "machine": findings.machine,
            "batch_size": findings.batch_size,
            "batch_from": findings.batch_from,
            "settings": findings.settings,
            "budget_bytes": findings.budget.limit_bytes,
            "unanswered": findings.unanswered,
            **{name: noun(findings) for name, (noun, _) in _SECTIONS.items()},
            "leaks": leak_facts(findings),
        }
    )


def _unanswered_lines(one: Unanswered) -> list[str]:
    """Why a section says nothing, the user's own traceback, what to type."""
    hint = [f"  hint: {one.hint}"] if one.hint else []
    return [f"{one.section}: no answer: {one.message}", *one.detail.splitlines(), *hint]


def _tail(findings: Findings) -> list[str]:
    """What was looked at."""
    machine, budget = findings.machine, format_bytes(findings.budget.limit_bytes)
    trained = f"{findings.workload.ref} at batch {findings.batch_size} ({findings.batch_from})"
    return [f"{trained} on {machine.device_name} ({machine.device}), budget {budget}"]
