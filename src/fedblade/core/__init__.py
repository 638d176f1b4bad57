"""The spine: methods as values, sums, state, plans and the one local loop. Depends on torch and NumPy only."""
