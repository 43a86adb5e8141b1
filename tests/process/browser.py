"""Headless Chromium, driven by its command line alone: what a page becomes in it, what it says, what it asks of the network."""

import json
import os
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="there is no Chromium (Debian: apt-get install chromium)")
_DARK, _LIGHT = 0, 1
_NO_PAGE = "not an origin"


@dataclass(frozen=True)
class Shown:
    """What one visit left behind."""

    dom: str
    """After its scripts ran."""
    console: tuple[str, ...]
    """Every message, errors of the policy included."""
    fetched: tuple[str, ...]
    """URLs asked of the network by the page."""


def visit(page: Path, folder: Path, *, width: int = 1280, dark: bool = False) -> Shown:
    """Open a page and wait until it has nothing more to do."""
    log = folder / "net.json"
    done = _run(page, folder, width, 900, dark, "--dump-dom", f"--log-net-log={log}", "--enable-logging=stderr")
    said = tuple(re.findall(r'CONSOLE[:(][^"]*(".*)', done.stderr))
    asked = [event.get("params", {}) for event in json.loads(log.read_text(encoding="utf-8"))["events"]]
    # Chromium asks for updates of its own, in vain; what a page asks for has the page as its initiator.
    urls = {one["url"] for one in asked if one.get("initiator", _NO_PAGE) != _NO_PAGE and "url" in one}
    return Shown(
        done.stdout, said, tuple(sorted(url for url in urls if not url.startswith(("file:", "data:", "blob:"))))
    )


def photograph(page: Path, target: Path, *, width: int, height: int, dark: bool) -> tuple[int, int]:
    """Take a picture of its upper part; returns the picture's width and height."""
    _run(page, target.parent, width, height, dark, f"--screenshot={target}", "--hide-scrollbars")
    wide, high = struct.unpack(">II", target.read_bytes()[16:24])  # of a PNG's header
    return wide, high


def _run(
    page: Path, folder: Path, width: int, height: int, dark: bool, *options: str
) -> "subprocess.CompletedProcess[str]":
    assert CHROMIUM is not None
    profile = folder / f"profile-{width}-{dark}"
    command = [
        CHROMIUM,
        "--headless",
        "--disable-gpu",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",  # nothing leaves this machine, whatever asks
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        "--force-device-scale-factor=1",
        # A user of its own for the sandbox is not to be had in many containers; the page is ours.
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        f"--user-data-dir={profile}",
        f"--blink-settings=preferredColorScheme={_DARK if dark else _LIGHT}",
        f"--window-size={width},{height}",
        "--virtual-time-budget=10000",
        *options,
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done
