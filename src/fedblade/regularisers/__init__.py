"""Terms that can be added to any method by name: `fedprox+feddecorr`."""
