"""``autotune watch``: devices, tenants, guarded trainings and searches, in the terminal or as metrics."""

import math
import os
import platform
from contextlib import ExitStack, suppress
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import Json, Storage, optional
from autotune.cli.signals import Stopped
from autotune.errors import EnvironmentTrouble, UsageError

if TYPE_CHECKING:
    from autotune.cli.console import Screen
    from autotune.watch.collect import Collector
    from autotune.watch.outlets import Outlet
    from autotune.watch.prometheus import Metrics
    from autotune.watch.view import Line

_SUFFIX = ".prom"
_PASSWORD_VARIABLE = "AUTOTUNE_PUSHGATEWAY_PASSWORD"
"""Other users can read command lines."""
_LEAST_S, _MOST_S = 0.1, 86_400.0
_VIEW_S, _METRICS_S = 2.0, 15.0
_STYLES = {"note": "yellow", "trouble": "bold red"}


def watch(
    once: Annotated[bool, typer.Option("--once", help="Look once, print or hand on, and end.")] = False,
    json: Json = False,
    interval: Annotated[
        float | None, optional(metavar="SECONDS", help="Between looks: 2 in the terminal, 15 for files and gateways.")
    ] = None,
    serve: Annotated[
        str | None,
        optional(
            metavar="[HOST:]PORT",
            help="Serve Prometheus metrics at /metrics; to this machine alone, unless HOST is another address.",
        ),
    ] = None,
    textfile: Annotated[
        Path | None, optional(metavar="FILE.prom", help="Write metrics for node_exporter's textfile collector.")
    ] = None,
    pushgateway: Annotated[
        str | None,
        optional(
            metavar="URL",
            help="Push metrics to a Pushgateway, such as http://host:9091 or http://user:password@host:9091.",
        ),
    ] = None,
    dashboard: Annotated[
        bool, typer.Option("--dashboard", help="Print the Grafana dashboard, to be imported there.")
    ] = False,
    storage: Storage = None,
) -> None:
    """Show devices, who uses them, guarded trainings and searches.

    Until Ctrl-C, which ends it with exit code 0. With --serve, --textfile or --pushgateway metrics are handed on instead.
    """
    from autotune.cli.console import Screen

    if dashboard:
        from autotune.watch.dashboard import dashboard_text

        Screen(stderr=False).say(dashboard_text())
        return
    given = {"--serve": serve, "--textfile": textfile, "--pushgateway": pushgateway}
    outwards = [name for name, value in given.items() if value is not None]
    if json and outwards:
        raise UsageError(f"--json and {outwards[0]} are given", hint="choose one: --json prints one document and ends")
    if once and serve is not None:
        raise UsageError("--once and --serve are given", hint="leave --once out: metrics are served until Ctrl-C")
    wait_s = _checked(interval, _METRICS_S if outwards else _VIEW_S)
    if outwards:
        _hand_on(serve, textfile, pushgateway, storage, wait_s, once=once)
    else:
        _show(storage, wait_s, once=once, json=json)


def _checked(interval: float | None, default_s: float) -> float:
    if interval is None:
        return default_s
    if not math.isfinite(interval) or not _LEAST_S <= interval <= _MOST_S:
        raise UsageError(
            f"--interval {interval:g} is no time between looks",
            hint=f"give seconds, from {_LEAST_S:g} to {_MOST_S:,.0f}: --interval 5",
        )
    return interval


# --- the terminal -----------------------------------------------------------------------------------------------------


def _show(storage: str | None, wait_s: float, *, once: bool, json: bool) -> None:
    from autotune.cli.console import Screen
    from autotune.watch.collect import Collector
    from autotune.watch.document import snapshot_json
    from autotune.watch.view import lines

    stdout, collector = Screen(stderr=False), Collector(storage)
    if json:
        stdout.say(snapshot_json(collector.look()))
    elif once:
        _print(stdout, lines(collector.look()))
    else:
        with suppress(Stopped):  # Ctrl-C and SIGTERM are how it is meant to end
            if stdout.is_terminal:
                _refresh(stdout, collector, wait_s)
            while True:
                _print(stdout, lines(collector.look()))
                stdout.say("")
                sleep(wait_s)


def _print(stdout: "Screen", lines: "list[Line]") -> None:
    for line in lines:
        stdout.say(line.text, _style(line))


def _refresh(stdout: "Screen", collector: "Collector", wait_s: float) -> None:
    """On a screen of its own, until a signal."""
    from rich.live import Live
    from rich.text import Text

    from autotune.cli.console import printable
    from autotune.watch.view import lines

    with Live(console=stdout, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            shown = Text(no_wrap=True, overflow="ellipsis")
            for line in lines(collector.look()):
                shown.append(f"{printable(line.text)[: stdout.width]}\n", _style(line))
            live.update(shown, refresh=True)
            sleep(wait_s)


def _style(line: "Line") -> str:
    return "bold" if line.heading else _STYLES.get(line.health.value, "")


# --- metrics ----------------------------------------------------------------------------------------------------------


def _hand_on(
    serve: str | None,
    textfile: Path | None,
    pushgateway: str | None,
    storage: str | None,
    wait_s: float,
    *,
    once: bool,
) -> None:
    from autotune.cli.console import Screen
    from autotune.watch.addresses import parse_address
    from autotune.watch.collect import Collector
    from autotune.watch.outlets import Round
    from autotune.watch.prometheus import Metrics

    stderr = Screen(stderr=True)
    address = None if serve is None else parse_address(serve)
    metrics = Metrics(Collector(storage).look)
    outlets = [] if textfile is None else [_file(metrics, textfile)]
    outlets += [] if pushgateway is None else [_gateway(metrics, pushgateway)]
    round_ = Round(outlets, lambda text: stderr.say(f"- {text}", "yellow"))
    if once:
        round_.go()
        return
    with ExitStack() as stack, suppress(Stopped):  # Ctrl-C and SIGTERM are how it is meant to end
        if address is not None:
            bound = address.with_port(stack.enter_context(metrics.served(address)))
            stderr.say(f"serving metrics on http://{bound}/metrics")
            if not address.loopback:
                stderr.say(f"- whoever reaches {address.host} can read them: there is no password", "yellow")
        round_.go()
        stack.callback(round_.end)
        while True:
            sleep(wait_s)
            round_.go()


def _file(metrics: "Metrics", path: Path) -> "Outlet":
    from autotune.cli.write import write_whole
    from autotune.watch.outlets import Outlet

    if path.suffix != _SUFFIX:
        raise UsageError(
            f"--textfile {path}: node_exporter reads only files whose names end in {_SUFFIX}",
            hint=f"autotune watch --textfile {path.with_suffix(_SUFFIX)}",
        )

    def write() -> None:
        try:
            write_whole(path, metrics.text())
        except EnvironmentTrouble as error:
            raise EnvironmentTrouble(error.message, hint="look at the folder and its free space") from error

    def remove() -> None:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise EnvironmentTrouble(f"cannot remove {path}: {error.strerror}", hint="remove it by hand") from error

    return Outlet(f"the file {path}", write, remove)


def _gateway(metrics: "Metrics", text: str) -> "Outlet":
    from autotune.watch.addresses import parse_gateway
    from autotune.watch.outlets import Outlet

    gateway, instance = parse_gateway(text, os.environ.get(_PASSWORD_VARIABLE, "")), platform.node() or "unknown"
    return Outlet(
        f"the Pushgateway {gateway.url}",
        lambda: metrics.push(gateway, instance),
        lambda: metrics.withdraw(gateway, instance),
    )
