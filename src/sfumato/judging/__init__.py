"""Utility, fidelity, privacy and fairness of a release, measured against real images on the lab side."""
