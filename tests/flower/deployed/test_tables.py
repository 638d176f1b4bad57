"""Three hospitals with tables, by the commands of the page, with real processes: the model is that of one machine."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="needs the extra flower")
import fedblade
from fedblade.flower._processes import end_all, free_ports
from fedblade.flower.app_folder import AppFolder
from fedblade.flower.node_folder import NodeFolder
from support.processes import HUNG_SECONDS

pytestmark = pytest.mark.slow
PAGE = (Path(__file__).parents[3] / "docs" / "how-to-own-data.md").read_text(encoding="utf-8")
NAMES = ("north", "south", "west")
DEPLOY = """
fedblade flower certs certs --host $HOST
fedblade flower serve hospitals --host $HOST --port $PORT --certs certs > serve.log 2>&1 &
until fedblade flower status hospitals | grep -q running; do sleep 0.5; done
PIN=$(fedblade flower digest hospitals | head -n 1 | cut -d ' ' -f 1)
n=0
for name in north south west; do
  fedblade flower join node-$name --coordinator $HOST:$PORT --ca certs/ca.crt --client $n --pin $PIN --data $name.csv
  fedblade flower admit node-$name/node.key.pub hospitals --client $n
  fedblade flower node node-$name > $name.log 2>&1 &
  n=$((n + 1))
done
fedblade flower run hospitals --out run --quiet
kill $(jobs -p)
wait
"""


def section() -> str:
    """The commands of the section of the page."""
    (text,) = re.findall(r"^## Tables on nodes\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)
    return "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL))


def test_the_commands_of_the_page_give_the_model_of_one_machine(tmp_path):
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOST": "127.0.0.1",
        "PORT": str(free_ports(1)[0]),
        "OMP_NUM_THREADS": "1",
    }
    with (tmp_path / "printed").open("wb") as printed:
        process = subprocess.Popen(
            ["bash", "-eux", "-c", section() + DEPLOY],
            cwd=tmp_path,
            env=environment,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            status = process.wait(HUNG_SECONDS)
        finally:
            for place in (
                *(NodeFolder(tmp_path / f"node-{name}") for name in NAMES),
                AppFolder(tmp_path / "hospitals"),
            ):
                end_all(place, 5.0)
    assert status == 0, (tmp_path / "printed").read_text()[-3000:]
    folder = tmp_path / "together"
    folder.mkdir()
    for name in NAMES:
        shutil.copy(tmp_path / f"{name}.csv", folder)
    settings = {"dataset.label": "outcome", "dataset.missing": "fill", "dataset.drop": "id"}
    data = {"dataset": "clients", "dataset.path": str(folder), **settings}
    near = fedblade.run(str(tmp_path / "hospitals.toml"), engine="sequential", **data)
    far = fedblade.load(tmp_path / "run")
    rows = {"age": [70, 30], "town": ["Oslo", "Kyiv"], "pressure": [120.0, None]}
    assert far.predict(rows).tolist() == near.model.predict(rows).tolist()
    assert set(far.predict(rows)) <= {"ill", "well"}
    mine, theirs = far.state_dict(), near.model.state_dict()
    assert mine.keys() == theirs.keys()
    assert all(mine[name].equal(theirs[name]) for name in mine)
