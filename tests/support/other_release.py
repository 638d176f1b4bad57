"""A node in a process of its own that runs another release of fedblade: a copy of this one with other numbers."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import fedblade
from fedblade.core.tensorfile import read_tensors, write_tensors

_SCRIPT = """
import logging, sys
from pathlib import Path
from fedblade.core.tensorfile import read_tensors, write_tensors
from fedblade.flower._answering import answer_request
from fedblade.flower._node import Node
from fedblade.flower._node_errors import error_facts

logging.basicConfig(filename=sys.argv[1] + "/log")
folder, node = Path(sys.argv[1]), Node((int(sys.argv[2]),), None, Path(sys.argv[1]) / "states", "cpu")
for line in sys.stdin:
    tensors, facts = read_tensors(folder / "request")
    try:
        facts, tensors = answer_request(facts.pop("kind"), facts, tensors, lambda: node, lambda _: None)
    except Exception as error:
        facts, tensors = error_facts(error), {}
    write_tensors(folder / "reply", tensors, facts)
    print("done", flush=True)
"""


class OtherRelease:
    """The node of one client. `folder` gets the release, the states of the client and the node's log."""

    def __init__(self, folder: Path, client: int, version: str, protocol: int) -> None:
        self._folder = folder
        package = folder / "release" / "fedblade"
        shutil.copytree(Path(fedblade.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
        for path, name, value in (
            (package / "_version.py", "__version__", repr(version)),
            (package / "engines" / "nodes" / "_protocol.py", "PROTOCOL", str(protocol)),
        ):
            text, count = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value}", path.read_text())
            assert count == 1, path
            path.write_text(text)
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT, str(folder), str(client)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={"PYTHONPATH": str(package.parent), "OMP_NUM_THREADS": "1"},
        )  # fmt: skip

    @property
    def log(self) -> str:
        """What the node has logged."""
        return (self._folder / "log").read_text()

    def answer(self, kind, facts, tensors):
        """The facts and tensors of the node's reply."""
        write_tensors(self._folder / "request", tensors, {"kind": kind, **facts})
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        assert self._process.stdout.readline() == "done\n"
        tensors, facts = read_tensors(self._folder / "reply")
        return facts, tensors

    def stop(self) -> None:
        """End the process of the node."""
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
