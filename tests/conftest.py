"""One thread per test process, and a data cache of its own.

Small tensors gain nothing from more threads, and two workers share the machine. What a user has decoded must not
change what the tests see.
"""

import atexit
import os
import shutil
import tempfile

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["XDG_CACHE_HOME"] = tempfile.mkdtemp(prefix="fedblade-tests-")
atexit.register(shutil.rmtree, os.environ["XDG_CACHE_HOME"], ignore_errors=True)

import torch  # noqa: E402

torch.set_num_threads(1)
