"""The executor of a coordinator: it runs the server of the app in the operator's own folder, and nothing else.

Every run gets a process of its own, which reads its task from its input: the token of a task is a secret, and every
user of a machine can read the arguments of a process.
"""

import logging
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fedblade.core.errors import FedbladeError, Misconfigured
from fedblade.flower._executor import begin_process, carry_out_tasks, check_app
from fedblade.flower._flwr_internals import tasks as flower
from fedblade.flower.app_folder import AppFolder
from fedblade.flower.digests import app_digest
from fedblade.flower.server_app import RESUME, RUN_DIR, server_app

_DEFAULTS: dict[str, Any] = {RUN_DIR: "runs/flower", RESUME: False}
_ONE_RUN = "one-run"
_log = logging.getLogger(__name__)


def run_server(app: AppFolder, runtime: flower.Runtime, task: flower.Task) -> None:
    """Carry out the task of one run."""
    grid = runtime.grid(task)
    client = flower.grid_client(grid)
    failure = "the process of the run's server was ended"
    with flower.alive(client):
        try:
            given = flower.pull_input(client)
            check_app(given.fab, app_digest(app))
            grid.set_run(given.run)
            given.context.run_config = run_settings(app, given.settings)
            # The app's own files come last, so that they hide no module of the installation.
            sys.path.append(str(app.path))
            server_app(app.path)(grid, given.context)
            failure = ""
        except Exception as error:
            _log.exception("run %d failed", task.run_id)
            failure = str(error) if isinstance(error, FedbladeError) else f"{type(error).__name__}: {error}"
        finally:
            flower.finish_run(grid, failure)


def run_settings(app: AppFolder, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of a run: where its folder is, and whether the run in it is resumed."""
    unknown = sorted(given.keys() - _DEFAULTS.keys())
    if unknown:
        raise Misconfigured(f"the run has an unknown setting '{unknown[0]}'; expected {' or '.join(_DEFAULTS)}.")
    settings = _DEFAULTS | given
    for key, default in _DEFAULTS.items():
        if not isinstance(settings[key], type(default)):
            raise Misconfigured(f"the run has {key} = {settings[key]!r}; expected a {type(default).__name__}.")
    return settings | {RUN_DIR: str(app.path / settings[RUN_DIR])}


class _Executor:
    """Starts a process for every run."""

    def __init__(self, arguments: Sequence[str]) -> None:
        self._arguments = arguments
        self._processes: list[subprocess.Popen[bytes]] = []

    def start(self, task: flower.Task) -> None:
        """Start the process of a run; it inherits the log of this process."""
        self._processes = [process for process in self._processes if process.poll() is None]
        command = [sys.executable, "-P", "-m", "fedblade.flower._server_executor", *self._arguments]
        process = subprocess.Popen([*command, _ONE_RUN], stdin=subprocess.PIPE)  # noqa: S603 - our own module
        assert process.stdin is not None  # noqa: S101
        process.stdin.write(f"{task.run_id}:{task.token}".encode())
        process.stdin.close()
        self._processes.append(process)

    def end(self) -> None:
        """End the processes of all runs; a run writes its summary before it ends."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()


def main() -> None:
    """Serve the SuperLink at an address, for the app in a folder; without an authority, unencrypted."""
    begin_process()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder, address, secret, authority = sys.argv[1:5]
    runtime = flower.Runtime(address, Path(authority) if authority else None)
    if sys.argv[5:] == [_ONE_RUN]:
        run_id, _, token = sys.stdin.read().partition(":")
        run_server(AppFolder(Path(folder)), runtime, flower.Task(int(run_id), token))
        return
    executor = _Executor(sys.argv[1:5])
    try:
        carry_out_tasks(runtime, Path(secret), "serverapp", executor.start)
    except KeyboardInterrupt:
        _log.info("ended by a signal")
    finally:
        executor.end()


if __name__ == "__main__":
    main()
