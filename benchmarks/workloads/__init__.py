"""The benchmarks: a module has the cases of one or more benchmarks and the functions that measure them."""
