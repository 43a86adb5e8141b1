"""A view as one HTML file that needs nothing else: style, script, plotly and figures are within.

What is the user's is escaped by Jinja2 in markup, as JSON in the data of the plots, and as text of plotly in their labels.
A content security policy lets only the scripts written here run (by their hashes) and nothing be fetched from anywhere.
"""

import base64
import hashlib
from pathlib import Path

from autotune.report.columns import instant_words
from autotune.report.page.figures import figures
from autotune.report.page.tables import ROLES, parts_table, rank_table, ranks_note, step_words
from autotune.report.page.view import View
from autotune.report.words import format_rate, format_share
from autotune.units import format_bytes, format_seconds

_FOLDER = Path(__file__).parent / "templates"


def render_html(view: View) -> str:
    """The whole page."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "bytes": format_bytes,
        "seconds": format_seconds,
        "rate": format_rate,
        "instant": instant_words,
    }
    environment.globals |= {"share": format_share, "roles": ROLES, "rank_table": rank_table, "ranks_note": ranks_note}
    environment.globals |= {"parts_table": parts_table, "step_words": step_words}
    shown = figures(view)
    # Both are ours or plotly's, not the user's; and no closing tag is in them.
    scripts = [get_plotlyjs(), _read("plots.js")] if shown else []
    for script in scripts:
        assert "</script" not in script.lower(), "a script of the page would end within"
    return environment.get_template("report.html").render(
        view=view,
        figures={"trade": None, "step": None, "times": None} | {figure.name: figure for figure in shown},
        memory_figures=[figure for figure in shown if figure.name.startswith("memory-")],
        data={figure.name: figure.spec for figure in shown},
        style=Markup(_read("report.css")),
        scripts=[Markup(script) for script in scripts],
        policy=_policy(scripts),
    )


def _policy(scripts: list[str]) -> str:
    """Nothing from elsewhere; plotly makes style elements and pictures of its own."""
    hashes = " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(s.encode()).digest()).decode()}'" for s in scripts)
    return (
        f"default-src 'none'; script-src {hashes or repr('none')}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _read(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")
