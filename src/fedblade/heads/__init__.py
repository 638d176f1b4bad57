"""Heads: features to logits, as frozen values whose tensors are passed in; and simplex ETFs, unit vectors, cosines."""

from fedblade.heads._directions import cosine, normalise
from fedblade.heads._etf import EtfDirectHead, EtfProjectorHead
from fedblade.heads._linear import DualLinearHead, FrozenLinearHead, LinearHead
from fedblade.heads._orthonormal import OrthonormalHead, PrototypeHead
from fedblade.heads._scale import Scale
from fedblade.heads._simplex import class_vectors, draw_simplex_etf, is_signs, own_cosines, simplex_etf

__all__ = [
    "DualLinearHead",
    "EtfDirectHead",
    "EtfProjectorHead",
    "FrozenLinearHead",
    "LinearHead",
    "OrthonormalHead",
    "PrototypeHead",
    "Scale",
    "class_vectors",
    "cosine",
    "draw_simplex_etf",
    "is_signs",
    "normalise",
    "own_cosines",
    "simplex_etf",
]
