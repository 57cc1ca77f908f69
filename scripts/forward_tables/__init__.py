"""Builds ``profiles/<gpu>/fpm`` from the CSV files of the open data.

``python -m scripts.forward_tables --data FOLDER --out ROOT``, FOLDER with ``gb300_forward_*.csv``
and ``gb200_forward_*.csv``, ROOT with or without ``profiles/``. The same CSV files and the same
pyarrow give the same bytes.
"""
