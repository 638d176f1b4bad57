"""What a SuperLink is asked and told, through the commands of `flwr`."""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from fedblade.core.errors import RunFailed
from fedblade.core.files import write_atomic
from fedblade.flower._place import Place, toml_table
from fedblade.flower._processes import environment, require_flower

CONNECTION = "rehearsal"
_JSON = ("--format", "json")


class SuperLink:
    """A SuperLink that the connections in Flower's home know; to be used in a `with` statement."""

    def __init__(self, place: Place) -> None:
        require_flower()
        self._home = place.home
        self._process: subprocess.Popen[str] | None = None
        self._asked = 0

    def __enter__(self) -> Self:
        # A session of its own: Ctrl-C is for the command that was given, which may still have something to say here.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "fedblade.flower._commands"],
            env=environment(self._home),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        assert self._process is not None  # noqa: S101
        self._process.kill()
        self._process.communicate()

    def nodes(self) -> dict[str, str]:
        """The nodes that are known and what each is: registered, online or offline."""
        return {
            str(node["node-id"]): str(node["status"]) for node in self._ask("supernode", "list", CONNECTION)["nodes"]
        }

    def register(self, public_key: Path) -> str:
        """Let the node that has a key take part; its id."""
        return str(self._ask("supernode", "register", str(public_key), CONNECTION)["node-id"])

    def runs(self) -> list[dict[str, Any]]:
        """The runs, newest first, as Flower tells of them."""
        return list(self._ask("list", CONNECTION)["runs"])

    def run(self, number: str) -> dict[str, Any]:
        """What Flower tells of one run."""
        return dict(self._ask("list", CONNECTION, "--run-id", number)["runs"][0])

    def begin(self, app: Path, settings: Path) -> str:
        """Start the app with the settings of a TOML file; the id of its run."""
        return str(self._ask("run", str(app), CONNECTION, "--run-config", str(settings))["run-id"])

    def stop(self, number: str) -> None:
        """Stop a run."""
        self._ask("stop", number, CONNECTION)

    def _ask(self, *arguments: str) -> dict[str, Any]:
        process = self._process
        assert process is not None  # noqa: S101
        assert process.stdin is not None  # noqa: S101
        assert process.stdout is not None  # noqa: S101
        shown = f"flwr {' '.join(arguments)}"
        self._asked += 1
        try:
            process.stdin.write(json.dumps({"number": self._asked, "arguments": [*arguments, *_JSON]}) + "\n")
            process.stdin.flush()
            # A signal may have come between a question and its answer, which then is still to be read.
            while (answer := json.loads(process.stdout.readline() or "null")) and answer["number"] != self._asked:
                pass
        except (OSError, ValueError) as error:
            raise RunFailed(f"'{shown}' broke off: {error}. Check the installation of flwr.") from error
        if answer is None:
            raise RunFailed(f"'{shown}' ended without an answer. Check the installation of flwr.")
        found = _last_object(answer["printed"])
        if found.get("success"):
            return found
        said = found.get("error-message") or answer["failed"] or answer["printed"]
        raise RunFailed(f"'{shown}' failed: {' '.join(str(said).split())}")


def _last_object(printed: str) -> dict[str, Any]:
    """The JSON object that a command printed, after whatever else it said."""
    begin = printed.find("{")
    try:
        found = json.loads(printed[begin:]) if begin >= 0 else {}
    except ValueError:
        found = {}
    return found if isinstance(found, dict) else {}


def write_connection(place: Place, address: str, authority: Path | None) -> None:
    """Let `flwr`, with the rehearsal's home, know the SuperLink as its default; None is without encryption."""
    trust: Mapping[str, Any] = {"insecure": True} if authority is None else {"root-certificates": str(authority)}
    place.home.mkdir(parents=True, exist_ok=True)
    tables = f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
    write_atomic(place.home / "config.toml", tables + toml_table({"address": address, **trust}))
