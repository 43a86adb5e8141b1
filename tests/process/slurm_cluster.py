"""A Slurm cluster of one node on loopback: munge, controller and node daemon, with all their files in a folder of its own."""

import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.process.support import clean_environment, wait_for

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "squeue", "scancel", "sinfo")
_CONF = """\
ClusterName=autotune
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller}
SlurmdPort={node}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
KillWait=5
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def why_not() -> str:
    """Why there can be no cluster here; empty if there can."""
    missing = [name for name in PROGRAMS if _program(name) is None]
    if missing:
        return f"{', '.join(missing)} not installed (apt-get install slurm-wlm munge)"
    return "" if os.geteuid() == 0 else "slurmd needs root"


def _program(name: str) -> str | None:
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


class SlurmCluster:
    """Use as a context manager."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="slurm", dir="/tmp"))
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        (self.folder / "munge.key").write_bytes(os.urandom(1024))
        (self.folder / "munge.key").chmod(0o400)
        ports = [_free_port(), _free_port()]
        conf = _CONF.format(
            host=socket.gethostname().split(".")[0],
            folder=self.folder,
            controller=ports[0],
            node=ports[1],
            cpus=os.cpu_count(),
        )
        (self.folder / "slurm.conf").write_text(conf)
        self.variables = {"SLURM_CONF": str(self.folder / "slurm.conf")}
        self._environment = clean_environment(**self.variables)

    def __enter__(self) -> Self:
        folder = self.folder
        try:
            files = [f"--{kind}-file={folder}/munge.{kind}" for kind in ("key", "pid", "log", "seed")]
            self._run("munged", "--force", f"--socket={folder}/munge.sock", *files)
            self._run("slurmctld")
            self._run("slurmd")
            wait_for(lambda: "idle" in self.ask("sinfo", "--noheader", "--format=%T"), f"an idle node of {folder}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("slurmd", "slurmctld", "munge"):
            path = self.folder / f"{name}.pid"
            if path.exists():
                pid = int(path.read_text())
                subprocess.run(["kill", str(pid)], check=False)
                wait_for(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"the end of {name}")  # type: ignore[misc]
        shutil.rmtree(self.folder, ignore_errors=True)

    def ask(self, *words: str) -> str:
        """What one of Slurm's programs prints."""
        found = subprocess.run(words, env=self._environment, capture_output=True, text=True, check=False, timeout=60)
        return found.stdout

    def _run(self, name: str, *options: str) -> None:
        program = _program(name)
        assert program is not None
        subprocess.run([program, *options], env=self._environment, check=True, timeout=60)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
