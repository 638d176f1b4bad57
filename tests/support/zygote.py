"""A process that has imported everything and forks one child per command, so that a test need not wait for torch.

Reads one JSON request per line (`argv`, `cwd`, `env`, `stdout`, `stderr`) and answers with the child's number and, when
the child has ended, with its exit status. The child runs the real entry point with its own file descriptors.
"""

import importlib
import json
import os
import sys
import traceback

USED = (
    "fedblade.cli",
    "fedblade.cards._card",
    "fedblade.figures",
    "fedblade.report",
    "torch._dynamo",
)
"""The last is what torch loads, for a second, when it first works out a shape without data, as diagnostics do."""


def child(request: dict) -> None:
    """Become the command line: descriptors, environment and folder as asked, then `main()`."""
    os.chdir(request["cwd"])
    os.environ.update(request["env"])
    for name, number in (("stdout", 1), ("stderr", 2)):
        handle = os.open(request[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
    sys.argv = ["fedblade", *request["argv"]]
    status = 1
    try:
        from fedblade.cli import main

        main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def warm() -> None:
    """Import what commands import on their way. That a new process finds all of it is what `fresh_cli` is for."""
    for name in USED:
        importlib.import_module(name)
    from fedblade.core import registry

    for each in vars(registry).values():
        if isinstance(each, registry.Registry):
            each.names()


def serve() -> None:
    """Answer requests until the input ends."""
    warm()
    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(json.loads(line))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
