"""Write, read and verify a release."""
