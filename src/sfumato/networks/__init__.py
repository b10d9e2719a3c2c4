"""Architectures and feature maps that have never heard of privacy."""
