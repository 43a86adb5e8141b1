"""``autotune watch`` as a process: scraped by a real Prometheus, stopped by Ctrl-C, with a real training."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from autotune.held import Held
from autotune.model import SearchState
from autotune.probe.device_lock import DeviceLock
from autotune.storage.store import Store
from autotune.watch.dashboard import dashboard_text
from autotune.watch.metrics import METRICS
from tests import prometheus
from tests.cli.results import RECORD
from tests.planted_nvml import LARGE, SMALL, TOTAL, USED
from tests.planted_watch import publish, status
from tests.process.support import ROOT, clean_environment, wait_for

WATCHING = """
import sys
from autotune.probe import nvml
from tests.planted_nvml import Planted
nvml._pynvml = Planted(pids=(int(sys.argv[1]), 2**22 + 1)).module()
from autotune.cli.app import main
sys.argv = ["autotune", "watch", *sys.argv[2:]]
main()
"""
"""The command with planted cards, on each of which the process of this number runs, and another one that nobody sees."""

needs_library = pytest.mark.skipif(
    find_spec("prometheus_client") is None, reason='pip install "autotune-torch[monitor]"'
)
needs_server = pytest.mark.skipif(
    prometheus.program() is None, reason="Prometheus is missing: apt-get install prometheus"
)
needs_promtool = pytest.mark.skipif(
    prometheus.program("promtool") is None, reason="promtool is missing: apt-get install prometheus"
)


@dataclass(frozen=True)
class Watched:
    """A running ``autotune watch --serve``."""

    process: subprocess.Popen[str]
    target: str
    """``127.0.0.1:PORT``."""

    def text(self) -> str:
        """What is scraped."""
        return prometheus.fetch(f"http://{self.target}/metrics")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where the planted cards have their lock, a ledger with a running search, and two guarded trainings."""
    folder = tmp_path_factory.mktemp("watch")
    with pytest.MonkeyPatch.context() as patched:
        patched.delenv("AUTOTUNE_STATUS_DIR", raising=False)
        patched.setenv("AUTOTUNE_LOCK_DIR", str(folder))
        now = datetime.now(UTC)
        publish("1-a.json", status(updated=now))
        cpu = {"device": "cpu", "device_uuid": "", "allocated_bytes": None, "reserved_bytes": None}
        publish("1-b.json", status(updated=now, command="lit.py", leak_bytes_per_step=4096.0, rank=1, **cpu))
        lock = DeviceLock(SMALL.removeprefix("GPU-"))
        assert lock.take()
        with Store.open(str(folder / "ledger.sqlite3")) as store:
            held = Held.begin(store, replace(RECORD, state=SearchState.RUNNING))
            yield folder
            held.finish(SearchState.INTERRUPTED, None, "the test is over")
        lock.release()


