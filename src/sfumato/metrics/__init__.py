"""One file, one judgement of a release."""
