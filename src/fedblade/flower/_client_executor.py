"""The executor of a node: it answers the messages of runs with the installed library, and with nothing else.

The process stays alive, so that Python and torch are loaded once. When a message of another run comes, the process
starts itself again: nothing of a run remains in memory, and data files are read again.
"""

import logging
import os
import sys
from pathlib import Path

from fedblade.core.errors import Misconfigured
from fedblade.flower._executor import begin_process, carry_out_tasks, check_app
from fedblade.flower._flwr_internals import tasks as flower
from fedblade.flower._node import Node
from fedblade.flower._node_errors import error_facts, error_text, failing_with
from fedblade.flower._own_parts import Approval, serve_own_parts
from fedblade.flower.agreement import Agreement
from fedblade.flower.client_app import answer
from fedblade.flower.node_folder import NodeFolder, NodeSettings, client_numbers, read_settings

_TASK = "FEDBLADE_TASK"
"""Variable that hands a task over to the process that starts again."""
_log = logging.getLogger(__name__)


class _Executor:
    def __init__(self, folder: NodeFolder, address: str) -> None:
        self._folder = folder
        self._runtime = flower.Runtime(address)
        self._run_id: int | None = None
        self._approval: Approval | None = None

    def run(self) -> None:
        """Carry out the task that was handed over, then all others."""
        handed_over = os.environ.pop(_TASK, "")
        if handed_over:
            run_id, _, token = handed_over.partition(":")
            self._do(flower.Task(int(run_id), token))
        carry_out_tasks(self._runtime, self._folder.secret, "clientapp", self._do)

    def _do(self, task: flower.Task) -> None:
        if self._run_id not in (None, task.run_id):
            os.environ[_TASK] = f"{task.run_id}:{task.token}"
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - this very process again
        self._run_id = task.run_id
        client = self._runtime.task_client(task)
        try:
            with flower.alive(client):
                failure = self._answer(client)
                flower.finish(client, failure)
        except flower.GIVEN_UP as error:
            _log.warning("a task was given up, because the SuperNode cannot be reached or has ended it: %s", error)
        finally:
            client.close()

    def _answer(self, client: flower.Client) -> str:
        """Answer the message of a task, or refuse it; the reason of a refusal."""
        given = flower.pull_input(client)
        try:
            settings = read_settings(self._folder)
            with failing_with("other app"):
                check_app(given.fab, settings.pin)
            if self._approval is None:
                with failing_with("own parts"):
                    self._approval = Approval(given.fab, self._folder, settings.allow)
        except Exception as error:
            reason = error_text(error_facts(error))
            flower.refuse_message(client, given, reason)
            return reason
        message = flower.pull_message(client, given)
        approval = self._approval

        def make_node() -> Node:
            return node_of(self._folder, settings, approval.agreement)

        flower.push_reply(client, given, answer(message, make_node, approval.check))
        return ""


def node_of(folder: NodeFolder, settings: NodeSettings, agreement: Agreement | None) -> Node:
    """The node that the settings describe, with the agreement of its pinned app."""
    clients = client_numbers(settings.clients, f"'{folder.settings}'")
    return Node(clients, settings.data, folder.states, settings.device, agreement, settings.sums)


def main() -> None:
    """Serve the SuperNode at an address, for the node in a folder."""
    begin_process()
    folder = NodeFolder(Path(sys.argv[1]))
    try:
        serve_own_parts(folder)
        _log.info("ready")
        _Executor(folder, sys.argv[2]).run()
    except Misconfigured as error:
        _log.error("%s", error)
        sys.exit(error.exit_status)


if __name__ == "__main__":
    main()
