"""A second, independent count of a step: token by token, layer by layer, in plain Python.

It shares no code with the ledger. `rows` says which positions a request computes and what each
can see; `walk` counts one layer; `draw` makes random models, policies and requests.
"""