@contextmanager
def serving(place: Path) -> Iterator[Watched]:
    environment = clean_environment(AUTOTUNE_LOCK_DIR=str(place), AUTOTUNE_STORAGE=str(place / "ledger.sqlite3"))
    words = [sys.executable, "-c", WATCHING, str(os.getpid()), "--serve", "0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment) as child:
        try:
            assert child.stderr is not None
            line = child.stderr.readline()
            found = re.fullmatch(r"serving metrics on http://(127\.0\.0\.1:\d+)/metrics\n", line)
            assert found, line + child.stderr.read()
            yield Watched(child, found[1])
        finally:
            child.kill()


@pytest.fixture(scope="module")
def served(place: Path) -> Iterator[Watched]:
    with serving(place) as watched:
        yield watched


@pytest.fixture(scope="module")
def server(served: Watched, tmp_path_factory: pytest.TempPathFactory) -> Iterator[prometheus.Server]:
    """A real Prometheus that scrapes it."""
    with prometheus.scraping(served.target, tmp_path_factory.mktemp("prometheus")) as running:
        wait_for(lambda: running.ask("autotune_trainings"), "a first scrape")
        yield running


def queries() -> list[str]:
    """Of the dashboard, as Grafana would fill them in with all machines chosen."""
    panels = json.loads(dashboard_text())["panels"]
    texts = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [text.replace("$instance", ".*").replace("$__rate_interval", "30s") for text in texts]


@needs_library
@needs_server
@pytest.mark.parametrize("query", queries())
def test_every_query_of_the_dashboard_finds_data(server: prometheus.Server, query: str) -> None:
    found = wait_for(lambda: server.ask(query), f"data of {query}", within_s=20)
    assert all(float(one["value"][1]) == float(one["value"][1]) for one in found), "no figure is NaN"


@needs_library
@needs_server
def test_the_machines_that_the_dashboard_lets_choose_are_found(server: prometheus.Server, served: Watched) -> None:
    found = wait_for(lambda: server.get("label/instance/values", **{"match[]": "autotune_watch_info"}), "the machine")
    assert found == [served.target]


@needs_library
@needs_server
def test_figures_arrive_as_they_were_seen(server: prometheus.Server) -> None:
    def ask(query: str) -> list[dict[str, Any]]:
        return wait_for(lambda: server.ask(query), query)

    used = {one["metric"]["device"]: int(one["value"][1]) for one in ask("autotune_device_memory_used_bytes")}
    assert (used["gpu0"], used["gpu1"]) == (USED[LARGE], USED[SMALL])
    (share,) = ask(f'autotune_device_memory_used_bytes{{uuid="{LARGE}"}} / autotune_device_memory_total_bytes')
    assert float(share["value"][1]) == pytest.approx(USED[LARGE] / TOTAL[LARGE])
    held = {one["metric"]["device"]: one["value"][1] for one in ask("autotune_probe_lock_held")}
    assert (held["gpu0"], held["gpu1"]) == ("0", "1")
    (tenant,) = ask('autotune_tenant_memory_bytes{device="gpu0"}')
    assert tenant["metric"]["pid"] == str(os.getpid())
    (leak,) = ask("autotune_training_leak_bytes_per_step > 0")
    assert (leak["metric"]["training"], leak["metric"]["rank"], leak["value"][1]) == ("lit.py", "1", "4096")


@needs_library
@needs_server
def test_types_and_help_arrive(server: prometheus.Server) -> None:
    told = server.get("metadata")
    for metric in METRICS:
        name = metric.name.removesuffix("_total") if metric.name not in told else metric.name
        assert [(one["type"], one["help"]) for one in told[name]] == [(metric.kind, metric.help)]


@needs_library
@needs_server
def test_a_training_that_ends_takes_its_figures_along(server: prometheus.Server, place: Path) -> None:
    path = publish("1-c.json", status(command="short.py", updated=datetime.now(UTC)))
    query = 'autotune_training_steps_total{training="short.py"}'
    wait_for(lambda: server.ask(query), "the training")
    path.unlink()
    wait_for(lambda: not server.ask(query), "its end")
    assert wait_for(lambda: server.ask("autotune_trainings"), "the others")[0]["value"][1] == "2"


@needs_library
@needs_promtool
def test_promtool_finds_nothing_to_mend_in_the_metrics(served: Watched) -> None:
    words = [prometheus.program("promtool") or "", "check", "metrics"]
    done = subprocess.run(words, input=served.text(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_library
def test_a_server_that_is_stopped_ends_well_and_says_nothing_more(place: Path) -> None:
    with serving(place) as watched:
        assert "autotune_trainings 2.0" in watched.text()
        watched.process.send_signal(signal.SIGTERM)
        _, err = watched.process.communicate(timeout=60)
        assert (watched.process.returncode, err) == (0, "")


def test_the_terminal_is_given_back_after_ctrl_c(place: Path) -> None:
    ours, theirs = pty.openpty()
    environment = clean_environment(AUTOTUNE_LOCK_DIR=str(place), TERM="xterm", COLUMNS="120", LINES="40")
    words = [sys.executable, "-c", WATCHING, str(os.getpid()), "--interval", "0.2"]
    with subprocess.Popen(words, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment) as child:
        os.close(theirs)
        shown = b""
        while b"lit.py" not in shown or shown.count(b"card a") < 2:
            assert select.select([ours], [], [], 60)[0], shown
            shown += os.read(ours, 65536)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
        while select.select([ours], [], [], 0)[0]:
            try:
                shown += os.read(ours, 65536)
            except OSError:  # Linux says so at the end of a terminal
                break
    os.close(ours)
    assert (child.returncode, err) == (0, b"")
    assert shown.rfind(b"\x1b[?1049l") > shown.rfind(b"card a"), "the screen that was there before is shown again"


TRAINING = """
import sys, torch, autotune
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with autotune.guard(model, optimizer) as guard:
    for line in sys.stdin:
        guard.train_step(lambda model, batch: model(batch).square().mean(), [torch.randn(4, 8)])
        print("trained", flush=True)
"""


def test_a_real_training_is_seen_while_it_runs_and_not_after_it_was_killed(tmp_path: Path) -> None:
    script = tmp_path / "train_it.py"
    script.write_text(TRAINING)
    environment = clean_environment(AUTOTUNE_LOCK_DIR=str(tmp_path), AUTOTUNE_STORAGE=str(tmp_path / "ledger.sqlite3"))

    def seen() -> list[dict[str, Any]]:
        words = [sys.executable, "-m", "autotune", "watch", "--once", "--json"]
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        found: list[dict[str, Any]] = json.loads(done.stdout)["trainings"]
        return found

    words = [sys.executable, str(script), "--token", "geheim"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as training:
        assert training.stdin is not None and training.stdout is not None
        training.stdin.write("go\n")
        training.stdin.flush()
        assert training.stdout.readline() == "trained\n"
        (found,) = seen()
        assert (found["script"], found["device"]) == ("train_it.py", "host")
        told = found["status"]
        assert (told["pid"], told["step"], told["command"]) == (training.pid, 1, "train_it.py --token ***")
        assert 0 < told["used_bytes"] <= told["capacity_bytes"]
        training.kill()
        training.wait()
    assert seen() == []
    assert list(tmp_path.glob("autotune-trainings-*/*")) == []


def rules() -> str:
    """The alerts of docs/watch.md."""
    (block,) = re.findall(
        r"^```yaml\n(groups:\n.*?)^```", (ROOT / "docs" / "watch.md").read_text(), re.MULTILINE | re.DOTALL
    )
    return str(block)


def test_the_alerts_of_the_docs_are_of_metrics_that_there_are() -> None:
    used = set(re.findall(r"\bautotune_\w+", rules()))
    assert len(used) == 4 and used <= {one.name for one in METRICS}


@needs_promtool
def test_promtool_takes_the_alerts_of_the_docs(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules())
    words = [prometheus.program("promtool") or "", "check", "rules", str(tmp_path / "rules.yml")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "SUCCESS: 4 rules found" in done.stdout, done.stdout + done.stderr
