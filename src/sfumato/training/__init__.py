"""Training of classifiers on images that may be published."""
