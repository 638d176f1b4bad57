"""Every command of the tutorial, as written and in its order, on this machine."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
from fedblade.flower._processes import end_all, free_ports
from fedblade.flower.app_folder import AppFolder
from fedblade.flower.node_folder import NodeFolder
from support.processes import HUNG_SECONDS

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[3] / "docs" / "tutorial-hospitals.md").read_text(encoding="utf-8")


def test_the_commands_work_as_written(tmp_path: Path):
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    apps = [tmp_path / "app", tmp_path / "hospitals"]
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOST": "127.0.0.1",
        "PORT": str(free_ports(1)[0]),
        "OMP_NUM_THREADS": "1",
    }
    with (tmp_path / "printed").open("wb") as printed:
        process = subprocess.Popen(
            ["bash", "-eux", "-c", script],
            cwd=tmp_path,
            env=environment,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(HUNG_SECONDS)
        finally:
            for place in (*(NodeFolder(tmp_path / f"node-{number}") for number in range(3)), *map(AppFolder, apps)):
                end_all(place, 5.0)
    assert status == 0, (tmp_path / "printed").read_text()[-3000:]
    assert len((tmp_path / "run" / "history.jsonl").read_text().splitlines()) == 2
