"""Images from noisy statistics: image codes, moments, generators, alignment; all of it is post-processing."""
