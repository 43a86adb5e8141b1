"""``autotune watch``: one table, one document, metrics into files and gateways, and what is wrong in a sentence."""

import base64
import json
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from autotune import published
from autotune.cli.signals import Stopped
from autotune.probe import nvml
from autotune.watch.dashboard import dashboard_text
from tests.cli.conftest import Ended, Invoke
from tests.planted_nvml import LARGE, Planted
from tests.planted_watch import publish, status

needs_library = pytest.mark.skipif(
    find_spec("prometheus_client") is None,
    reason='pip install "autotune-torch[monitor]"',
)


@pytest.fixture
def watch(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """``autotune watch`` of two planted cards, a training on the first, and nothing else."""
    (tmp_path / "locks").mkdir()
    monkeypatch.delenv(published.FOLDER_VARIABLE, raising=False)
    monkeypatch.setenv("AUTOTUNE_LOCK_DIR", str(tmp_path / "locks"))
    monkeypatch.setenv("AUTOTUNE_STORAGE", str(tmp_path / "ledger.sqlite3"))
    monkeypatch.setattr(nvml, "_pynvml", Planted().module())
    publish("1-a.json", status())

    def invoked(*argv: str) -> Ended:
        return invoke("watch", *argv)

    return invoked


@pytest.fixture
def stopped_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], list[float]]:
    """``stopped_after(3)`` sends a signal in the third wait; returns the list of waits."""

    def plant(number: int) -> list[float]:
        waits: list[float] = []

        def wait(seconds: float) -> None:
            waits.append(seconds)
            if len(waits) == number:
                raise Stopped(2)

        monkeypatch.setattr("autotune.cli.watch.sleep", wait)
        return waits

    return plant


def test_once_prints_one_table(watch: Invoke) -> None:
    ended = watch("--once")
    assert (ended.code, ended.err) == (0, "")
    assert "gpu0    card a               GPU-aaaa-24  [#################...]  83%" in ended.out
    assert "  gpu0    " in ended.out.partition("guarded trainings")[2] and "1,200" in ended.out
    assert "\x1b" not in ended.out


def test_json_is_one_document(watch: Invoke) -> None:
    ended = watch("--json")
    assert (ended.code, ended.err) == (0, "")
    content = json.loads(ended.out)
    assert [one["device"] for one in content["devices"]] == ["gpu0", "gpu1", "gpu2.0", "host"]
    assert content["trainings"][0]["status"]["step"] == 1200
    assert json.loads(watch("--once", "--json").out)["schema_version"] == 1


def test_without_a_terminal_tables_follow_each_other_until_it_is_stopped(
    watch: Invoke, stopped_after: Callable[[int], list[float]]
) -> None:
    waits = stopped_after(3)
    ended = watch()
    assert (ended.code, ended.err, waits) == (0, "", [2.0, 2.0, 2.0])
    assert ended.out.count("card a") == 3


def test_the_interval_is_what_was_asked_for(watch: Invoke, stopped_after: Callable[[int], list[float]]) -> None:
    waits = stopped_after(1)
    assert watch("--interval", "0.5").code == 0
    assert waits == [0.5]


@pytest.mark.parametrize("interval", ["0", "-1", "0.05", "nan", "inf", "86401"])
def test_a_wrong_interval_is_refused(watch: Invoke, interval: str) -> None:
    ended = watch("--interval", interval)
    assert (ended.code, ended.out) == (2, "")
    assert "is no time between looks" in ended.err and "hint: give seconds, from 0.1 to 86,400" in ended.err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--json", "--serve", "0"], "--json and --serve are given"),
        (["--json", "--textfile", "a.prom"], "--json and --textfile are given"),
        (["--once", "--serve", "0"], "--once and --serve are given"),
        (["--serve", "gpu-box"], "'gpu-box' is no port"),
        (["--serve", "::1:9477"], "an IPv6 address stands in brackets"),
        (["--textfile", "metrics.txt"], "reads only files whose names end in .prom"),
        (["--pushgateway", "anna:geheim@host:9091"], "is no address of a Pushgateway"),
    ],
)
def test_what_makes_no_sense_is_a_mistake_of_the_command_line(watch: Invoke, argv: list[str], message: str) -> None:
    ended = watch(*argv)
    assert ended.code == 2
    assert ("--json" in argv) == bool(ended.out)
    assert message in ended.err and "hint: " in ended.err
    assert "geheim" not in ended.err


