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

import hypothesis  # noqa: E402
import torch  # noqa: E402

torch.set_num_threads(1)
# A change must not fail over an example that another change would not have drawn; fresh examples are for long runs.
hypothesis.settings.register_profile("steady", derandomize=True)
hypothesis.settings.register_profile("fresh", derandomize=False)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
