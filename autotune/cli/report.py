"""``autotune report``: a search as a page to show, as Markdown for a pull request, or as JSON."""

import shlex
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from autotune import api
from autotune.cli.options import Storage, argument, optional
from autotune.errors import UsageError

if TYPE_CHECKING:  # what a report is made of is loaded when one is made, and not for --help
    from autotune.report.page.view import View


class Format(StrEnum):
    """What a report is written as."""

    HTML = "html"
    """One file that opens anywhere, offline."""
    MD = "md"
    """For pull requests and job summaries."""
    JSON = "json"


_SUFFIXES = {".html": Format.HTML, ".htm": Format.HTML, ".md": Format.MD, ".json": Format.JSON}
_Search = Annotated[
    str | None,
    argument(metavar="ID", help="As listed by runs ls, or the autotune.json of a search. Default: the newest search."),
]
_Output = Annotated[
    Path | None, optional(metavar="PATH", help="File to write. Default: report.html; md and json go to stdout.")
]
_Format = Annotated[Format | None, optional("--format", help="Default: as --output ends, else html.")]


def report(search_id: _Search = None, output: _Output = None, form: _Format = None, storage: Storage = None) -> None:
    """Show a search with its evidence and plots on one offline page."""
    from autotune.cli.console import Screen
    from autotune.cli.write import check_writable, write_whole

    form = form or _told_by(output)
    if output is None and form is Format.HTML:
        output = Path("report.html")
    if output is not None:
        check_writable(output)
    text = _rendered(_view(search_id, storage), form)
    stdout = Screen(stderr=False)
    if output is None:
        stdout.say(text.rstrip("\n"))
    else:
        write_whole(output, text)
        stdout.say(f"wrote {output}")


def _told_by(output: Path | None) -> Format:
    if output is None:
        return Format.HTML
    form = _SUFFIXES.get(output.suffix.lower())
    if form is None:
        raise UsageError(
            f"{output.name} does not say whether it is to be a page, Markdown or JSON",
            hint=f"name a file that ends in .html, .md or .json, or say --format: --output {shlex.quote(f'{output}.html')}",
        )
    return form


def _view(search_id: str | None, storage: str | None) -> "View":
    if search_id is None or not (search_id.endswith(".json") or Path(search_id).is_file()):
        return api.report(search_id, storage=storage)
    from autotune.recommended.file import read_recommendation

    named = read_recommendation(Path(search_id)).search_id
    try:
        return api.report(named, storage=storage)
    except UsageError as error:
        raise UsageError(
            f"{search_id} is of search {named}, and {error.message}",
            hint="name the ledger that search was made with: --storage FILE",
        ) from error


def _rendered(view: "View", form: Format) -> str:
    if form is Format.HTML:
        from autotune.report.page.html import render_html

        return render_html(view)
    if form is Format.MD:
        from autotune.report.page.markdown import render_markdown

        return render_markdown(view)
    from autotune.report.records import to_json

    return to_json(view) + "\n"
