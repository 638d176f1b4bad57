"""Engines give method code a client axis: they train cohorts, collect exchanges and run passes."""
