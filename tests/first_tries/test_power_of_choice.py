"""A person lets the clients with the largest losses take part, from the command line."""

import json
import subprocess
import sys

SETTINGS = (
    "method=fedavg", "participation=power_of_choice", "candidates=6", "num_clients=8", "clients_per_round=3",
    "rounds=3", "epochs=1", "metrics=accuracy", "model=mlp", "device=cpu",
)  # fmt: skip


def test_the_clients_with_the_largest_losses(tmp_path):
    options = [part for setting in SETTINGS for part in ("--set", setting)]
    command = [sys.executable, "-m", "fedblade", "run", *options, "--out", str(tmp_path / "run")]
    subprocess.run(command, check=True, capture_output=True)
    rows = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert [len(row["clients"]) for row in rows] == [3, 3, 3]
    assert 'name = "power_of_choice"\ncandidates = 6\n' in (tmp_path / "run" / "config.toml").read_text()
