"""OP: measured kernels composed over the graph, with laws where no row is (docs/op.md)."""
