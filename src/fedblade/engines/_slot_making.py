"""How many slots the memory of a device holds, and how they are made."""

from dataclasses import replace

import torch
from torch import Tensor

from fedblade.core.clients import Clients
from fedblade.core.plan import Batch, ClientTask
from fedblade.core.problem import LocalModel, Received
from fedblade.core.tree import Tree, tree_map, tree_zeros
from fedblade.core.work import prepare_phase
from fedblade.engines._capture import HIDDEN_ROUND
from fedblade.engines._client_axis import repeated
from fedblade.engines._slot_memory import Slots, map_batch, warm_up

_SHARE = 0.8
"""Part of the free memory that slots may take."""


def make_slots(clients: Clients, received: Received, like: Batch, num_slots: int, width: int, capacity: int) -> Slots:
    """Slots with the shapes of what a group receives and of a batch; the values are placeholders."""
    device = received.counts.device

    def copies(tree: Tree) -> Tree:
        return {name: leaf[:1].expand(num_slots, *leaf.shape[1:]).clone() for name, leaf in tree.items()}

    counts = received.counts[:1].expand(num_slots, -1).clone()
    anchor = copies(received.anchor)
    in_slots = Received(
        round=HIDDEN_ROUND,
        seed=0,
        counts=counts,
        anchor=anchor,
        buffers=copies(received.buffers),
        fixed={name: repeated(leaf[0].clone(), num_slots) for name, leaf in received.fixed.items()},
        server={name: tree_map(torch.clone, tree) for name, tree in received.server.items()},
        client={name: copies(tree) for name, tree in received.client.items()},
        momentum=None,
        lr=torch.tensor(float(received.lr), device=device, dtype=next(iter(anchor.values())).dtype),
    )
    model = LocalModel(tree_map(torch.clone, anchor), tree_map(torch.clone, in_slots.buffers), tree_zeros(anchor))

    def blank(part: Tensor) -> Tensor:
        return torch.zeros(capacity, num_slots, width, *part.shape[1:], dtype=part.dtype, device=device)

    mask = torch.zeros(len(like.indices), dtype=torch.bool)
    plan = map_batch(replace(like, then=None, mask=mask), blank)
    # Steps that only warm up read the mask, and batch statistics need real samples.
    if plan.mask is not None:
        plan.mask.fill_(True)
    return Slots(
        received=in_slots,
        model=model,
        work=prepare_phase(clients.problem, clients.problem.method.phases[0], model.params),
        batch=map_batch(plan, lambda part: part[0].clone()),
        plan=plan,
        tick=torch.zeros(1, dtype=torch.int64, device=device),
    )


def slots_in_memory(clients: Clients, received: Received, task: ClientTask, width: int) -> int:
    """How many slots the free memory of the device holds, from what one slot takes; no limit on a CPU."""
    device = received.counts.device
    if device.type != "cuda":
        return 1 << 30
    trial = make_slots(clients, received, task.phases[0][0], 1, width, 1)
    torch.cuda.reset_peak_memory_stats(device)
    before = torch.cuda.memory_allocated(device)
    warm_up(trial, clients, trial.batch)
    needed = torch.cuda.max_memory_allocated(device) - before
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info(device)
    return max(1, int(_SHARE * free / max(needed, 1)))
