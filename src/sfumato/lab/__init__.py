"""The private side on disk: the lab folder of a release, its scores and pictures, the store of a comparison."""
