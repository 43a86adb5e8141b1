"""A real PostgreSQL server for the tests: started by themselves, reachable on a socket in a temporary folder only."""

import itertools
import os
import pwd
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

SOMEBODY = "nobody"
"""Who runs the server where the tests run as root: it refuses to."""


def programs() -> Path | None:
    """The folder of initdb and pg_ctl, of the newest release there is; None where there is none."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: float(path.parts[-3]))
    on_path = shutil.which("initdb")
    return found[-1].parent if found else Path(on_path).parent if on_path else None


@dataclass
class Server:
    """One that runs; whoever can reach the socket is let in, but for ``guarded``, who has a password."""

    folder: Path
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def url(self, schema: str = "", *, user: str = "postgres", database: str = "postgres") -> str:
        """The address of a ledger on it."""
        option = f"&schema={schema}" if schema else ""
        return f"postgresql+psycopg://{user}@/{database}?host={self.folder}{option}"

    def new_url(self) -> str:
        """The address of a ledger that does not exist yet, in a schema of its own."""
        return self.url(f"ledger_{next(self._numbers)}")

    def new_database(self) -> str:
        """The name of an empty database."""
        name = f"database_{next(self._numbers)}"
        self.sql(f"CREATE DATABASE {name}")
        return name

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one statement as the server's owner, outside a transaction."""
        import psycopg

        with psycopg.connect(host=str(self.folder), user="postgres", dbname=database, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description else []


@contextmanager
def running(binaries: Path) -> Iterator[Server]:
    """A server with fresh data for the time of the block; removed with everything at its end."""
    folder = Path(mkdtemp(prefix="autotune-pg-"))  # not below pytest's: a socket's path has room for 107 bytes
    as_somebody: dict[str, Any] = {}
    if os.geteuid() == 0:
        somebody = pwd.getpwnam(SOMEBODY)
        os.chown(folder, somebody.pw_uid, somebody.pw_gid)
        as_somebody = {"user": somebody.pw_uid, "group": somebody.pw_gid, "extra_groups": []}

    def call(program: str, *words: str) -> None:
        command = [str(binaries / program), "-D", str(folder / "data"), *words]
        # The server lives on with these streams: a pipe would not end with pg_ctl.
        with (folder / "output").open("w+") as output:
            done = subprocess.run(
                command, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, **as_somebody, check=False
            )
            output.seek(0)
            assert done.returncode == 0, output.read()

    try:
        call("initdb", "-U", "postgres", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C")
        rules = folder / "data" / "pg_hba.conf"
        rules.write_text("local all guarded scram-sha-256\n" + rules.read_text())
        switches = f"-c listen_addresses= -c unix_socket_directories={folder} -c fsync=off -c max_connections=100"
        call("pg_ctl", "start", "-w", "-o", switches)
        try:
            server = Server(folder)
            server.sql("CREATE ROLE guarded LOGIN PASSWORD 's3cret'")
            yield server
        finally:
            call("pg_ctl", "stop", "-w", "-m", "immediate")
    finally:
        shutil.rmtree(folder)
