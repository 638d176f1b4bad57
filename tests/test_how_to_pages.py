"""The Python of pages whose examples begin with something of the reader's, such as arrays or a module."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[1] / "docs"
ARRAYS = """
import numpy as np, torch, fedblade
rng = np.random.default_rng(0)
labels = rng.integers(0, 3, 300)
samples = (rng.normal(size=(300, 6)) + 3 * np.eye(3, 6)[labels]).astype("float32")
x, x2, x_test, x2_test = np.split(samples, [100, 200, 250])
y, y2, y_test, y2_test = np.split(labels, [100, 200, 250])
my_module = module = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
"""
EXPORTED = """
import json, torch, fedblade
from pathlib import Path
from fedblade.data.digits import digits
images, tiny = digits().test.inputs[:4], {"rounds": 1, "epochs": 1, "seed": 1}
result = fedblade.run(method="fedetf", model="mlp", **tiny)
result.export("digits.onnx"), result.export("digits.pt2", "torch")
module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
fedblade.run(model=module, method="fedavg", **tiny).export("mine.safetensors", "safetensors")
how = json.loads(Path("mine.json").read_text())["preprocessing"]
inputs, unit, mean, std = torch.from_numpy(images), how["unit"], how["mean"][0], how["std"][0]
"""
BEFORE = {
    "how-to-own-data": ARRAYS,
    "how-to-own-models": ARRAYS,
    "how-to-export-a-model": EXPORTED,
    "how-to-results": "",
    "how-to-participation": "",
    "explain-life-of-a-run": "",
    "reference-stability": "",
}
"""What a reader has before the first example of a page."""
ELSEWHERE = ("index", "tutorial-", "reference-python-", "explain-dimensional", "explain-simplex")
"""Pages whose lines `test_docs.py` runs."""


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_every_page_with_python_is_run():
    with_code = {page.stem for page in DOCS.glob("*.md") if blocks(page)}
    assert {name for name in with_code if not name.startswith(ELSEWHERE)} == set(BEFORE)


@pytest.mark.slow
@pytest.mark.parametrize("page", BEFORE)
def test_the_python_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "page"}
    for block in (BEFORE[page], *blocks(DOCS / f"{page}.md")):
        exec(compile(block, f"{page}.md", "exec", dont_inherit=True), names)
