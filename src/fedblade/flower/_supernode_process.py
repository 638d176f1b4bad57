"""A process of a node: the SuperNode. Its arguments are those of `flower-supernode`."""

import sys

from fedblade.flower._flwr_internals.servers import run_supernode

if __name__ == "__main__":
    run_supernode(sys.argv[1:])
