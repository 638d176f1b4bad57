"""Multiplies matrices on all cores until the process that started this one closes the pipe; started by `busy`."""

import os
import sys
import threading

import torch

_SIZE = 600


def main() -> None:
    """Say when the work begins, then work until the input ends."""
    threading.Thread(target=_end_with_input, daemon=True).start()
    torch.set_num_threads(os.cpu_count() or 1)
    matrix = torch.rand(_SIZE, _SIZE)
    print("busy", flush=True)
    while True:
        torch.mm(matrix, matrix)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    main()
