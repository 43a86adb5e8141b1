"""Metrics by the library ``prometheus_client``: as text, on a port, into a Pushgateway. The only file that knows it."""

import errno
import http.client
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType

from autotune.errors import EnvironmentTrouble, UsageError
from autotune.watch.addresses import Address, Gateway
from autotune.watch.metrics import METRICS, samples
from autotune.watch.snapshot import Snapshot

Look = Callable[[], Snapshot]

JOB = "autotune"
"""Under which metrics are pushed, with this host as ``instance``."""
_PUSH_S = 10.0


class Metrics:
    """What one machine tells; looks anew each time it is asked."""

    def __init__(self, look: Look) -> None:
        """
        Args:
            look: takes a snapshot; called by several threads, one for each scrape.

        Raises:
            EnvironmentTrouble: the library is missing.
        """
        self._library = _library()
        self._registry = self._library.CollectorRegistry(auto_describe=False)
        self._registry.register(_Families(look, self._library))

    def text(self) -> str:
        """In Prometheus's text format, as node_exporter reads it from files."""
        text: str = self._library.generate_latest(self._registry).decode()
        return text

    @contextmanager
    def served(self, address: Address) -> Iterator[int]:
        """While metrics can be scraped from ``/metrics`` there; the port, which is another one where 0 was asked for.

        Raises:
            EnvironmentTrouble: the port is in use, or may not be used.
            UsageError: this machine has no such address.
        """
        try:
            server, thread = self._library.start_http_server(address.port, address.host, self._registry)
        except (socket.gaierror, UnicodeError) as error:  # the second of names that can be none
            why = error.strerror if isinstance(error, OSError) else str(error)
            raise UsageError(
                f"--serve: {address.host} is no address: {why}", hint="autotune watch --serve 127.0.0.1:9477"
            ) from error
        except OSError as error:
            raise _not_served(address, error) from error
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            server.server_close()
            thread.join()

    def push(self, gateway: Gateway, instance: str) -> None:
        """Put them into a Pushgateway, in place of what this host pushed before.

        Raises:
            EnvironmentTrouble: it cannot be reached, or refuses.
        """
        with _told(gateway):
            self._library.push_to_gateway(registry=self._registry, **self._where(gateway, instance))

    def withdraw(self, gateway: Gateway, instance: str) -> None:
        """Remove what was pushed: a Pushgateway forgets nothing by itself.

        Raises:
            EnvironmentTrouble: as ``push``.
        """
        with _told(gateway):
            self._library.delete_from_gateway(**self._where(gateway, instance))

    def _where(self, gateway: Gateway, instance: str) -> dict[str, object]:
        handler = self._library.exposition.default_handler
        if gateway.user:
            handler = partial(
                self._library.exposition.basic_auth_handler, username=gateway.user, password=gateway.password
            )
        key = {"instance": instance}
        return {"gateway": gateway.url, "job": JOB, "grouping_key": key, "timeout": _PUSH_S, "handler": handler}


class _Families:
    """What the registry asks."""

    def __init__(self, look: Look, library: ModuleType) -> None:
        self._look, self._library = look, library

    def collect(self) -> Iterable[object]:
        core = self._library.core
        made = {
            metric.name: (core.CounterMetricFamily if metric.kind == "counter" else core.GaugeMetricFamily)(
                metric.name, metric.help, labels=metric.labels
            )
            for metric in METRICS
        }
        for sample in samples(self._look()):
            made[sample.name].add_metric(sample.labels, sample.value)
        return [family for family in made.values() if family.samples]


def _library() -> ModuleType:
    try:
        import prometheus_client.core
        import prometheus_client.exposition
    except ImportError as error:
        raise EnvironmentTrouble(
            "metrics need the package prometheus-client, which is not installed",
            hint='pip install "autotune-torch[monitor]"  (or: pip install prometheus-client)',
        ) from error
    return prometheus_client


def _not_served(address: Address, error: OSError) -> EnvironmentTrouble:
    if error.errno == errno.EADDRINUSE:
        return EnvironmentTrouble(
            f"port {address.port} of {address.host} is in use",
            hint=f"give another: autotune watch --serve {address.with_port(address.port % 65535 + 1)}",
        )
    return EnvironmentTrouble(
        f"metrics cannot be served on {address}: {error.strerror or error}",
        hint="give another address or port: autotune watch --serve 127.0.0.1:9477",
    )


@contextmanager
def _told(gateway: Gateway) -> Iterator[None]:
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise EnvironmentTrouble(
            f"the Pushgateway {gateway.url} did not take the metrics: {error or type(error).__name__}",
            hint="look at its address, and whether it runs",
        ) from error
