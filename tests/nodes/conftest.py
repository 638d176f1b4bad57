"""Lets the tests here import nodes that run in this process."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
