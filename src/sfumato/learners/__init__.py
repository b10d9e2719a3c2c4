"""Ways to make a classifier that may be published: one file, one paper."""
