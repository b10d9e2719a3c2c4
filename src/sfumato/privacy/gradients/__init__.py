"""DP-SGD: one noisy gradient at a time (`step`), whole trainings (`training`), and how rows are found.

A record's row is its gradient. `reference` makes every row; `fast_path` never makes them, where the layers allow it.
"""
