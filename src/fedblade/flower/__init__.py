"""Deployed runs: the client half and the server half of a run as Flower apps, and what starts them."""
