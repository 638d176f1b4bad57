"""What engines do when the memory of a GPU is too small for the clients that train at a time."""

import warnings

import torch


def shrink_to(clients: int) -> None:
    """Free cached memory of the GPU and warn that from now on fewer clients train at a time.

    To be called outside of the error's handler: its traceback keeps tensors alive.
    """
    torch.cuda.empty_cache()
    warnings.warn(
        f"the GPU's memory was too small: from now on at most {clients} of the clients train at a time. "
        f"Smaller batches (local.batch_size) or autocast=bf16 need less.",
        stacklevel=3,
    )
