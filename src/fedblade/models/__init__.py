"""Backbones: modules that turn inputs into features [batch, dim] and leave heads to the method."""

from fedblade.models._backbone import Backbone, as_backbone

__all__ = ["Backbone", "as_backbone"]
