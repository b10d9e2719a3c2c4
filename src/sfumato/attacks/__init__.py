"""One file, one attacker: release and candidates in, scores out."""