def test_the_dashboard_is_printed_as_it_is(watch: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    ended = watch("--dashboard")
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == dashboard_text() + "\n"


@pytest.mark.parametrize("argv", [["--serve", "0"], ["--textfile", "a.prom"], ["--pushgateway", "http://127.0.0.1:1"]])
def test_without_the_library_the_command_that_installs_it_is_said(
    watch: Invoke, monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    ended = watch(*argv)
    assert ended.code == 5
    assert 'hint: pip install "autotune-torch[monitor]"' in ended.err
    assert watch("--once").code == 0, "nothing else needs it"


# --- metrics ----------------------------------------------------------------------------------------------------------


@needs_library
def test_a_textfile_holds_every_figure_and_is_whole(watch: Invoke, tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    path = tmp_path / "autotune.prom"
    ended = watch("--once", "--textfile", str(path))
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    families = {one.name: one for one in text_string_to_metric_families(path.read_text())}
    assert families["autotune_training_oom"].type == "counter"
    (sample,) = families["autotune_training_oom"].samples
    assert (sample.name, sample.value) == ("autotune_training_oom_total", 2)
    used = {one.labels["device"]: one.value for one in families["autotune_device_memory_used_bytes"].samples}
    assert used["gpu0"] == 20 * 2**30 and set(used) == {"gpu0", "gpu1", "gpu2.0", "host"}
    assert [one for one in tmp_path.iterdir() if one.name.startswith(".")] == []
    assert not stat.S_IMODE(path.stat().st_mode) & stat.S_IWOTH


@needs_library
def test_a_textfile_is_written_anew_each_time_and_removed_at_the_end(
    watch: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "autotune.prom"
    seen: list[str] = []

    def look(seconds: float) -> None:
        seen.append(path.read_text())
        published.remove(published.own_folder() or tmp_path, "1-a.json")
        if len(seen) == 2:
            raise Stopped(15)

    monkeypatch.setattr("autotune.cli.watch.sleep", look)
    ended = watch("--textfile", str(path), "--interval", "3")
    assert (ended.code, ended.err) == (0, "")
    assert ["autotune_training_steps_total{" in text for text in seen] == [True, False], "gone with the training"
    assert not path.exists(), "old figures would be told for ever"


@needs_library
def test_a_textfile_that_cannot_be_written_is_said_at_once(watch: Invoke, tmp_path: Path) -> None:
    ended = watch("--textfile", str(tmp_path / "nowhere" / "autotune.prom"))
    assert ended.code == 5
    assert "cannot write" in ended.err and "hint: look at the folder" in ended.err


@pytest.fixture
def gateway() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A tiny Pushgateway on loopback: its address, and what it was sent; it refuses users that it does not know."""
    requests: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def _take(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
            authorization = self.headers.get("Authorization")
            requests.append({"method": self.command, "path": self.path, "body": body, "authorization": authorization})
            self.send_response(401 if authorization and b"falsch" in base64.b64decode(authorization[6:]) else 202)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_PUT = do_DELETE = _take

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"127.0.0.1:{server.server_address[1]}", requests
    server.shutdown()
    server.server_close()
    thread.join()


@needs_library
def test_metrics_are_pushed_under_the_name_of_the_host_and_withdrawn_at_the_end(
    watch: Invoke,
    gateway: tuple[str, list[dict[str, Any]]],
    stopped_after: Callable[[int], list[float]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("platform.node", lambda: "gpu-box")
    address, requests = gateway
    waits = stopped_after(2)
    ended = watch("--pushgateway", f"http://{address}/")
    assert (ended.code, ended.out, ended.err, waits) == (0, "", "", [15.0, 15.0])
    assert [one["method"] for one in requests] == ["PUT", "PUT", "DELETE"]
    assert {one["path"] for one in requests} == {"/metrics/job/autotune/instance/gpu-box"}
    assert f'autotune_device_temperature_celsius{{device="gpu0",uuid="{LARGE}"}} 61.0' in requests[0]["body"]
    assert requests[0]["authorization"] is None


@needs_library
@pytest.mark.parametrize("given", ["in the address", "in the environment"])
def test_a_password_is_sent_and_said_to_nobody(
    watch: Invoke, gateway: tuple[str, list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    address, requests = gateway
    monkeypatch.setenv("AUTOTUNE_PUSHGATEWAY_PASSWORD", "gehe/im" if given == "in the environment" else "")
    user = "anna" if given == "in the environment" else "anna:gehe%2Fim"
    ended = watch("--once", "--pushgateway", f"http://{user}@{address}")
    assert (ended.code, ended.out, ended.err) == (0, "", "")
    (request,) = requests
    assert base64.b64decode(request["authorization"].removeprefix("Basic ")) == b"anna:gehe/im"
    refused = watch("--once", "--pushgateway", f"http://anna:falsch@{address}")
    assert refused.code == 5
    assert f"the Pushgateway http://{address} did not take the metrics: HTTP Error 401" in refused.err
    assert "falsch" not in refused.err and "anna" not in refused.err


def free_port() -> int:
    """Where nothing listens now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


@needs_library
def test_a_gateway_that_is_not_there_is_said_at_once(watch: Invoke) -> None:
    ended = watch("--pushgateway", f"http://anna:geheim@127.0.0.1:{free_port()}")
    assert ended.code == 5
    assert "Connection refused" in ended.err and "geheim" not in ended.err


@needs_library
def test_metrics_are_served_to_this_machine_until_it_is_stopped(
    watch: Invoke, stopped_after: Callable[[int], list[float]]
) -> None:
    waits = stopped_after(1)
    ended = watch("--serve", "0")
    assert (ended.code, ended.out, len(waits)) == (0, "", 1)
    assert ended.err.startswith("serving metrics on http://127.0.0.1:") and ended.err.count("\n") == 1


@needs_library
def test_a_server_that_others_reach_is_said_to_be_open(
    watch: Invoke, stopped_after: Callable[[int], list[float]], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped_after(1)
    monkeypatch.setattr("autotune.watch.addresses.Address.loopback", property(lambda address: False))
    ended = watch("--serve", "127.0.0.1:0")
    assert "whoever reaches 127.0.0.1 can read them: there is no password" in ended.err


@needs_library
def test_a_port_in_use_is_one_clear_sentence(watch: Invoke) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ended = watch("--serve", str(port))
    assert ended.code == 5
    assert ended.err.splitlines() == [
        f"error: port {port} of 127.0.0.1 is in use",
        f"hint: give another: autotune watch --serve 127.0.0.1:{port % 65535 + 1}",
    ]


@needs_library
def test_an_address_that_this_machine_has_not_is_told(watch: Invoke) -> None:
    ended = watch("--serve", "192.0.2.1:9477")  # of a range that is kept for documents
    assert ended.code == 5
    assert "metrics cannot be served on 192.0.2.1:9477: " in ended.err and "hint: give another address" in ended.err


@needs_library
def test_a_name_that_is_no_address_is_a_mistake_of_the_command_line(
    watch: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(*args: object, **options: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    ended = watch("--serve", "no-such-host:9477")
    assert ended.code == 2
    assert "--serve: no-such-host is no address: Name or service not known" in ended.err


@needs_library
@pytest.mark.parametrize("host", ["x" * 70, "a..b"])
def test_a_name_that_cannot_be_one_is_told_without_asking_anybody(watch: Invoke, host: str) -> None:
    ended = watch("--serve", f"{host}:9477")
    assert ended.code == 2
    assert f"--serve: {host} is no address" in ended.err
