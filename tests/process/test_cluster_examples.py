"""The examples of examples/cluster: read as Slurm, Kubernetes and the tool read them."""

import re
import shlex
import subprocess
from typing import Any

import yaml
from typer.main import get_command

from autotune.cli.commands import app
from autotune.executors.asked import Kind
from tests.process.support import ROOT

CLUSTER = ROOT / "examples" / "cluster"


def parsed(line: str) -> dict[str, Any]:
    """The options of a call of autotune, as the tool understands them; it refuses what it does not know."""
    words = shlex.split(line)
    assert words[0] == "autotune"
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    with commands[words[1]].make_context(words[1], words[2:]) as context:
        return dict(context.params)


def test_every_example_is_known_here() -> None:
    assert {path.name for path in CLUSTER.iterdir()} == {"search.sbatch", "rayjob.yaml"}


def test_the_slurm_script_is_one_and_its_commands_are_the_tool_s() -> None:
    text = (CLUSTER / "search.sbatch").read_text()
    subprocess.run(["bash", "-n", str(CLUSTER / "search.sbatch")], check=True)
    options = dict(re.findall(r"^#SBATCH --([a-z-]+)=(\S+)$", text, re.MULTILINE))
    hours, minutes, seconds = map(int, options["time"].split(":"))
    inside, outside = (
        parsed(found.rstrip(" &")) for found in sorted(re.findall(r"autotune search .+", text), key=len, reverse=True)
    )
    assert inside["workers"] == "all" and int(options["gpus-per-node"]) > 1
    warned_s = int(options["signal"].partition("@")[2])
    assert inside["time_budget"] + warned_s < hours * 3600 + minutes * 60 + seconds
    assert (outside["executor"], outside["workers"]) == (Kind.SLURM, "4")


def test_the_ray_job_has_a_gpu_for_each_worker_that_its_command_asks_for() -> None:
    job = yaml.safe_load((CLUSTER / "rayjob.yaml").read_text())
    asked = parsed(job["spec"]["entrypoint"])
    (group,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    (container,) = group["template"]["spec"]["containers"]
    gpus = group["replicas"] * int(container["resources"]["limits"]["nvidia.com/gpu"])
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert asked["executor"] == Kind.RAY and int(asked["workers"]) == gpus == 4
    (head,) = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert head["volumeMounts"] == container["volumeMounts"] and head["image"] == container["image"]
