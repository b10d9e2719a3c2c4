"""Run a method, judge a release."""
