"""Controls a SuperLink through the commands of `flwr`.

The commands run one after the other in one child process, because loading Flower takes longer than a command. The child
is this module, run as a program. Each line of its input is a JSON list, the arguments of a command; each line of its
output is a JSON object that says what the command `printed` and why it `failed`.
"""

import io
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import tomli_w

from fedblade.core.errors import RunFailed
from fedblade.core.files import write_atomic
from fedblade.flower._processes import environment, require_flower
from fedblade.flower.app_folder import AppFolder

CONNECTION = "local-federation"
"""The name by which `flwr` knows the SuperLink of a local federation."""
_JSON = ("--format", "json")


class SuperLink:
    """The SuperLink of a local federation; to be used in a `with` statement.

    After a signal, a new object is needed: the answer to an unfinished command may still be on its way.
    """

    def __init__(self, app: AppFolder) -> None:
        require_flower()
        self._home = app.home
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fedblade.flower._superlink"],
            env=environment(self._home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None  # noqa: S101
        self._process.kill()
        self._process.communicate()

    def nodes(self) -> dict[str, str]:
        """The known nodes by id, each with its state: registered, online or offline."""
        nodes = self._command("supernode", "list", CONNECTION)["nodes"]
        return {str(node["node-id"]): str(node["status"]) for node in nodes}

    def register(self, public_key: Path) -> str:
        """Admit the node that has a key; returns the node's id."""
        return str(self._command("supernode", "register", str(public_key), CONNECTION)["node-id"])

    def unregister(self, node_id: str) -> None:
        """Cut off a node; its key is never taken again."""
        self._command("supernode", "unregister", node_id, CONNECTION)

    def runs(self) -> list[dict[str, Any]]:
        """The runs, newest first, as Flower describes them."""
        return list(self._command("list", CONNECTION)["runs"])

    def run(self, run_id: str) -> dict[str, Any]:
        """One run, as Flower describes it."""
        return dict(self._command("list", CONNECTION, "--run-id", run_id)["runs"][0])

    def begin(self, app: Path, settings: Path) -> str:
        """Start the app with the settings of a TOML file; returns the id of the run."""
        return str(self._command("run", str(app), CONNECTION, "--run-config", str(settings))["run-id"])

    def stop(self, run_id: str) -> None:
        """Stop a run."""
        self._command("stop", run_id, CONNECTION)

    def _command(self, *arguments: str) -> dict[str, Any]:
        process = self._process
        assert process is not None  # noqa: S101
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        shown = f"flwr {' '.join(arguments)}"
        try:
            process.stdin.write(json.dumps([*arguments, *_JSON]) + "\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline() or "null")
        except (OSError, ValueError) as error:
            raise RunFailed(f"'{shown}' was cut short: {error}. Check the installation of flwr.") from error
        if answer is None:
            raise RunFailed(f"'{shown}' ended without an answer. Check the installation of flwr.")
        result = _printed_object(answer["printed"])
        if result.get("success"):
            return result
        reason = result.get("error-message") or answer["failed"] or answer["printed"]
        raise RunFailed(f"'{shown}' failed: {' '.join(str(reason).split())}")


def write_connection(app: AppFolder, address: str, authority: Path | None) -> None:
    """Make the SuperLink the default of `flwr` in the local federation's home; without an authority, unencrypted."""
    trust: Mapping[str, Any] = {"insecure": True} if authority is None else {"root-certificates": str(authority)}
    app.home.mkdir(parents=True, exist_ok=True)
    tables = {"superlink": {"default": CONNECTION, CONNECTION: {"address": address, **trust}}}
    write_atomic(app.home / "config.toml", tomli_w.dumps(tables))


def _printed_object(printed: str) -> dict[str, Any]:
    """The JSON object that a command printed; other output may stand before it."""
    begin = printed.find("{")
    try:
        value = json.loads(printed[begin:]) if begin >= 0 else {}
    except ValueError:
        value = {}
    return value if isinstance(value, dict) else {}


def _run_command(flwr: Any, arguments: list[str]) -> dict[str, str]:
    """Run a command of Flower's in this process: what it printed and why it failed."""
    printed, failed = io.StringIO(), ""
    streams = sys.stdout, sys.stderr, sys.__stdout__
    # Flower writes JSON to `sys.__stdout__`, not to `sys.stdout`.
    sys.stdout = sys.stderr = sys.__stdout__ = printed  # type: ignore[misc, assignment]
    try:
        flwr(arguments, standalone_mode=False)
    except (Exception, SystemExit) as error:
        failed = " ".join(str(error).split()) or type(error).__name__
    finally:
        sys.stdout, sys.stderr, sys.__stdout__ = streams  # type: ignore[misc]
    return {"printed": printed.getvalue(), "failed": failed}


def main() -> None:
    """Run commands until the input ends."""
    from flwr.cli.app import app

    for line in sys.stdin:
        print(json.dumps(_run_command(app, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
