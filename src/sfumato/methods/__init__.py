"""Synthesizers: one file for each paper, with its public hyperparameters, its fit and its sampler."""
