"""Make a release: plan, charge, ask, certify, write; or another one from the same noisy answers."""
