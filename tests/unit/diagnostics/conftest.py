"""Lets the tests here import the trained clients they share."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
