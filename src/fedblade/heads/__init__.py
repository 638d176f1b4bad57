"""Heads: features to logits, as frozen values whose tensors are passed in; and simplex ETFs, unit vectors, cosines."""

from fedblade.heads._directions import cosine, normalise
from fedblade.heads._etf import draw_simplex_etf, simplex_etf
from fedblade.heads._etf_direct import EtfDirectHead
from fedblade.heads._etf_projector import EtfProjectorHead
from fedblade.heads._linear import DualLinearHead, FrozenLinearHead, LinearHead
from fedblade.heads._orthonormal import OrthonormalHead
from fedblade.heads._prototype import PrototypeHead
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
