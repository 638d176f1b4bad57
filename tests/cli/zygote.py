"""A process that has imported everything and forks one child per command, so that a test need not wait for torch.

Reads one JSON request per line (`argv`, `cwd`, `env`, `stdout`, `stderr`) and answers with the child's exit status.
The child runs the real entry point with its own file descriptors.
"""

import json
import os
import sys
import traceback


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


def serve() -> None:
    """Answer requests until the input ends."""
    import sklearn.datasets  # noqa: F401

    import fedblade.experiment._card
    import fedblade.report  # noqa: F401

    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            child(json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    serve()
