"""Operators of this model, timed one by one."""
