"""Commands of `flwr`, one after the other in one process, because loading Flower takes longer than a command.

Each line of the input is a JSON object with `number` and `arguments`; each line of the output has the same number, what
the command `printed` and why it `failed`.
"""

import io
import json
import sys
from typing import Any


def _answer(app: Any, arguments: list[str]) -> dict[str, Any]:
    printed, failed = io.StringIO(), ""
    outer = sys.stdout, sys.stderr, sys.__stdout__
    # Flower's JSON goes past `sys.stdout` to the one that Python began with.
    sys.stdout = sys.stderr = sys.__stdout__ = printed  # type: ignore[misc, assignment]
    try:
        app(arguments, standalone_mode=False)
    except (Exception, SystemExit) as error:
        failed = " ".join(str(error).split()) or type(error).__name__
    finally:
        sys.stdout, sys.stderr, sys.__stdout__ = outer  # type: ignore[misc]
    return {"printed": printed.getvalue(), "failed": failed}


def main() -> None:
    """Answer commands until the input ends."""
    from flwr.cli.app import app

    for line in sys.stdin:
        asked = json.loads(line)
        print(json.dumps({"number": asked["number"], **_answer(app, asked["arguments"])}), flush=True)


if __name__ == "__main__":
    main()
