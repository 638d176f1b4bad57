"""Everything of this library that depends on the inside of Flower, for one minor version of flwr.

Flower has a documented way to carry out tasks in processes of one's own: `--isolation process`. The calls by which such
a process gets its tasks, and the places where Flower's servers are changed, are not documented. They are used in this
package, and nowhere else.
"""
