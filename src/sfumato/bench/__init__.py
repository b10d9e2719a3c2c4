"""Plan a release, make it, judge it."""
