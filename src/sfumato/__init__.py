"""Sfumato: private image release under a guarantee that anyone can check."""
