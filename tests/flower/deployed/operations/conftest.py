"""A federation of a small app: real processes on loopback, driven by the commands a user would give."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr")
from fedblade.flower import _processes
from fedblade.flower.app_folder import AppFolder, find_app
from support.patched_processes import patching
from support.processes import HUNG_SECONDS

_APPS = """\
import json
import time
from pathlib import Path


def ask_once(module):
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.serverapp import ServerApp

    from fedblade.core.errors import RunFailed

    def server_app(folder):
        app = ServerApp()
        app.main()(main)
        return app

    def main(grid, context):
        folder = Path(context.run_config["run-dir"])
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "began").write_text(str(context.run_config["resume"]))
        if folder.name == "breaks":
            raise RunFailed("the disk is full")
        while folder.name == "endless" and not context.run_config["resume"]:
            time.sleep(0.2)
        wanted = int((folder.parent / "nodes").read_text())
        while len(list(grid.get_node_ids())) < wanted:
            time.sleep(0.2)
        question = RecordDict({"question": ConfigRecord({"round": 1})})
        messages = [Message(question, node, "query") for node in grid.get_node_ids()]
        replies = [reply for reply in grid.send_and_receive(messages, timeout=60) if not reply.has_error()]
        said = [dict(reply.content["answer"]) for reply in replies]
        row = {"round": 1, "clients": sorted(each["clients"] for each in said), "seconds": 1.0}
        (folder / "history.jsonl").write_text(json.dumps(row) + "\\n")
        (folder / "said.json").write_text(json.dumps(said))
        (folder / "summary.json").write_text(json.dumps({"status": "finished"}))

    module.server_app = server_app


def say_what_it_is(module):
    from flwr.app import ConfigRecord, Message, RecordDict

    def answer(message, make_node, check):
        node = make_node()
        said = {"clients": ",".join(map(str, node.clients)), "folder": str(node.folder)}
        return Message(RecordDict({"answer": ConfigRecord(said)}), reply_to=message)

    module.answer = answer


PATCHES = {"fedblade.flower.server_app": ask_once, "fedblade.flower.client_app": say_what_it_is}
"""
"""A server that asks every node once and writes what they say; what the folder is called decides how it ends."""


@dataclass(frozen=True)
class LocalFederation:
    """An app's folder and the commands for it."""

    folder: Path
    runs: Path
    environment: dict[str, str]

    @property
    def app(self) -> AppFolder:
        """Where its files are."""
        return find_app(self.folder)

    @property
    def processes(self) -> list[int]:
        """Everything of it that runs."""
        return _processes.running(self.app)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin `fedblade flower COMMAND FOLDER OPTIONS`."""
        command, *options = arguments
        return subprocess.Popen(
            [sys.executable, "-m", "fedblade", "flower", command, str(self.folder), *options],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | self.environment,
        )  # fmt: skip

    def call(self, *arguments: str, status: int = 0) -> str:
        """Give a command and wait for it: what it printed, or its error if it was to fail."""
        process = self.start(*arguments)
        printed, error = process.communicate(timeout=HUNG_SECONDS)
        assert process.returncode == status, f"{arguments}: {printed}{error}"
        return printed if status == 0 else error

    def status(self) -> tuple[int, dict[str, Any]]:
        """The exit status of `status`, and what it says."""
        process = self.start("status", "--json")
        printed, _ = process.communicate(timeout=HUNG_SECONDS)
        return process.returncode, json.loads(printed)

    def up(self, nodes: int, *options: str) -> None:
        """Start it with a number of nodes."""
        (self.runs / "nodes").write_text(str(nodes))
        self.call("up", "--nodes", str(nodes), *options)


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[LocalFederation]:
    """An app that is not up; whatever a test leaves running is ended."""
    environment = {"OMP_NUM_THREADS": "1", **patching(tmp_path / "site", _APPS)}
    found = LocalFederation(tmp_path / "my app", tmp_path / "results", environment)
    found.runs.mkdir()
    found.call("init", "--set", "num_clients=3", "--set", "clients_per_round=3", "--set", "rounds=1")
    yield found
    _processes.end_all(found.app, 5.0)
