"""Files in, pages and figures out."""
