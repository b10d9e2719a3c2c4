"""Images from noisy answers: codes, moments, generators and alignment; all of it post-processing."""
