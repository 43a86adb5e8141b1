"""A real Prometheus for the tests: started by themselves on loopback, with its data in a temporary folder."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.process.support import wait_for

_CONFIG = """\
global:
  scrape_interval: 1s
  scrape_timeout: 1s
scrape_configs:
  - job_name: autotune
    static_configs:
      - targets: ["{target}"]
"""
_LISTENS = re.compile(r'msg="Listening on" address=127\.0\.0\.1:(\d+)')


def program(name: str = "prometheus") -> str | None:
    """Path of the server or of promtool; None where Debian's package ``prometheus`` is not installed."""
    return shutil.which(name)


def fetch(url: str) -> str:
    """The body of an answer from loopback, whatever proxy is set.

    Raises:
        OSError: nobody answers, or not with success.
    """
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30) as answer:
        body: str = answer.read().decode()
        return body


@dataclass(frozen=True)
class Server:
    """One that runs."""

    address: str

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its HTTP API."""
        url = f"{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        content = json.loads(fetch(url))
        assert content["status"] == "success", content
        return content["data"]

    def ask(self, query: str) -> list[dict[str, Any]]:
        """What a query finds now."""
        found: list[dict[str, Any]] = self.get("query", query=query)["result"]
        return found


@contextmanager
def scraping(target: str, folder: Path) -> Iterator[Server]:
    """A server that scrapes ``HOST:PORT`` every second, for the time of the block."""
    binary = program()
    assert binary is not None
    (folder / "prometheus.yml").write_text(_CONFIG.format(target=target))
    log = folder / "prometheus.log"
    words = [binary, f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}"]
    with log.open("w") as output:
        server = subprocess.Popen(
            [*words, "--web.listen-address=127.0.0.1:0"],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=folder,
        )

    def listens() -> re.Match[str] | None:
        assert server.poll() is None, log.read_text()
        return _LISTENS.search(log.read_text())

    def ready(address: str) -> bool:
        try:
            return bool(fetch(f"{address}/-/ready"))
        except urllib.error.HTTPError:  # it says so until it is
            return False

    try:
        port = wait_for(listens, "Prometheus listens")[1]  # type: ignore[index]
        address = f"http://127.0.0.1:{port}"
        wait_for(lambda: ready(address), "Prometheus is ready")
        yield Server(address)
    finally:
        server.terminate()
        server.wait(30)
