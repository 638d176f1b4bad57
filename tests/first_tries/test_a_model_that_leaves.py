"""Save a trained model, and use it on a machine where this library is not installed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import fedblade
from support import five_modules

ELSEWHERE = """
import sys
sys.modules["fedblade"] = None  # importing it is an error from here on
import numpy, torch
from safetensors.torch import load_file
from five_modules import MODULES

for kind, make in MODULES.items():
    inputs = torch.from_numpy(numpy.load(f"{kind}.npy"))
    for method in ("fedavg", "fedetf"):
        logits = torch.from_numpy(numpy.load(f"{kind}-{method}-logits.npy"))
        exported = torch.export.load(f"{kind}-{method}.pt2").module()
        torch.testing.assert_close(exported(inputs), logits)
        if method == "fedavg":
            for tensors in (torch.load(f"{kind}-{method}.pt"), load_file(f"{kind}-{method}.safetensors")):
                net = make().eval()
                net.load_state_dict(tensors)
                torch.testing.assert_close(net(inputs), logits)
print("all the same")
"""


@pytest.mark.thorough
def test_a_model_that_leaves(tmp_path):
    for kind, make in five_modules.MODULES.items():
        data = five_modules.arrays(kind)
        inputs = torch.from_numpy(data[2])
        np.save(tmp_path / f"{kind}.npy", data[2])
        for method in ("fedavg", "fedetf"):
            result = fedblade.run(dataset=data, model=make(), method=method, num_clients=10, rounds=1)
            net = result.model.module()
            np.save(tmp_path / f"{kind}-{method}-logits.npy", result.model(inputs).numpy())
            torch.save(net.state_dict(), tmp_path / f"{kind}-{method}.pt")
            save_file(net.state_dict(), tmp_path / f"{kind}-{method}.safetensors")
            torch.export.save(torch.export.export(net, (inputs,)), tmp_path / f"{kind}-{method}.pt2")
    (tmp_path / "five_modules.py").write_text(Path(five_modules.__file__).read_text())
    ended = subprocess.run([sys.executable, "-c", ELSEWHERE], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert ended.stdout == "all the same\n", ended.stderr
