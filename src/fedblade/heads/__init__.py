"""Heads: features to logits, as frozen values whose tensors are passed in; and simplex ETFs, unit vectors, cosines."""

from fedblade.heads._directions import cosine, normalise
from fedblade.heads._etf import EtfDirectHead, EtfProjectorHead, draw_simplex_etf, simplex_etf
from fedblade.heads._linear import DualLinearHead, FrozenLinearHead, LinearHead
from fedblade.heads._orthonormal import OrthonormalHead, PrototypeHead
from fedblade.heads._scale import Scale

__all__ = [
    "DualLinearHead",
    "EtfDirectHead",
    "EtfProjectorHead",
    "FrozenLinearHead",
    "LinearHead",
    "OrthonormalHead",
    "PrototypeHead",
    "Scale",
    "cosine",
    "draw_simplex_etf",
    "normalise",
    "simplex_etf",
]
