"""Presets as data: single runs, grids of papers, published numbers. Modules without underscore are public."""
