"""Builds ``profiles/<gpu>/op`` from the CSV files of the open data.

``python -m scripts.operator_tables --data FOLDER --out profiles``, FOLDER with
``peer_graph_tables_*.csv``, ``peer_gb200_gb300_*.csv`` and ``dsv41_*.csv``. The same CSV files and
the same pyarrow give the same bytes.
"""
