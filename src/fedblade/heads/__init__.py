"""Heads: features to logits, as frozen values whose tensors are passed in, and the geometry they rest on."""

from fedblade.heads._directions import cosine, normalise
from fedblade.heads._etf import draw_simplex_etf, simplex_etf
from fedblade.heads._etf_projector import EtfProjectorHead, Scale
from fedblade.heads._linear import LinearHead

__all__ = ["EtfProjectorHead", "LinearHead", "Scale", "cosine", "draw_simplex_etf", "normalise", "simplex_etf"]
