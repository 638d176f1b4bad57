"""The command `fedblade run --set rounds=1`, on its own or after former imports; started by `growth`."""

import importlib
import sys
from pathlib import Path

from benchmarks.fresh_process import write_result
from fedblade.cli import app


def main(folder: Path, side: str) -> None:
    """Run the command, on the side `former` after what it imported in earlier versions; write which of it is there."""
    if side == "former":
        importlib.import_module("torch.fx.experimental.symbolic_shapes")
        importlib.import_module("sklearn.datasets").load_digits()
    arguments = ["run", "--set", "rounds=1", "--device", "cpu", "--quiet", "--out", str(folder / "run")]
    app(arguments, standalone_mode=False)
    write_result(folder, imported=[name for name in ("sklearn", "sympy") if name in sys.modules])


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
