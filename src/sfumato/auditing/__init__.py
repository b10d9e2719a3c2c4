"""Whether our own implementation, and this machine, keep the guarantee; nothing private is opened."""
