"""Programs that measure operators and whole forwards on one's own GPUs.

They run from a copied folder inside an engine's image: Python 3.10, standard library and torch,
triton where a kernel needs it. Only publishing uses the library `aisim_v41`.
"""
