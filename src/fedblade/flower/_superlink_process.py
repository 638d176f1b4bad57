"""A process of a coordinator: the SuperLink. Its arguments are those of `flower-superlink`."""

import sys

from fedblade.flower._flwr_internals.servers import run_superlink

if __name__ == "__main__":
    run_superlink(sys.argv[1:])
