"""What judges compute: features, distances, densities, rates, intervals and their errors."""
