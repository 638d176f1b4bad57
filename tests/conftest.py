"""One thread per test process: small tensors gain nothing from more, and two workers share the machine."""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import torch

torch.set_num_threads(1)
