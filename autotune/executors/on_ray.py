"""A worker on a Ray cluster: a process of this host, the driver, with one actor that has a GPU for itself.

The actor holds the workload loaded, and each probe runs in a fresh process below it. The driver is a process of its own
because Ray ends it when the cluster is gone, and must not end the search. The only file that knows Ray.
"""

import json
import os
import re
import socket
import time
from collections.abc import Mapping
from typing import Any

from autotune.errors import EnvironmentTrouble
from autotune.executors.documents import error_document
from autotune.executors.host import TOKEN, Host, Message, root, serve
from autotune.probe.wire import Channel

_RECONNECT_S = 120.0
"""How long a head that is not there is waited for: one that is being restarted."""
_LOOK_UP_S = 0.5
_UNREACHABLE = 4
"""Times in a row that the head cannot be reached until it counts as gone."""
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:]+\]|[^:/\s]+):(\d{1,5})")


def main(descriptor: int, options: Mapping[str, str]) -> None:
    """Serve the tool that started this process."""
    channel = Channel(descriptor, TOKEN)
    driver = _Driver(options, channel)
    serve(driver.answer, channel, driver.close)


class _Actor:
    """Lives in a process of the cluster."""

    def __init__(self) -> None:
        self._notes: list[str] = []
        self._host = Host(self._notes.append)

    def answer(self, text: str) -> str:
        """One request and its answer, each as JSON; Ray carries text, and nothing of ours is pickled."""
        reply = self._host.answer(json.loads(text))
        notes, self._notes[:] = list(self._notes), []
        return json.dumps({**reply, "notes": notes})


class _Driver:
    """Connects, starts the actor with the first request, and hands requests on."""

    def __init__(self, options: Mapping[str, str], channel: Channel) -> None:
        self._options = options
        self._channel = channel
        self._actor: Any = None
        self._address: tuple[str, int] | None = None

    def answer(self, request: Message) -> Message:
        """What the actor says, or that it is lost; the process ends after that, and another one takes its place."""
        import ray

        try:
            if self._actor is None:
                self._connect(request)
            reply = self._ask(request)
        except EnvironmentTrouble as error:
            return {"kind": "refused", "error": error_document(error)}
        except _Gone as error:
            return {"kind": "lost", "why": str(error), "over": True}
        except (ray.exceptions.RayError, ConnectionError, RuntimeError, TimeoutError) as error:
            first = str(error).strip().splitlines()[0] if str(error).strip() else ""
            return {"kind": "lost", "why": f"{type(error).__name__}: {first}", "over": True}
        for note in reply.pop("notes", ()):
            self._channel.send("note", text=note)
        return reply

    def close(self) -> None:
        """End the actor with all below it."""
        import ray

        if self._actor is not None:
            ray.kill(self._actor)
        ray.shutdown()

    def _connect(self, request: Message) -> None:
        import ray

        wanted = self._options.get("address") or os.environ.get("RAY_ADDRESS") or "auto"
        deadline = time.monotonic() + float(self._options.get("reconnect_s", _RECONNECT_S))
        while True:
            try:
                ray.init(address=wanted, log_to_driver=False, configure_logging=False)
                break
            except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
                if _is_refusal(error):
                    raise EnvironmentTrouble(
                        f"the Ray cluster at {wanted} refuses this host: its authentication token is missing or incorrect",
                        hint="set RAY_AUTH_MODE=token, and RAY_AUTH_TOKEN or RAY_AUTH_TOKEN_PATH, as on the cluster",
                    ) from error
                if time.monotonic() >= deadline:
                    raise _Gone(f"there is no Ray cluster at {wanted}: {_first_line(error)}") from error
                ray.shutdown()
                time.sleep(1.0)
        found = _ADDRESS.fullmatch(ray.get_runtime_context().gcs_address)
        self._address = (found[1].strip("[]"), int(found[2])) if found else None
        asked = request.get("plan", {})
        device, ranks = str(asked.get("device", "auto")), int(asked.get("ranks", 1))
        gpus = float(self._options.get("num_gpus", 0 if device == "cpu" or not _has_gpus(ray, device) else ranks))
        variables = {"PYTHONPATH": os.pathsep.join(path for path in (os.environ.get("PYTHONPATH"), root()) if path)}
        # Ray sets it to the CPUs that an actor asks for, and would change what is measured.
        if "OMP_NUM_THREADS" in os.environ:
            variables["OMP_NUM_THREADS"] = os.environ["OMP_NUM_THREADS"]
        actor = ray.remote(
            num_gpus=gpus,
            num_cpus=float(self._options.get("num_cpus", 1)),
            max_restarts=0,
            max_task_retries=0,
            runtime_env={"env_vars": variables},
        )(_Actor)
        self._actor = actor.remote()

    def _ask(self, request: Message) -> Message:
        import ray

        answer = self._actor.answer.remote(json.dumps(request))
        unreachable = 0
        while True:
            done, _ = ray.wait([answer], timeout=_LOOK_UP_S)
            if done:
                reply: Message = json.loads(ray.get(answer))
                return reply
            unreachable = 0 if self._reaches_head() else unreachable + 1
            if unreachable >= _UNREACHABLE:
                raise _Gone("the head of the Ray cluster cannot be reached")

    def _reaches_head(self) -> bool:
        if self._address is None:
            return True
        try:
            socket.create_connection(self._address, timeout=_LOOK_UP_S * 4).close()
        except OSError:
            return False
        return True


class _Gone(Exception):
    """Raised when there is no cluster to ask."""


def _has_gpus(ray: Any, device: str) -> bool:
    """Whether to ask for a GPU where the device is to be found out: on a cluster without any, nobody would get one."""
    return device != "auto" or bool(ray.cluster_resources().get("GPU"))


def _is_refusal(error: BaseException | None) -> bool:
    """Whether a cluster is there, and this driver may not use it."""
    while error is not None:
        if type(error).__name__ == "AuthenticationError":
            return True
        error = error.__cause__ or error.__context__
    return False


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
