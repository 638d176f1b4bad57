"""Every command of the page about months, as written and in its order, on this machine."""

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
from fedblade.flower._processes import MARK, end_all, free_ports
from fedblade.flower.app_folder import AppFolder
from fedblade.flower.node_folder import NodeFolder
from support.processes import HUNG_SECONDS

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[3] / "docs" / "how-to-operate-a-federation.md").read_text(encoding="utf-8")


def test_the_commands_work_as_written(tmp_path: Path):
    """Keys are replaced, a certificate is renewed, and a backup restored, between rounds of one run."""
    script = "\n".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOST": "127.0.0.1",
        "PORT": str(free_ports(1)[0]),
        "OMP_NUM_THREADS": "1",
        # By this everything is found that the commands leave running.
        MARK: str(AppFolder(tmp_path).local),
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
            nodes = [NodeFolder(tmp_path / name) for name in ("hospital-0", "hospital-1", "hospital-1-new")]
            for place in (AppFolder(tmp_path / "app"), *nodes, AppFolder(tmp_path)):
                end_all(place, 5.0)
    assert status == 0, (tmp_path / "printed").read_text()[-3000:]
    rounds = [json.loads(line)["round"] for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert rounds == list(range(1, 13))
    with tarfile.open(tmp_path / "backup.tar") as backup:
        summary = json.load(backup.extractfile("run/summary.json"))
    assert (summary["status"], summary["rounds"] >= 5) == ("interrupted", True)
    state = tmp_path / "app" / ".flower"
    private = [state, tmp_path / "run", state / "service.json", *state.glob("state.db*"), *(state / "logs").iterdir()]
    assert [path for path in private if path.stat().st_mode & 0o077] == []
