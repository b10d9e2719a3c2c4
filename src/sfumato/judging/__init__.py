"""What a release is worth and what it gives away, measured against real images on the lab side."""
