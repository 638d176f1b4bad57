"""Federated rounds written out in plain PyTorch, as a second opinion. Nothing here comes from fedblade.

Weights are one dictionary; a body is a list of layers `(kind, name)`; batches are lists of index tensors.
"""

import torch
from torch.nn import functional as F

MLP = [("linear", "body.layers.0"), ("relu", ""), ("linear", "body.layers.2"), ("relu", "")]
MLP_BATCH_NORM = [
    ("linear", "body.layers.0"),
    ("norm", "body.layers.1"),
    ("relu", ""),
    ("linear", "body.layers.3"),
    ("norm", "body.layers.4"),
    ("relu", ""),
]


def features(layers, params, buffers, x, training):
    for kind, name in layers:
        if kind == "linear":
            x = x @ params[f"{name}.weight"].T + params[f"{name}.bias"]
        elif kind == "relu":
            x = x.clamp(min=0)
        else:
            x = batch_norm(params, buffers, name, x, training)
    return x


def batch_norm(params, buffers, name, x, training, momentum=0.1, eps=1e-5):
    if training:
        mean, var = x.mean(0), x.var(0, correction=0)
        with torch.no_grad():
            buffers[f"{name}.running_mean"] = (1 - momentum) * buffers[f"{name}.running_mean"] + momentum * mean
            buffers[f"{name}.running_var"] = (1 - momentum) * buffers[f"{name}.running_var"] + momentum * x.var(0)
            buffers[f"{name}.num_batches_tracked"] = buffers[f"{name}.num_batches_tracked"] + 1
    else:
        mean, var = buffers[f"{name}.running_mean"], buffers[f"{name}.running_var"]
    return (x - mean) / (var + eps).sqrt() * params[f"{name}.weight"] + params[f"{name}.bias"]


def local_sgd(loss, params, batches, lr, momentum, decay, after_step=None):
    """E epochs of SGD with fresh momentum; `loss(params, indices)` gives the scalar of a batch."""
    params = {n: v.detach().clone().requires_grad_() for n, v in params.items()}
    velocity = {n: torch.zeros_like(v) for n, v in params.items()}
    for indices in batches:
        gradients = torch.autograd.grad(loss(params, indices), list(params.values()))
        with torch.no_grad():
            for (n, w), g in zip(params.items(), gradients, strict=True):
                velocity[n] = momentum * velocity[n] + g + decay * w
                w -= lr * velocity[n]
            if after_step:
                after_step(params)
    return {n: v.detach() for n, v in params.items()}


def cross_entropy(layers, buffers, x, y):
    """FedAvg's loss with a linear head."""

    def loss(params, indices):
        z = features(layers, params, buffers, x[indices], training=True)
        logits = z @ params["head.weight"].T + params["head.bias"]
        return -torch.log_softmax(logits, 1)[torch.arange(len(indices)), y[indices]].mean()

    return loss


def weighted_mean(trees, weights):
    """Σ a_k w_k with a_k = n_k / Σ n; counters by maximum."""
    total = sum(weights)
    mean = {}
    for name, leaf in trees[0].items():
        if leaf.is_floating_point():
            mean[name] = sum(n / total * tree[name] for n, tree in zip(weights, trees, strict=True))
        else:
            mean[name] = torch.stack([tree[name] for tree in trees]).max()
    return mean


def unit(x):
    return x / x.norm(dim=-1, keepdim=True).clamp(min=1e-12)


def log_det(z, eps=1e-4, var_eps=1e-8):
    """-log det of the d × d correlation matrix, by its definition."""
    Z = (z - z.mean(0)) / (z.var(0, correction=0) + var_eps).sqrt()
    matrix = Z.T @ Z / len(z) + eps * torch.eye(z.shape[1], dtype=z.dtype)
    return -torch.linalg.slogdet(matrix).logabsdet


def fedblade_loss(layers, buffers, x, y, counts, etf, prototypes, knobs):
    """Equation 17 term by term; `prototypes` is None or (mean [C, d], has [C])."""
    log_n = counts.clamp(min=1).to(x.dtype).log()

    def loss(params, indices):
        labels = y[indices]
        z = features(layers, params, buffers, x[indices], training=True)

        def project(points):
            return unit(points @ params["projector.weight"].T + params["projector.bias"])

        total = F.cross_entropy(params["scale"] * (project(z) @ etf) + log_n, labels)
        if len(indices) > 1:
            total = total + knobs["lambda_decorr"] * log_det(z, knobs["eps"])
        if prototypes is not None and prototypes[1].any():
            mean, has = prototypes
            held = [c for c in range(len(has)) if has[c]]
            for c in held:
                total = total + knobs["gamma_pba"] * 0.5 * (1 - (project(mean[c]) * unit(etf[:, c])).sum()) ** 2
            parts = []
            for i, label in enumerate(labels.tolist()):
                if label in held:
                    logits = torch.stack([(unit(z[i]) * unit(mean[c])).sum() / knobs["tau"] + log_n[c] for c in held])
                    parts.append(torch.logsumexp(logits, 0) - logits[held.index(label)])
            if parts:
                total = total + knobs["gamma_pba"] * torch.stack(parts).mean()
        return total

    return loss


def fedblade_round(layers, state, clients, x, y, etf, optimizer, knobs):
    """One round: `state` is (params, buffers, prototypes), `clients` a list of (held indices, batches, counts)."""
    params, buffers, prototypes = state
    models, statistics, sizes = [], [], []
    sums = torch.zeros(len(clients[0][2]), knobs["dim"], dtype=x.dtype)
    seen = torch.zeros(len(clients[0][2]), dtype=x.dtype)
    for held, batches, counts in clients:
        own = {n: v.clone() for n, v in buffers.items()}
        loss = fedblade_loss(layers, own, x, y, counts, etf, prototypes, knobs)
        local = local_sgd(loss, params, batches, *optimizer, after_step=_clamp_scale)
        with torch.no_grad():
            z = features(layers, local, own, x[held], training=False)
        for row, label in zip(z, y[held].tolist(), strict=True):
            sums[label] += row
            seen[label] += 1
        models.append(local)
        statistics.append(own)
        sizes.append(len(held))
    old = (torch.zeros_like(sums), torch.zeros(len(seen), dtype=torch.bool)) if prototypes is None else prototypes
    mean = torch.where(seen[:, None] > 0, sums / seen.clamp(min=1)[:, None], old[0])
    return weighted_mean(models, sizes), weighted_mean(statistics, sizes), (mean, old[1] | (seen > 0))


def _clamp_scale(params):
    params["scale"].clamp_(min=1e-3)
