"""Synthetic engines whose true step times are known, to judge models of whole forwards.

Each world is a mechanism written down here from the model's published structure, position by
position; nothing of the library's counts, prices or fits is used.
"""
